"""Confidence intervals, paired significance tests and corrections for several comparisons, over NumPy arrays.

Intervals: Student's t over seeds, and the sign test for their median (Conover 1999, section 3.2); the percentile
bootstrap over rows (Efron and Tibshirani 1993, chapter 13).
Tests of two systems on the same rows: paired bootstrap (Koehn 2004, its p-value centred as in Riezler and Maxwell
2005), approximate randomization (Noreen 1989; Riezler and Maxwell 2005), McNemar's exact test (McNemar 1947).
Corrections: Holm 1979; Benjamini and Hochberg 1995. Expected best of k trials: Dodge et al. 2019 (arXiv 1909.03004).

`rows` has one row per example, sentence or document, (n,) or (n, columns). A statistic maps such an array to a number,
such as `numpy.mean`, or F1 from the summed counts. All tests are two-sided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmx.errors import InputError

LEVEL = 0.95
RESAMPLES = 9999  # SciPy's default; the least p-value is 1 / (RESAMPLES + 1)
_BATCH = 2**23  # resampled row indices in memory at once
_TIES = 1e-12  # relative difference of equal statistics that are summed in another order

Values = Sequence[float] | np.ndarray
Statistic = Callable[[np.ndarray], Any]


class Interval(NamedTuple):
  """Confidence interval of a mean or a metric.

  Attributes:
    low, high: bounds, NaN if they are undefined.
    n: number of seeds or rows.
    method: 't' or 'sign' over seeds, 'bootstrap' over rows.
  """

  low: float
  high: float
  n: int
  method: str


def t_interval(values: Values, level: float = LEVEL) -> Interval:
  """Return the t interval of the mean of values of several seeds, with NaN bounds for one value."""
  values = np.asarray(values, np.float64)
  return t_interval_of(values.mean(), values.std(ddof=1) if len(values) > 1 else math.nan, len(values), level)


def t_interval_of(mean: float, deviation: float, n: int, level: float = LEVEL) -> Interval:
  """Return the t interval of a mean from the sample standard deviation (n - 1) of n values."""
  from scipy import stats  # takes a second to import

  half = float(deviation) / math.sqrt(n) * float(stats.t.ppf((1 + level) / 2, n - 1)) if n > 1 else math.nan
  return Interval(float(mean) - half, float(mean) + half, n, 't')


def median_interval(values: Values, level: float = LEVEL) -> Interval:
  """Return the interval of the median of several seeds by the sign test; at 95%, six values are the fewest.

  The bounds are values themselves and NaN if there are too few (Conover 1999, section 3.2).
  """
  from scipy import stats  # takes a second to import

  found = stats.quantile_test(np.asarray(values, np.float64), p=0.5).confidence_interval(level)
  return Interval(float(found.low), float(found.high), len(values), 'sign')


def bootstrap(
  rows: Any, statistic: Statistic = np.mean, level: float = LEVEL, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
  """Return the percentile bootstrap interval of a statistic; rows are resampled with replacement.

  The bounds are NaN for a single row, or if the statistic of a resample is NaN.
  """
  rows = np.asarray(rows)
  if len(rows) < 2:
    return Interval(math.nan, math.nan, len(rows), 'bootstrap')
  found = _resample(len(rows), lambda index: statistic(rows[index]), level, seed, resamples)
  return Interval(float(found.confidence_interval.low), float(found.confidence_interval.high), len(rows), 'bootstrap')


def difference(
  a: Any,
  b: Any,
  statistic: Statistic = np.mean,
  level: float = LEVEL,
  seed: int = 0,
  resamples: int = RESAMPLES,
) -> Interval:
  """Return the bootstrap interval of statistic(b) - statistic(a); the same rows of both are resampled."""
  both = np.stack(_pair(a, b), axis=1)
  return bootstrap(both, lambda rows: statistic(rows[:, 1]) - statistic(rows[:, 0]), level, seed, resamples)


def paired_bootstrap(
  a: Any, b: Any, statistic: Statistic = np.mean, seed: int = 0, resamples: int = RESAMPLES
) -> float:
  """Return the p-value of the difference of two systems on the same rows; see `bootstrap_p`."""
  both = np.stack(_pair(a, b), axis=1)
  return bootstrap_p(both, lambda rows: statistic(rows[:, 1]) - statistic(rows[:, 0]), seed, resamples)


def bootstrap_p(rows: Any, difference: Statistic, seed: int = 0, resamples: int = RESAMPLES) -> float:
  """Return the p-value of a difference, which is a statistic of rows with the values of both systems.

  It is the share of resamples whose difference is as far from its mean as the observed difference from 0.
  """
  rows = np.asarray(rows)
  if len(rows) < 2:
    return 1.0
  found = _resample(len(rows), lambda index: difference(rows[index]), LEVEL, seed, resamples).bootstrap_distribution
  return _p_value(found - found.mean(), difference(rows))


def approximate_randomization(
  a: Any, b: Any, statistic: Statistic = np.mean, seed: int = 0, resamples: int = RESAMPLES
) -> float:
  """Return the p-value of the difference of two systems on the same rows.

  It is the share of random exchanges of rows between the systems whose difference is at least the observed one. It
  equals `scipy.stats.permutation_test(permutation_type='samples')`, for rows of several columns.
  """
  a, b = _pair(a, b)
  rng, pool, first = np.random.default_rng(seed), np.concatenate([a, b]), np.arange(len(a))
  paired = np.subtract(a, b, dtype=np.float64) if statistic is np.mean and a.ndim == 1 else None
  differences: list[float] = []
  while len(differences) < resamples:
    size = min(resamples - len(differences), max(1, _BATCH // len(a)))
    swaps = rng.integers(2, size=(size, len(a)), dtype=bool)
    if paired is not None:  # an exchange changes the sign of a row's difference
      differences += (paired.mean() - 2 * (swaps @ paired) / len(a)).tolist()
      continue
    for swap in swaps:
      shift = swap * len(a)
      differences.append(statistic(pool[first + shift]) - statistic(pool[first + len(a) - shift]))
  return _p_value(np.asarray(differences), statistic(b) - statistic(a))


def mcnemar(a: Values, b: Values) -> float:
  """Return the p-value of McNemar's exact test of two classifiers; a, b are whether each row is correct."""
  from scipy import stats

  a, b = (np.asarray(x, bool) for x in _pair(a, b))
  only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
  return float(stats.binomtest(only_a, only_a + only_b, 0.5).pvalue) if only_a + only_b else 1.0


