"""Ledger of a run's wall time: the parts of every session, and the time lost to restarts.

Each moment of a session counts for one part. Process 0 appends the totals of its session to `logs/ledger.jsonl` in the
work directory: before the first update, after each checkpoint, once per heartbeat and at the end. So a kill moves at
most a minute to the time between sessions. A session's time after the checkpoint from which the next one resumes is
lost.
"""

from __future__ import annotations

import collections
import json
import pathlib
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lmx import documents, records
from lmx.errors import InputError, writing

FOLDER, FILE = records.LOGS, 'ledger.jsonl'
PARTS = {  # part -> title
  'steps': 'training steps',
  'data_wait': 'waiting for data',
  'host': 'host work between steps',
  'compile': 'compilation',
  'validation': 'validation',
  'checkpoint': 'saving checkpoints',
  'samples': 'samples',
  'profile': 'profiles',
  'evaluation': 'final evaluation',
  'start': 'imports and start',
  'data': 'data preparation',
  'build': 'initialisation',
  'restore': 'restoring',
  'other': 'other',
  'redone': 'lost work, done again',
  'between': 'between sessions',
}
STEPPING = ('steps', 'data_wait', 'host')  # parts of the training loop outside compilation, validation and saving


class Ledger:
  """Clock of one session. The training enters parts; other threads may read and write the totals.

  Attributes:
    part: the current part.
    step: updates made by the run, the dispatched one included.
    updates: updates in this session.
    slowest: seconds of this session's slowest update, 0 before there is one that did not compile.
    settled: the current batch shapes are compiled and were computed once.
  """

  def __init__(self, began: float | None = None):
    """Start the clock, with the time since `began` (seconds since the epoch) in the part 'start'."""
    now = time.time()
    self.began = now if began is None else min(began, now)
    self.part, self._since = 'start', time.monotonic()
    self._seconds: dict[str, float] = collections.defaultdict(float, start=now - self.began)
    self._clock, self._writing = threading.Lock(), threading.Lock()
    self._file: Any = None
    self._earlier: list[dict[str, Any]] = []
    self._first: list[dict[str, Any]] = []  # record of this session
    self.step, self.updates, self.slowest = 0, 0, 0.0
    self._compiled_at, self._stepping = 0, 0.0

  def enter(self, part: str) -> str:
    """Count the time from now on for `part`; return the previous part."""
    with self._clock:
      before, self.part = self._count(), part
    return before

  def _count(self) -> str:
    """Add the time until now to the current part and return it; called with the lock, which other threads take too."""
    now = time.monotonic()
    self._seconds[self.part] += now - self._since
    self._since = now
    return self.part

  def during(self, part: str) -> _During:
    """Return a context whose time counts for `part`, without contexts inside it."""
    return _During(self, part)

  def compiling(self) -> _During:
    """Return the context of a compilation of the training step."""
    self._compiled_at = self.updates
    return _During(self, 'compile')

  def waiting(self, items: Iterable[Any]) -> Iterator[Any]:
    """Yield the items; waiting for one counts for 'data_wait'."""
    iterator = iter(items)
    while True:
      before = self.enter('data_wait')
      try:
        item = next(iterator)
      except StopIteration:
        return
      finally:
        self.enter(before)
      yield item

  @property
  def settled(self) -> bool:
    # The result of an update is awaited after the next one is dispatched.
    return self.updates >= self._compiled_at + 2

  def update(self, step: int) -> None:
    """Count an update; `step` includes it."""
    with self._clock:
      self._count()
      stepping = sum(self._seconds[part] for part in STEPPING)
    if self.settled:
      self.slowest = max(self.slowest, stepping - self._stepping)
    self._stepping, self.step, self.updates = stepping, step, self.updates + 1

  def seconds(self) -> dict[str, float]:
    """Return the seconds of each part of this session until now."""
    with self._clock:
      self._count()
      return {part: self._seconds[part] for part in PARTS if part in self._seconds}

  def open(self, folder: pathlib.Path) -> None:
    """Continue the ledger in a folder; nothing is written before `begin`. Raises InputError."""
    path = folder / FILE
    with writing(str(path)):
      text = path.read_text(encoding='utf-8', errors='replace') if path.exists() else ''
      self._earlier = list(_parse(text, str(path)))
      self._file = path.open('a', encoding='utf-8')
      if text and not text.endswith('\n'):  # truncated by a kill
        self._file.write('\n')

  def begin(self, step: int) -> None:
    """Write the first record: the session continues after `step` updates. Raises InputError."""
    self.step = step
    self._first = [self._record(saved=True)]
    self.write(saved=True)

  def write(self, saved: bool = False) -> None:
    """Append the totals; `saved` if the run can resume from this update. Raises InputError."""
    with self._writing:
      if self._file is not None and self._first:
        with writing(self._file.name):
          self._file.write(json.dumps(self._record(saved)) + '\n')
          self._file.flush()

  def _record(self, saved: bool = False) -> dict[str, Any]:
    seconds = {part: round(value, 3) for part, value in self.seconds().items()}
    return {'session': round(self.began, 3), 'step': self.step, 'saved': saved, 'seconds': seconds}

  def totals(self) -> dict[str, Any]:
    """Return `total` of the run until now."""
    return total([*self._earlier, *self._first, self._record()])

  def close(self) -> None:
    """Append the last record; safe to call twice."""
    try:
      self.write()
    finally:
      with self._writing:
        if self._file is not None:
          self._file.close()
          self._file = None


