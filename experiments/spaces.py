"""Spaces that a sweep draws from, where points of a grid (config.grid) would be too many or too far apart.

def sweep():
  return spaces.space(optim__lr=spaces.log_range(1e-4, 1e-2), model__dropout=spaces.linear_range(0.0, 0.5))
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple


class Range(NamedTuple):
  """What a key of a `space` may be: any number from `low` to `high`, both included; whole ones where both are whole.

  Attributes:
    low: the least.
    high: the greatest.
    log: whether every factor is as likely as another, rather than every difference.
  """

  low: float
  high: float
  log: bool = False


class Space(dict[str, 'Range | tuple[Any, ...]']):
  """What `space` returns: {'section.key': its Range, or the values it may have}."""

  def corners(self) -> Iterator[dict[str, Any]]:
    """Every combination of ends of ranges and of values."""
    sides = [(found.low, found.high) if isinstance(found, Range) else found for found in self.values()]
    for point in itertools.product(*sides):
      yield dict(zip(self, point, strict=True))


def log_range(low: float, high: float) -> Range:
  """Numbers of which every factor is as likely as another, such as rates; `low` must be above 0."""
  return _range(low, high, log=True)


def linear_range(low: float, high: float) -> Range:
  """Numbers of which every difference is as likely as another, such as dropout; whole where both ends are whole."""
  return _range(low, high, log=False)


def _range(low: float, high: float, *, log: bool) -> Range:
  if not low < high or (log and low <= 0):
    raise ValueError(f'a range from {low} to {high}: the first must be below the second' + ', and above 0' * log)
  return Range(low, high, log)


def space(**values: Range | Sequence[Any]) -> Space:
  """What a sweep may choose from: `section__key=log_range(...)`, `linear_range(...)` or a list of values."""
  return Space({k.replace('__', '.'): v if isinstance(v, Range) else tuple(v) for k, v in values.items()})


def points(found: Space | Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
  """The points that a `sweep()` gives one by one, or the corners of its space."""
  return list(found.corners() if isinstance(found, Space) else found)
