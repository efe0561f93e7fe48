"""Pearson's and Spearman's correlation of two arrays, in float64 and from the values themselves.

Sums of squares lose the correlation if the mean is large relative to the deviation: in float32 from about 4,000 times.
"""

from __future__ import annotations

import math
import warnings

import numpy as np

from lmx.errors import InputWarning


def correlations(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
  """Return {'pearson', 'spearman'} of two arrays of equal length; both NaN, with a warning, if one is constant.

  Values that differ by less than the resolution of float32 count as constant.
  """
  from scipy import stats  # takes a second, which other objectives do not need

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
  """Return True if the values differ by less than the resolution of float32, or there are fewer than two."""
  return len(x) < 2 or bool(np.ptp(x) <= np.finfo(np.float32).eps * np.max(np.abs(x)))
