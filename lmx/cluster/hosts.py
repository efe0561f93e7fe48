"""Log, heartbeat and watchdog of each process of a training, in `logs/` of the work directory.

  host-NNN.log   log of process NNN: notes, warnings of libraries, a line per heartbeat, stacks, the error at its end
  host-NNN.json  its last heartbeat: time, update, seconds per update, seconds of its own work per update, and whether
                 it has ended
  ledger.jsonl   see lmx/reporting/ledger.py

Process 0 reports a process whose heartbeat stays the same for `SILENT` heartbeats, and one that delays the others.
All processes wait for the slowest in every update, so the time of an update is the same for all. Therefore each
process measures its own work: waiting for its data, and Python between updates. A slow chip is not seen in it.

The watchdog ends a process whose update makes no progress, for example because another host hangs.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import logging.handlers
import math
import multiprocessing
import os
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

from lmx import storage
from lmx.config import schema
from lmx.errors import InputError, explain
from lmx.records import SILENT, heartbeat_name
from lmx.reporting.ledger import FILE, FOLDER, STEPPING, Ledger
from lmx.signals import PREEMPTED

SLOW = 0.2  # of an update's time, by which a process delays the others
SHORTEST, FACTOR = 1800.0, 20.0  # default of train.watchdog: seconds, and factor of the slowest update
_BYTES, _BACKUPS = 2**20, 4
_TICK = 1.0  # seconds between two checks of the watchdog
_LAST_COPY = 30.0  # seconds for the copy of the log to a bucket before the watchdog ends the process
LOG = logging.getLogger('lmx.host')


class _File(logging.handlers.RotatingFileHandler):
  """Rotated log that reports the first failed write.

  Attributes:
    failed: a write has failed.
    catches: Python writes the stacks to the file when a signal such as SIGABRT ends the process.
  """

  failed = catches = False

  def doRollover(self) -> None:  # noqa: N802
    super().doRollover()
    if self.catches:
      faulthandler.enable(self.stream or sys.stderr)

  def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
    del record
    error = sys.exc_info()[1]
    if not self.failed and error is not None:
      self.failed = True
      print(f'warning: {self.baseFilename}: cannot be written ({explain(error)})', file=sys.stderr)


class Host:
  """This process among the hosts of a training; a context manager."""

  def __init__(self, workdir: Any, ledger: Ledger, cfg: schema.Train, note: Callable[[str], None]):
    """Describe the host; entering the context opens its log and starts its thread.

    Args:
      workdir: the work directory, which exists.
      ledger: clock of the session.
      cfg: the `train` section.
      note: shows a line of process 0.
    """
    self._process, self._processes, self._name = jax.process_index(), jax.process_count(), socket.gethostname()
    self._file = f'host-{self._process:03d}'
    self._folder, self._ledger, self._cfg, self._note = workdir / FOLDER, ledger, cfg, note
    self._ended = threading.Event()
    self._heartbeat: dict[str, Any] = {}  # the last one
    self._last = (0, 0.0, 0.0)  # updates, seconds of them, and of own work, at the last heartbeat
    self._others = _Others(self._folder, self._processes)

  def __enter__(self) -> Host:
    logs = [f'{self._file}.log', *(f'{self._file}.log.{n}' for n in range(1, _BACKUPS + 1))]
    if not storage.is_remote(self._folder):
      self._folder.mkdir(exist_ok=True)  # not its parent: a deleted work directory stays so
    self._mirror = storage.Mirror(self._folder, [*logs, FILE] if self._process == 0 else logs)
    if self._process == 0:
      self._ledger.open(self._mirror.local)
    path = self._mirror.local / f'{self._file}.log'
    self._handler = _File(path, maxBytes=_BYTES, backupCount=_BACKUPS, encoding='utf-8')
    self._handler.setFormatter(logging.Formatter('%(asctime)s %(levelname)s %(message)s'))
    self._before = LOG.level, LOG.propagate
    LOG.setLevel(logging.INFO)
    LOG.propagate = False  # warnings of libraries go to the same file by the root logger
    LOG.addHandler(self._handler)
    root = logging.getLogger()
    self._root: list[logging.Handler] = [self._handler]
    if not root.handlers and logging.lastResort is not None:  # otherwise Python prints them no longer
      self._root.append(logging.lastResort)
    for handler in self._root:
      root.addHandler(handler)
    self._handler.catches = not faulthandler.is_enabled()
    if self._handler.catches:
      faulthandler.enable(self._handler.stream or sys.stderr)
    LOG.info(
      f'process {self._process} of {self._processes} on {self._name}, id {os.getpid()}, '
      f'{jax.local_device_count()} of {jax.device_count()} devices ({jax.devices()[0].device_kind})'
    )
    self._threads = [
      threading.Thread(target=target, name=name, daemon=True)
      for target, name in ((self._watch, 'lmx-watchdog'), (self._beats, 'lmx-heartbeat'))
    ]
    for thread in self._threads:
      thread.start()
    return self

  def __exit__(self, kind: Any, ended_by: BaseException | None, trace: Any) -> None:
    self._ended.set()
    for thread in self._threads:
      thread.join(_LAST_COPY)
    if ended_by is not None:
      LOG.error(f'ends after update {self._ledger.step}', exc_info=ended_by)
    else:
      LOG.info(f'ends after update {self._ledger.step}')
    with contextlib.suppress(InputError):  # a full disk, which the checkpoint or the log has reported
      self._ledger.close()
    if self._handler.catches:
      faulthandler.disable()
    LOG.removeHandler(self._handler)
    for handler in self._root:
      logging.getLogger().removeHandler(handler)
    LOG.setLevel(self._before[0])
    LOG.propagate = self._before[1]
    with contextlib.suppress(OSError):  # as above
      self._write_heartbeat(ended=True)
    with contextlib.suppress(OSError):
      self._handler.close()
    try:
      self._mirror.close()
    except Exception as error:  # of the bucket's library
      print(f'warning: {self._folder}: the logs cannot be written ({error})', file=sys.stderr)

  def _watch(self) -> None:
    """End the process if an update hangs."""
    limit = self._cfg.watchdog
    tick, seen = min(_TICK, (limit or _TICK) / 4), (-1, 0.0)  # updates, and seconds without another one
    while not self._ended.wait(tick):
      updates, is_stepping = self._ledger.updates, self._ledger.part in STEPPING and self._ledger.settled
      # Counted in ticks, so that the time for which the process itself was stopped does not count.
      seen = (updates, seen[1] + tick) if is_stepping and updates == seen[0] else (updates, 0.0)
      if seen[1] > patience(limit, self._ledger.slowest):
        self._give_up(seen[1])

  def _beats(self) -> None:
    """Write heartbeats; in a thread without the watchdog, because a bucket may not answer."""
    self._beat()
    while not self._ended.wait(self._cfg.heartbeat):
      self._beat()

  def _beat(self) -> None:
    """Write a heartbeat, the ledger and a line of the log; in process 0 check the other hosts."""
    seconds, updates = self._ledger.seconds(), self._ledger.updates
    total, own = (sum(seconds.get(part, 0.0) for part in parts) for parts in (STEPPING, ('data_wait', 'host')))
    made = updates - self._last[0]
    per_update = [
      (now - before) / made if made else 0.0 for now, before in zip((total, own), self._last[1:], strict=True)
    ]
    self._last = (updates, total, own)
    self._heartbeat = {
      **{'process': self._process, 'host': self._name, 'id': os.getpid(), 'interval': self._cfg.heartbeat},
      **{'seconds_per_update': per_update[0], 'own_seconds_per_update': per_update[1]},
    }
    LOG.info(
      f'update {self._ledger.step}, {self._ledger.part}: {made} updates since the last line'
      + (f', {per_update[0]:.4g} s each, of which {per_update[1]:.4g} s on the host' if made else '')
    )
    try:
      self._write_heartbeat()
      self._ledger.write()
      self._mirror.send()
    except Exception as error:  # also of the bucket's library
      LOG.warning(f'no heartbeat: {type(error).__name__}: {error}')
    if self._process == 0 and self._processes > 1:
      for line in self._others.check():
        self._note(line)

  def _write_heartbeat(self, ended: bool = False) -> None:
    now = {'time': round(time.time(), 3), 'step': self._ledger.step, 'part': self._ledger.part, 'ended': ended}
    path = self._mirror.local / heartbeat_name(self._process)
    part = path.with_suffix('.part')
    part.write_text(json.dumps(self._heartbeat | now) + '\n', encoding='utf-8')
    part.replace(path)

  def _give_up(self, seconds: float) -> None:
    """Write the stacks of all threads to the log and exit with code 75."""
    text = (
      f'the update after {self._ledger.step - 1} has made no progress for {seconds:.0f} s (train.watchdog); exit code '
      f'{PREEMPTED}: the same command resumes the run'
    )
    LOG.error(f'{text}; the stacks of all threads:')
    with contextlib.suppress(OSError, ValueError):
      faulthandler.dump_traceback(self._handler.stream or sys.stderr)
    with contextlib.suppress(OSError, ValueError):
      print(f'\nlmx: host {self._name} (process {self._process}): {text}', file=sys.stderr, flush=True)
    copying = threading.Thread(target=self._send_last, daemon=True)
    copying.start()
    copying.join(_LAST_COPY)
    for child in multiprocessing.active_children():  # that build batches
      child.kill()
    os._exit(PREEMPTED)

  def _send_last(self) -> None:
    with contextlib.suppress(Exception):  # also of the bucket's library
      self._write_heartbeat(ended=True)
      self._ledger.write()
      self._mirror.send()


def patience(watchdog: float | None, slowest: float) -> float:
  """Return the seconds without progress after which an update hangs, from `train.watchdog` and the slowest update."""
  if watchdog is None:
    return max(SHORTEST, FACTOR * slowest)
  return watchdog or math.inf


class _Others:
  """The heartbeats of all processes, as process 0 sees them."""

  def __init__(self, folder: Any, processes: int):
    self._folder, self._processes = folder, processes
    self._seen: dict[int, tuple[Any, int]] = {}  # process -> its last heartbeat, and for how many of process 0's
    self._slow: set[int] = set()  # at the last check
    self._states: dict[int, str] = {}

  def check(self) -> list[str]:
    """Return a line for each process that has become silent, slow or normal again since the last call."""
    for process in range(self._processes):
      record = self._read(process)
      before, count = self._seen.get(process, (None, 0))
      self._seen[process] = (record, count + 1 if record == before else 0)
    silent = {process for process, (_, count) in self._seen.items() if count >= SILENT}
    slow = _slow({process: record for process, (record, _) in self._seen.items() if record and process not in silent})
    lines = []
    for process, (record, _) in self._seen.items():
      before = self._states.get(process, '')
      if process in silent:
        state = 'silent'
      elif process in slow:  # in the second heartbeat, because the first may have had an epoch's first batch
        state = 'slow' if slow[process] and process in self._slow else ''
      else:
        state = before if before == 'slow' else ''  # no update in this heartbeat, such as in a validation
      if state != before:
        self._states[process] = state
        text = {'silent': _silence(record), 'slow': slow.get(process), '': 'its heartbeats are normal again'}[state]
        lines.append(f'host {record["host"] if record else "unknown"} (process {process}): {text}')
    self._slow = {process for process in self._seen if slow.get(process, process in self._slow)}
    return lines

  def _read(self, process: int) -> dict[str, Any] | None:
    try:
      return json.loads((self._folder / heartbeat_name(process)).read_text(encoding='utf-8'))
    except (OSError, ValueError):  # not there yet, or being replaced
      return self._seen.get(process, (None, 0))[0]


def _silence(record: Mapping[str, Any] | None) -> str:
  at = f'; its last one was at update {record["step"]}' if record else ''
  return f'no heartbeat for {SILENT} heartbeats of process 0{at}'


def _slow(records: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
  """Return {process: how its own work delays the others, '' if it does not} for processes that have made updates."""
  measured = {process: record for process, record in records.items() if record['seconds_per_update'] > 0}
  own = {process: record['own_seconds_per_update'] for process, record in measured.items()}
  if len(own) < 2:
    return {}
  usual, texts = statistics.median_low(own.values()), {}
  for process, record in measured.items():
    seconds = record['seconds_per_update']
    text = f'slow: data and host work take {own[process]:.3g} s per update of {seconds:.3g} s, on the median host '
    texts[process] = f'{text}{usual:.3g} s' if own[process] - usual > SLOW * seconds else ''
  return texts
