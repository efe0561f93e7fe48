"""Logs, heartbeats and watchdogs of the processes of a training."""

from __future__ import annotations

import json
import logging
import math
import os
import time

import pytest

from lmx import records
from lmx.cluster import hosts
from lmx.config import schema
from lmx.reporting import ledger as ledgers


def cfg(**settings):
  return schema.Train(steps=1, **settings)


def stepping(ledger, updates=3):
  for step in range(1, updates + 1):
    ledger.update(step)
  return ledger.during('steps')


@pytest.fixture
def exits(monkeypatch):
  """Exit codes of watchdogs, which end no process here."""
  codes = []

  def leave(code):
    codes.append(code)
    raise SystemExit  # of the thread

  monkeypatch.setattr(hosts.os, '_exit', leave)
  return codes


@pytest.mark.filterwarnings('ignore::pytest.PytestUnhandledThreadExceptionWarning')
def test_watchdog_writes_the_stacks_and_exits_with_75(tmp_path, exits, capsys):
  ledger = ledgers.Ledger()
  with hosts.Host(tmp_path, ledger, cfg(watchdog=0.1), print), stepping(ledger):
    deadline = time.monotonic() + 30
    while not exits and time.monotonic() < deadline:
      time.sleep(0.01)
  assert exits == [75]
  log = (tmp_path / 'logs/host-000.log').read_text()
  assert 'has made no progress' in log and 'in test_watchdog_writes_the_stacks' in log
  assert 'process 0): the update after 2' in capsys.readouterr().err


@pytest.mark.parametrize('part', ['compile', 'validation', 'checkpoint', 'evaluation', 'first updates', 'progress'])
def test_watchdog_ends_no_healthy_process(tmp_path, exits, part):
  ledger = ledgers.Ledger()
  with hosts.Host(tmp_path, ledger, cfg(watchdog=0.1), print), stepping(ledger, 1 if part == 'first updates' else 3):
    with ledger.during(part if part in ledgers.PARTS else 'steps'):
      for _ in range(10):
        time.sleep(0.03)
        if part == 'progress':
          ledger.update(9)
  assert exits == []


def test_default_patience_depends_on_the_slowest_update():
  assert hosts.patience(None, 0.0) == hosts.patience(None, 60.0) == 1800
  assert hosts.patience(None, 600.0) == 12_000
  assert hosts.patience(7.5, 600.0) == 7.5 and hosts.patience(0.0, 600.0) == math.inf


def test_log_has_notes_warnings_of_libraries_and_the_error(tmp_path, capsys):
  ledger = ledgers.Ledger()
  with pytest.raises(ValueError), hosts.Host(tmp_path, ledger, cfg(), print):
    hosts.LOG.info('a note')
    logging.getLogger('library').warning('a warning')
    logging.getLogger('library').info('a detail')
    raise ValueError('the reason')
  log = (tmp_path / 'logs/host-000.log').read_text()
  assert all(text in log for text in ('a note', 'a warning', 'ends after update 0', 'ValueError: the reason'))
  assert 'a detail' not in log
  logging.getLogger('library').warning('later')
  assert 'later' not in (tmp_path / 'logs/host-000.log').read_text()


def test_heartbeat_has_the_update_and_its_time(tmp_path):
  ledger = ledgers.Ledger()
  ledger.begin(0)
  path = tmp_path / 'logs' / ledgers.FILE
  with hosts.Host(tmp_path, ledger, cfg(heartbeat=0.2), print), stepping(ledger):
    deadline, beats = time.monotonic() + 30, []
    while not (beats and path.read_text().count('\n') > 2) and time.monotonic() < deadline:
      time.sleep(0.02)
      if records.read_heartbeat(tmp_path).get('is_fresh'):
        found = json.loads((tmp_path / 'logs/host-000.json').read_text())
        beats += [found] * (found['step'] == 3)
  assert beats and beats[0]['process'] == 0 and beats[0]['seconds_per_update'] >= 0
  assert not records.read_heartbeat(tmp_path)['is_fresh']  # it has ended
  assert path.read_text().count('\n') > 2  # not only of the begin and the end


def test_log_is_rotated_also_for_stacks(tmp_path, monkeypatch):
  monkeypatch.setattr(hosts, '_BYTES', 2000)
  enabled = []
  monkeypatch.setattr(hosts.faulthandler, 'is_enabled', lambda: False)
  monkeypatch.setattr(hosts.faulthandler, 'enable', lambda file: enabled.append(os.fstat(file.fileno()).st_ino))
  monkeypatch.setattr(hosts.faulthandler, 'disable', lambda: None)
  with hosts.Host(tmp_path, ledgers.Ledger(), cfg(), print):
    for number in range(200):
      hosts.LOG.info(f'line {number} {"x" * 50}')
  files = sorted(path.name for path in (tmp_path / 'logs').glob('host-000.log*'))
  assert files == ['host-000.log', *(f'host-000.log.{n}' for n in range(1, hosts._BACKUPS + 1))]
  assert 'line 199' in (tmp_path / 'logs/host-000.log').read_text()
  assert enabled[-1] == (tmp_path / 'logs/host-000.log').stat().st_ino


def test_logs_of_a_bucket_continue_in_the_next_session(bucket):
  for session in (1, 2):
    ledger = ledgers.Ledger(began=session)
    with hosts.Host(bucket, ledger, cfg(), print):
      ledger.begin(session)
      hosts.LOG.info(f'session {session}')
  assert [f'session {n}' in (bucket / 'logs/host-000.log').read_text() for n in (1, 2)] == [True, True]
  assert ledgers.read(bucket)['sessions'] == 2 and (bucket / 'logs/host-000.json').exists()


def test_full_disk_is_reported_once_and_ends_nothing(tmp_path, capsys):
  with hosts.Host(tmp_path, ledgers.Ledger(), cfg(), print) as host:
    host._handler.stream.close()
    host._handler.stream = open('/dev/full', 'w')
    for _ in range(3):
      hosts.LOG.info('a line')
  assert capsys.readouterr().err.count('host-000.log: cannot be written') == 1


def heartbeat(folder, process, step, own=0.01, seconds=1.0):
  record = {'process': process, 'host': f'h{process}', 'step': step}
  record |= {'seconds_per_update': seconds, 'own_seconds_per_update': own}
  (folder / f'host-{process:03d}.json').write_text(json.dumps(record))


def test_silent_host_is_named_once_until_it_is_heard_again(tmp_path):
  others, lines = hosts._Others(tmp_path, 3), []
  for step in range(10):
    for process in range(3):
      if process != 1 or step < 2 or step >= 8:
        heartbeat(tmp_path, process, step)
    lines.append(others.check())
  silent = ['host h1 (process 1): no heartbeat for 3 heartbeats of process 0; its last one was at update 1']
  normal = ['host h1 (process 1): its heartbeats are normal again']
  assert lines == [[]] * 4 + [silent] + [[]] * 3 + [normal, []]


def test_host_that_delays_the_others_is_named(tmp_path):
  others, lines = hosts._Others(tmp_path, 4), []
  for step in range(7):
    for process in range(4):
      own = 0.4 if process == 2 and step in (1, 3, 4) else 0.25 if process == 1 else 0.1
      heartbeat(tmp_path, process, step, own, seconds=0.0 if step == 5 else 1.0)  # step 5: a validation
    lines.append(others.check())
  slow = 'host h2 (process 2): slow: data and host work take 0.4 s per update of 1 s, on the median host 0.1 s'
  assert lines == [[], [], [], [], [slow], [], ['host h2 (process 2): its heartbeats are normal again']]
