"""Search spaces for sweeps in which a grid (config.grid) would be too large or too coarse.

def sweep():
  return spaces.space(optim__lr=spaces.log_range(1e-4, 1e-2), model__dropout=spaces.linear_range(0.0, 0.5))
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

_LARGEST = 1.7976931348623157e308  # float


class Range(NamedTuple):
  """Range of a key in a `space`, inclusive; integers if both ends are integers.

  Attributes:
    low: lower end.
    high: upper end.
    log: uniform in the logarithm.
  """

  low: float
  high: float
  log: bool = False


class Space(dict[str, 'Range | tuple[Any, ...]']):
  """Search space: {'section.key': its Range, or its values}."""

  def corners(self) -> Iterator[dict[str, Any]]:
    """Yield every combination of range ends and values."""
    sides = [(axis.low, axis.high) if isinstance(axis, Range) else axis for axis in self.values()]
    for point in itertools.product(*sides):
      yield dict(zip(self, point, strict=True))


def log_range(low: float, high: float) -> Range:
  """Return a range that is uniform in the logarithm, such as for learning rates; `low` must be above 0."""
  return _range(low, high, log=True)


def linear_range(low: float, high: float) -> Range:
  """Return a uniform range, such as for dropout; of integers if both ends are integers."""
  return _range(low, high, log=False)


def _range(low: float, high: float, *, log: bool) -> Range:
  if not low < high or (log and low <= 0):
    raise ValueError(f'range: got {low} to {high}; expected the first below the second' + ', and above 0' * log)
  if not (-_LARGEST <= low and high <= _LARGEST and high - low <= _LARGEST):
    raise ValueError(f'range: got {low:.4g} to {high:.4g}; expected finite ends, at most 1.8e308 apart')
  return Range(low, high, log)


def space(**values: Range | Sequence[Any]) -> Space:
  """Return the search space of `section__key=log_range(...)`, `linear_range(...)` or a list of values."""
  return Space({k.replace('__', '.'): v if isinstance(v, Range) else tuple(v) for k, v in values.items()})


def points(sweep: Space | Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
  """Return the points of a `sweep()`, or the corners of its space."""
  return list(sweep.corners() if isinstance(sweep, Space) else sweep)
