"""Pearson's and Spearman's correlation of two lists of numbers, in float64 and from the numbers themselves.

Sums of squares lose the correlation where the mean is large against the deviation: in float32 at about 4,000 times.
"""

from __future__ import annotations

import math
import warnings

import numpy as np

from lmx.errors import InputWarning


def correlations(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
  """{'pearson', 'spearman'} of two lists of equal length; both NaN, with a warning, where one of them is constant.

  Values that differ by no more than float32 resolves count as constant.
  """
  from scipy import stats  # a second that other objectives need not pay

  a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
  for name, x in (('predictions', a), ('scores of the data', b)):
    if is_constant(x):
      shown = f'all {x[0]:.6g}' if len(x) else 'none'
      warnings.warn(f'correlations are NaN: the {len(x):,} {name} are {shown}', InputWarning, stacklevel=2)
      return {'pearson': math.nan, 'spearman': math.nan}
  if not (np.isfinite(a).all() and np.isfinite(b).all()):
    return {'pearson': math.nan, 'spearman': math.nan}
  return {'pearson': float(stats.pearsonr(a, b).statistic), 'spearman': float(stats.spearmanr(a, b).statistic)}


def is_constant(x: np.ndarray) -> bool:
  """True where the values differ by no more than float32 resolves, or there are fewer than two."""
  return len(x) < 2 or bool(np.ptp(x) <= np.finfo(np.float32).eps * np.max(np.abs(x)))
