"""Ranges of numeric command-line options and of config values.

`type=` of `argparse.ArgumentParser.add_argument` is always a result of the functions here, never plain `int` or
`float`. The type of a config key may be `Annotated[TYPE, RULE]` with the classes here, which lmx/cast.py checks.
A number without `Limits` is at least 0.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

SEEDS = 2**32  # in JAX, larger seeds give the same keys as smaller ones


def integer(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
  """Return a parser of integers from `low` to `high`."""

  def read(text: str) -> int:
    try:
      value = int(text)
    except ValueError:
      value = low - 1
    if not low <= value <= high:
      raise argparse.ArgumentTypeError(f'got {text[:40]}; expected an integer from {low:,} to {high:,}')
    return value

  return read


def number(low: float, high: float = math.inf, *, above: bool = False) -> Callable[[str], float]:
  """Return a parser of finite numbers from `low` to `high`; `low` itself is refused with `above`."""

  def read(text: str) -> float:
    try:
      value = float(text)
    except ValueError:
      value = math.nan
    if not (low <= value <= high and math.isfinite(value)) or above and value == low:
      start = f'above {low:g}' if above else f'of at least {low:g}'
      end = '' if high == math.inf else f' and at most {high:g}'
      raise argparse.ArgumentTypeError(f'got {text[:40]}; expected a number {start}{end}')
    return value

  return read


def ids(text: str) -> tuple[int, ...]:
  """Parse token ids: integers of at least 0 with commas between them; an empty text is no ids."""
  return tuple(map(integer(0), text.split(','))) if text.strip() else ()


def sequences(text: str) -> tuple[tuple[int, ...], ...]:
  """Parse sequences of token ids with slashes between them, such as 5,6/7."""
  return tuple(map(ids, text.split('/'))) if text.strip() else ()


def seed(text: str) -> int:
  """Parse a seed: an integer from 0 to 2**32 - 1."""
  return integer(0, SEEDS - 1)(text)


@dataclasses.dataclass(frozen=True)
class Limits:
  """Range of a number in a config.

  Attributes:
    low, high: the least and the greatest value.
    is_open: both are excluded.
  """

  low: float = 0
  high: float = math.inf
  is_open: bool = False

  def problem(self, value: Any) -> str:
    """Return what is expected if `value` is out of range, else ''."""
    is_valid = self.low < value < self.high if self.is_open else self.low <= value <= self.high
    if is_valid:
      return ''
    above, below = ('above', 'below') if self.is_open else ('at least', 'at most')
    bounds = [(above, self.low), (below, self.high)]
    return ' and '.join(f'{word} {bound:g}' for word, bound in bounds if math.isfinite(bound))


SIGNED = Limits(-math.inf)
FACTOR = Limits(high=1e6)  # rates, decays, Adagrad's initial accumulator; training with larger ones stalls or diverges


@dataclasses.dataclass(frozen=True)
class Regex:
  """Regular expression as a config value."""

  def problem(self, value: Any) -> str:
    """Return what is expected if `value` does not compile, else ''."""
    try:
      re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
      return f'a regular expression ({error})'
    return ''


@dataclasses.dataclass(frozen=True)
class Text:
  """Text that is not empty, as a config value."""

  def problem(self, value: Any) -> str:
    """Return what is expected if `value` is empty, else ''."""
    return '' if value else 'text that is not empty'


@dataclasses.dataclass(frozen=True)
class Choice:
  """One of several texts as a config value."""

  values: Sequence[str]

  def problem(self, value: Any) -> str:
    """Return what is expected if `value` is none of the texts, else ''."""
    return '' if value in self.values else f'one of {", ".join(self.values)}'


@dataclasses.dataclass(frozen=True)
class Record:
  """Names of the elements of a tuple of fixed length in a config, for messages."""

  names: Sequence[str]

  def __str__(self) -> str:
    return f'({", ".join(self.names)})'

  def problem(self, value: Any) -> str:
    """Return '': cast.py checks the elements."""
    del value
    return ''


@dataclasses.dataclass(frozen=True)
class Distinct:
  """Tuple without repeated elements in a config; in ascending order if `is_sorted`."""

  is_sorted: bool = False

  def problem(self, value: Any) -> str:
    """Return what is expected if `value` repeats an element or is not sorted, else ''."""
    if len(set(value)) < len(value):
      return 'different elements'
    return 'ascending order' if self.is_sorted and list(value) != sorted(value) else ''