class _During:
  """Context of a part; a class, because it is entered several times per update."""

  __slots__ = ('_before', '_ledger', '_part')

  def __init__(self, ledger: Ledger, part: str):
    self._ledger, self._part = ledger, part

  def __enter__(self) -> None:
    self._before = self._ledger.enter(self._part)

  def __exit__(self, *_: Any) -> None:
    self._ledger.enter(self._before)


def _parse(text: str, path: str) -> Iterator[dict[str, Any]]:
  """Yield the records of a ledger; lines that kills have truncated are skipped. Raises InputError for other faults."""
  for number, line in enumerate(text.split('\n'), 1):
    where = f'{path}, line {number}'
    try:
      record = documents.parse_json(line, where)
    except InputError:
      continue
    for name, kind in (('session', float), ('step', int), ('saved', bool), ('seconds', dict)):
      documents.field(record, name, kind, where)
    for part, value in record['seconds'].items():
      documents.convert(value, float, f'{where}: seconds: {part}')
    yield record


def read(workdir: Any) -> dict[str, Any]:
  """Return `total` of a run, {} for one that an earlier version has trained. Raises InputError."""
  path = workdir / FOLDER / FILE
  if not records.exists(path):
    return {}
  return total(list(_parse(documents.read_bytes(path).decode(errors='replace'), str(path))))


def total(found: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
  """Return the wall time of a run by parts: `goodput`, `wall_seconds`, `sessions`, `seconds` of each part.

  Args:
    found: records in the order in which they were written; {} is returned without any.
  """
  sessions: dict[float, list[Mapping[str, Any]]] = {}
  for record in found:
    sessions.setdefault(record['session'], []).append(record)
  if not sessions:
    return {}
  seconds: dict[str, float] = collections.defaultdict(float)
  ordered = [sessions[began] for began in sorted(sessions)]
  resumed = float('inf')  # update from which a later session resumed
  following = None  # when the next session began
  for session in reversed(ordered):
    kept, last = _kept(session, resumed), session[-1]
    for part, value in kept['seconds'].items():
      seconds[part] += value
    length = _sum(last)
    seconds['redone'] += max(0.0, length - _sum(kept))
    if following is not None:
      seconds['between'] += max(0.0, following - last['session'] - length)
    following = last['session']
    resumed = min([resumed, *(record['step'] for record in session[:1] if record['saved'])])
  wall = sum(seconds.values())
  return {
    'goodput': seconds['steps'] / wall if wall else 0.0,
    'wall_seconds': wall,
    'sessions': len(ordered),
    'seconds': {part: seconds[part] for part in [*PARTS, *sorted(seconds.keys() - PARTS)] if seconds.get(part)},
  }


def _kept(session: list[Mapping[str, Any]], resumed: float) -> Mapping[str, Any]:
  """Return the last record of a session whose work no later session repeats; the first if all is repeated."""
  if resumed == float('inf'):
    return session[-1]
  return next((record for record in reversed(session) if record['saved'] and record['step'] <= resumed), session[0])


def _sum(record: Mapping[str, Any]) -> float:
  return sum(record['seconds'].values())


def describe(totals: Mapping[str, Any]) -> str:
  """Return the parts of a run's time as text, the largest first, without those below 0.5%."""
  shares = {part: value / totals['wall_seconds'] for part, value in totals['seconds'].items()}
  shown = sorted(((share, part) for part, share in shares.items() if share >= 0.005), reverse=True)
  return ', '.join(f'{PARTS.get(part, part)} {share:.0%}' for share, part in shown)
