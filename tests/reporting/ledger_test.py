"""The ledger counts each moment for one part, and knows what restarts have lost."""

from __future__ import annotations

import json
import time

import pytest

from lmx.errors import InputError
from lmx.reporting import ledger as ledgers


@pytest.fixture
def clock(monkeypatch):
  """Clock that `advance` sets forward."""

  class Clock:
    now = 1000.0

    def advance(self, seconds):
      self.now += seconds

  clock = Clock()
  monkeypatch.setattr(ledgers.time, 'monotonic', lambda: clock.now)
  monkeypatch.setattr(ledgers.time, 'time', lambda: 1e9 + clock.now)
  return clock


def session(clock, folder, first, updates, save_every, final=0):
  """Train from `first`: an update takes 1 s, 2 s of waiting for data and 0.25 s of host work. Return the ledger."""
  ledger = ledgers.Ledger(began=1e9 + clock.now - 5)
  folder.mkdir(parents=True, exist_ok=True)
  ledger.open(folder)
  ledger.begin(first)

  def batches():
    for step in range(first + 1, first + updates + 1):
      clock.advance(2)
      yield step

  with ledger.during('host'):
    for step in ledger.waiting(batches()):
      with ledger.during('steps'):
        clock.advance(1)
      clock.advance(0.25)
      ledger.update(step)
      if step % save_every == 0:
        with ledger.during('checkpoint'):
          clock.advance(0.5)
        ledger.write(saved=True)
  with ledger.during('evaluation'):
    clock.advance(final)
  return ledger


def test_each_moment_counts_for_one_part(clock, tmp_path):
  ledger = session(clock, tmp_path, 0, 10, 5, final=7)
  assert ledger.seconds() == {'steps': 10, 'data_wait': 20, 'host': 2.5, 'checkpoint': 1, 'evaluation': 7, 'start': 5}
  with ledger.during('validation'), ledger.during('steps'):
    clock.advance(3)
  assert (ledger.seconds()['steps'], ledger.seconds()['validation']) == (13, 0)
  assert ledger.totals()['wall_seconds'] == sum(ledger.seconds().values()) == 48.5
  assert ledger.totals()['goodput'] == 13 / 48.5


def test_work_after_the_checkpoint_that_is_resumed_is_lost(clock, tmp_path):
  folder = tmp_path / 'logs'
  session(clock, folder, 0, 8, 5).write()  # killed after update 8
  clock.advance(100)
  session(clock, folder, 5, 3, 50).write()  # killed before its first checkpoint
  clock.advance(10)
  last = session(clock, folder, 5, 5, 5)
  last.close()
  found = ledgers.read(tmp_path)
  assert last.totals() == found  # as in results.json
  expected = {'steps': 5 + 5, 'data_wait': 10 + 10, 'host': 2.5, 'checkpoint': 1, 'start': 15, 'redone': 9.75 + 9.75}
  assert found['sessions'] == 3
  assert found['seconds'] == expected | {'between': 110 - 2 * 5}  # the next session began 5 s before its ledger
  assert found['wall_seconds'] == sum(found['seconds'].values()) == 168
  assert found['goodput'] == 10 / 168
  assert ledgers.describe(found).startswith('between sessions 60%, waiting for data 12%, lost work, done again 12%')


def test_checkpoint_that_is_damaged_is_lost_too(clock, tmp_path):
  folder = tmp_path / 'logs'
  session(clock, folder, 0, 10, 5).write()
  session(clock, folder, 5, 5, 5).close()  # without the checkpoint of update 10
  found = ledgers.read(tmp_path)['seconds']
  assert (found['steps'], found['redone']) == (5 + 5, 5 * 3.25 + 0.5)


def test_line_truncated_by_a_kill_is_skipped(clock, tmp_path):
  folder = tmp_path / 'logs'
  session(clock, folder, 0, 5, 5).close()
  path = folder / ledgers.FILE
  path.write_text(path.read_text() + '{"session": 1, "st')
  session(clock, folder, 5, 5, 5).close()
  assert len(list(ledgers._parse(path.read_text(), ''))) == 2 * len(['begin', 'checkpoint', 'close'])
  assert ledgers.read(tmp_path)['sessions'] == 2
  path.write_text('{"session": "a", "step": 1, "saved": true, "seconds": {}}\n')
  with pytest.raises(InputError, match='ledger.jsonl, line 1: session'):
    ledgers.read(tmp_path)


def test_run_of_an_earlier_version_has_no_ledger(tmp_path):
  assert ledgers.read(tmp_path) == {} == ledgers.total([])


def test_session_that_does_not_begin_writes_nothing(clock, tmp_path):
  ledger = ledgers.Ledger()
  ledger.open(tmp_path)
  ledger.write()
  ledger.close()
  assert (tmp_path / ledgers.FILE).read_text() == ''


def test_slowest_update_excludes_compilation(clock):
  ledger = ledgers.Ledger()
  with ledger.during('host'):
    for step, seconds in enumerate((50, 40, 3, 4, 2), 1):
      with ledger.during('steps'):
        if step == 1:
          with ledger.compiling():
            clock.advance(500)
        clock.advance(seconds)
      ledger.update(step)
      assert ledger.settled == (step >= 2)
  assert ledger.slowest == 4


def test_thread_that_reads_changes_no_part():
  ledger = ledgers.Ledger()

  class Lock:
    """Lock that the training thread takes first, to enter another part."""

    is_first = True

    def __enter__(self):
      if self.is_first:
        self.is_first = False
        ledger.enter('compile')

    def __exit__(self, *_):
      pass

  for read in (ledger.seconds, lambda: ledger.update(1)):
    ledger.enter('steps')
    ledger._clock = Lock()
    read()
    assert ledger.part == 'compile'


def test_counting_takes_microseconds(tmp_path):
  ledger = ledgers.Ledger()
  began = time.process_time()
  with ledger.during('host'):
    for step in ledger.waiting(range(1, 2001)):
      for _ in range(3):
        with ledger.during('steps'):
          pass
      ledger.update(step)
  assert time.process_time() - began < 2000 * 50e-6  # about 5 microseconds each; below 1% of an update of 5 ms


def test_later_totals_of_a_session_replace_earlier_ones():
  record = {'session': 1.0, 'step': 1, 'saved': True, 'seconds': {'steps': 1.0}}
  later = record | {'seconds': {'steps': 5.0, 'a part of a later version': 5.0}}
  assert ledgers.total(json.loads(json.dumps([record, later])))['goodput'] == 0.5
