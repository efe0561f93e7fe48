"""Progress of long operations: a bar in a terminal, otherwise occasional lines, with the time left.

The estimate excludes the first update, which compiles.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tqdm import tqdm

EVERY = 10.0  # seconds between plain lines
DELAY = 2.0  # seconds after which a wait is shown
_shapes_of: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()  # of each compiled function
_FORMAT = '{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{unit} [{elapsed}{postfix}]'


def duration(seconds: float) -> str:
  """Return seconds as 'm:ss' or 'h:mm:ss'."""
  minutes, seconds = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  return f'{hours}:{minutes:02d}:{seconds:02d}' if hours else f'{minutes}:{seconds:02d}'


def is_terminal() -> bool:
  """Return True if standard error is a terminal with at least one column; some without a window report 0."""
  try:
    return sys.stderr.isatty() and os.get_terminal_size(sys.stderr.fileno()).columns > 0
  except (OSError, ValueError):
    return False


class Bar:
  """Progress of one operation; a context manager."""

  def __init__(self, total: int, title: str, unit: str = '', terminal: bool | None = None) -> None:
    """Begin.

    Args:
      total: number of units.
      title: name of the operation; '' shows nothing.
      unit: unit, such as ' lines'.
      terminal: draw a bar; None draws one in a terminal.
    """
    self._total, self._title, self._unit = total, title, unit
    terminal = is_terminal() if terminal is None else terminal
    self._bar = tqdm(
      total=total,
      desc=title,
      unit=unit,
      unit_scale=total > 1e6,
      leave=False,
      disable=not (title and terminal),
      bar_format=_FORMAT,
    )
    self._plain = bool(title) and not terminal
    self._done, self._first = 0, (0, 0.0)  # units and time after the first update
    self._printed = time.monotonic()

  def __enter__(self) -> Bar:
    return self

  def __exit__(self, *_: Any) -> None:
    self._bar.close()

  def compiling(self, step: Any, batch: Mapping[str, Any]) -> contextlib.AbstractContextManager[None]:
    """Show that the block compiles, if it is the first call of the compiled function `step` on these shapes."""
    shapes = _shapes_of.setdefault(step, set())
    key = frozenset((name, tuple(x.shape)) for name, x in batch.items())
    if key in shapes or not self._title:
      return contextlib.nullcontext()
    shapes.add(key)
    show = None if self._plain else lambda text: self._bar.set_description_str(text or self._title)
    return waiting(f'{self._title}: compiling batches of {shape_text(batch)}', show)

  def update(self, units: int) -> None:
    """Add finished units, and show the progress."""
    now, self._done = time.monotonic(), self._done + units
    if not self._first[1]:
      self._first = (self._done, now)
    left = self._left(now)
    self._bar.set_postfix_str(left, refresh=False)
    self._bar.update(units)
    if self._plain and now - self._printed >= EVERY and self._done < self._total:
      self._printed = now
      parts = f'{self._title}: {self._done:,} of {self._total:,}{self._unit}', left
      print('  '.join(filter(None, parts)), file=sys.stderr, flush=True)

  def _left(self, now: float) -> str:
    done, seconds = self._done - self._first[0], now - self._first[1]
    return f'{duration((self._total - self._done) * seconds / done)} left' if done > 0 else ''


def bar(items: Iterable[Any], title: str, total: int, unit: str = '') -> Iterator[Any]:
  """Yield the items and show the progress; see `Bar`."""
  with Bar(total, title, unit) as progress:
    for item in items:
      yield item
      progress.update(1)


def shape_text(batch: Mapping[str, Any]) -> str:
  """Return the shape of a batch's packed sequences, of its tokens or of its largest array, such as '32 x 64'."""
  name = next((name for name in ('packed_PT', 'tokens_BT') if name in batch), '')
  shape = batch[name].shape if name else max((x.shape for x in batch.values()), key=math.prod)
  return ' x '.join(map(str, shape))


@contextlib.contextmanager
def waiting(text: str, show: Callable[[str], None] | None = None) -> Iterator[None]:
  """Show what the program waits for while the block runs.

  Args:
    text: the operation, such as 'compiling'.
    show: called about once per second with the text and elapsed seconds, and with '' at the end. Without it, a line is
      printed after `DELAY` seconds, and another with the duration at the end.
  """
  began, ended = time.monotonic(), threading.Event()
  printed: list[bool] = []

  def watch() -> None:
    if show is None:
      if not ended.wait(DELAY):
        print(f'{text} ...', file=sys.stderr, flush=True)
        printed.append(True)
      return
    while not ended.wait(0 if not printed else 1):
      show(f'{text}, {time.monotonic() - began:.0f} s')
      printed.append(True)

  thread = threading.Thread(target=watch, daemon=True)
  thread.start()
  try:
    yield
  finally:
    ended.set()
    thread.join()
    if show is not None:
      show('')
    elif printed:
      print(f'{text}: took {time.monotonic() - began:.1f} s', file=sys.stderr, flush=True)
