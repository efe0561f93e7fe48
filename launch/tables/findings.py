"""Findings of a matrix: every two systems of a group compared on minimal pairs, with one correction for all of them.

The unit is a paradigm with all of its seeds. The p-value is that of approximate randomization over paradigms,
corrected by Holm's method over all pairs of a group. The 95% interval is from a bootstrap over paradigms, the same for
both systems, and over the seeds of each. A difference is a finding if its corrected p-value is below 0.05 and its
interval is without 0.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from experiments.tables import Table
from launch.tables import matrix
from launch.tables.paradigms import Accuracies
from lmx import statistics

LEVEL = 0.05
_RESAMPLES = 99_999  # the least p-value, 1 / 100,000, stays small after the correction


class Finding(NamedTuple):
  """Difference of two systems.

  Attributes:
    group: heading of their group.
    better, worse: names; the better one has the larger mean.
    difference, low, high: mean over paradigms and seeds, better minus worse, and its 95% interval, in points.
    p: corrected p-value.
    seeds: numbers of seeds of the better and of the worse one.
    compared: number of differences that the correction is for.
  """

  group: str
  better: str
  worse: str
  difference: float
  low: float
  high: float
  p: float
  seeds: tuple[int, int]
  compared: int

  @property
  def is_shown(self) -> bool:
    """Return whether the difference is significant."""
    return self.p < LEVEL and self.low > 0


def of_groups(groups: Mapping[str, Mapping[str, Accuracies]]) -> list[Finding]:
  """Return the differences of all pairs in each group, the largest first within a group."""
  found: list[Finding] = []
  for group, systems in groups.items():
    pairs = list(itertools.combinations(systems, 2))
    each = [_compare(group, pair, systems) for pair in pairs]
    corrected = statistics.holm([one.p for one in each])
    each = [one._replace(p=float(p), compared=len(pairs)) for one, p in zip(each, corrected, strict=True)]
    found += sorted(each, key=lambda one: -one.difference)
  return found


def sections(table: Table, groups: Mapping[str, Mapping[str, Accuracies]]) -> list[tuple[str, list[str], list[str]]]:
  """Return the groups of a matrix: the heading, the differences of dated systems that are shown, and the others."""
  years = matrix.years(table)
  dated = {group: {name: one for name, one in each.items() if years[name]} for group, each in groups.items()}
  found = of_groups(dated)
  texts = lambda group, is_shown: [sentence(one) for one in found if (one.group, one.is_shown) == (group, is_shown)]
  return [(group, texts(group, True), texts(group, False)) for group in dict.fromkeys(one.group for one in found)]


def _compare(group: str, names: tuple[str, str], systems: Mapping[str, Accuracies]) -> Finding:
  """Return the difference of two systems before the correction."""
  arrays = {name: np.asarray(systems[name].values) for name in names}
  better, worse = sorted(names, key=lambda name: -arrays[name].mean())
  a_SP, b_SP = arrays[better], arrays[worse]
  low, high = _interval(a_SP, b_SP)
  p = statistics.approximate_randomization(a_SP.mean(axis=0), b_SP.mean(axis=0), resamples=_RESAMPLES)
  difference = float(a_SP.mean() - b_SP.mean())
  return Finding(group, better, worse, difference, low, high, p, (len(a_SP), len(b_SP)), 1)


def _interval(a_SP: np.ndarray, b_SP: np.ndarray) -> tuple[float, float]:
  """Return the 95% interval of the difference of the means of two arrays of the same paradigms."""
  rng = np.random.default_rng(1)
  means_RP = [
    rng.multinomial(len(x_SP), [1 / len(x_SP)] * len(x_SP), statistics.RESAMPLES) @ x_SP / len(x_SP)
    for x_SP in (a_SP, b_SP)
  ]
  found_R = (_counts(a_SP.shape[1]) * (means_RP[0] - means_RP[1])).sum(axis=1) / a_SP.shape[1]
  low, high = np.quantile(found_R, [(1 - statistics.LEVEL) / 2, (1 + statistics.LEVEL) / 2])
  return float(low), float(high)


@functools.cache
def _counts(paradigms: int) -> np.ndarray:
  """Return how often each paradigm is in each resample of the bootstrap."""
  return np.random.default_rng(0).multinomial(paradigms, [1 / paradigms] * paradigms, statistics.RESAMPLES)


def sentence(one: Finding) -> str:
  """Return a difference as a sentence."""
  interval = f'95% interval {one.low:.1f} to {one.high:.1f}'
  equal = one.seeds[0] == one.seeds[1]
  seeds = f'{one.seeds[0]} seed{"s" * (one.seeds[0] > 1)} each' if equal else f'{one.seeds[0]} and {one.seeds[1]} seeds'
  if not one.is_shown:
    return f'{one.better} and {one.worse}: {one.difference:+.1f} points ({interval}; {seeds})'
  p = 'p < 0.001' if one.p < 0.001 else f'p = {one.p:.3f}'
  about = f'{interval}; {p} after Holm for {one.compared} comparisons; {seeds}'
  return (
    f'{one.better} prefers the grammatical sentence more often than {one.worse}: {one.difference:+.1f} points ({about})'
  )