def welch(a: Values, b: Values, level: float = LEVEL) -> tuple[Interval, float]:
  """Return the interval of mean(b) - mean(a) and the p-value of Welch's t test, over the seeds of two systems.

  Raises:
    InputError: one of them has fewer than two seeds.
  """
  from scipy import stats

  a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
  if min(len(a), len(b)) < 2:
    raise InputError(f"Welch's t test: got {len(a)} and {len(b)} seeds; expected at least 2 of both; train more seeds")
  if not a.var() + b.var():  # no seed differs: the difference is certain
    shift = float(b.mean() - a.mean())
    return Interval(shift, shift, len(a) + len(b), 't'), float(not shift)
  test = stats.ttest_ind(b, a, equal_var=False)
  low, high = test.confidence_interval(level)
  return Interval(float(low), float(high), len(a) + len(b), 't'), float(test.pvalue)


def holm(p_values: Values) -> np.ndarray:
  """Return p-values adjusted for several comparisons, which bound the chance of any false rejection (Holm 1979)."""
  p = np.asarray(p_values, np.float64)
  order = np.argsort(p, kind='stable')
  adjusted = np.empty(len(p))
  adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
  return adjusted


def false_discovery(p_values: Values) -> np.ndarray:
  """Return p-values adjusted to control the share of false rejections (Benjamini and Hochberg 1995)."""
  from scipy import stats

  return stats.false_discovery_control(np.asarray(p_values, np.float64), method='bh')


def expected_best(values: Values, lower_is_better: bool = True) -> np.ndarray:
  """Return the expected best value of k = 1..n random trials, given the values of n trials (Dodge et al. 2019).

  E[best of k] is the sum over the i-th worst value v_i of v_i ((i / n)^k - ((i - 1) / n)^k).
  """
  worst_first = np.sort(np.asarray(values, np.float64))[:: -1 if lower_is_better else 1]
  k, n = np.arange(1, len(worst_first) + 1), len(worst_first)
  shares_KI = (np.arange(n + 1) / n) ** k[:, None]
  return np.diff(shares_KI, axis=1) @ worst_first


def _resample(n: int, statistic: Statistic, level: float, seed: int, resamples: int) -> Any:
  """Run SciPy's bootstrap over the indices of n rows, so that rows may have several columns."""
  from scipy import stats

  def measure(index: np.ndarray, axis: int) -> np.ndarray:  # faster than SciPy's own loop
    return np.array([statistic(one) for one in index.reshape(-1, n)]).reshape(index.shape[:axis])

  return stats.bootstrap(
    (np.arange(n),),
    measure,
    vectorized=True,
    method='percentile',
    confidence_level=level,
    n_resamples=resamples,
    batch=max(1, _BATCH // n),
    rng=np.random.default_rng(seed),
  )


def _p_value(null: np.ndarray, observed: float) -> float:
  """Return the share of differences at least as large as the observed one, which counts itself.

  An undefined difference counts as larger; the value is NaN where the observed one is undefined.
  """
  if np.isnan(observed):
    return math.nan
  return float((np.sum(~(np.abs(null) < abs(observed) * (1 - _TIES))) + 1) / (len(null) + 1))


def _pair(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
  """Return two arrays of the same rows. Raises InputError for other lengths or a value that is not finite."""
  a, b = np.asarray(a), np.asarray(b)
  if a.shape != b.shape or not len(a):
    raise InputError(f'paired test: got {len(a):,} and {len(b):,} rows; expected the same rows of both systems')
  for values in (a, b):
    if not np.isfinite(values).all():
      row = int(np.argwhere(~np.isfinite(values))[0][0])
      raise InputError(f'paired test: got {values[row]} in row {row}; expected finite numbers')
  return a, b
