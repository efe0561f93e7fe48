"""Numeric command-line options with a range.

`type=` of `argparse.ArgumentParser.add_argument` is always a result of these functions, never plain `int` or `float`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

SEEDS = 2**32  # JAX gives larger seeds the same keys as smaller ones


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


def seed(text: str) -> int:
  """Parse a seed: an integer from 0 to 2**32 - 1."""
  return integer(0, SEEDS - 1)(text)
