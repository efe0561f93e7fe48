"""Progress of long work on a corpus: a bar in a terminal, a line every half minute elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator

import tqdm

_STEP = 1 << 20  # bytes between two updates
_EVERY = 30.0  # seconds between lines


class Bar:
  """Progress in bytes, with their rate; a context manager.

  Args:
    what: the work, such as 'tokenising train'.
    total: total bytes.
    done: bytes finished earlier, which the rate excludes.
  """

  def __init__(self, what: str, total: int, done: int = 0):
    self._what, self._total, self._done, self._first = what, total, done, done
    self._began = self._said = time.monotonic()
    self._bar = None
    if sys.stderr.isatty():
      self._bar = tqdm.tqdm(
        total=total, initial=done, desc=what, unit='B', unit_scale=True, leave=False, delay=1, mininterval=0.5
      )

  def __enter__(self) -> Bar:
    return self

  def __exit__(self, *_: object) -> None:
    if self._bar is not None:
      self._bar.close()

  def update(self, done: int) -> None:
    """Show that `done` bytes are done."""
    if self._bar is not None:
      self._bar.update(done - self._bar.n)
      return
    now = time.monotonic()
    if now - self._said >= _EVERY:
      rate = (done - self._first) / (now - self._began)
      left = (self._total - done) / rate if rate else float('inf')
      seconds = f', {left:,.0f} s left' if left < 1e6 else ''
      line = f'{self._what}: {done / 1e6:,.0f} of {self._total / 1e6:,.0f} MB, {rate / 1e6:.1f} MB/s{seconds}'
      print(line, file=sys.stderr, flush=True)
      self._said = now


def track(rows: Iterable[tuple[str, str, str]], what: str, total: int) -> Iterator[tuple[str, str, str]]:
  """Yield documents (id, text, label), showing how many of `total` characters have passed."""
  with Bar(what, total) as bar:
    done = shown = 0
    for row in rows:
      yield row
      done += len(row[1])
      if done - shown >= _STEP:
        bar.update(min(done, total))
        shown = done
