"""Pearson's and Spearman's correlation of two arrays, in float64 and from the values themselves.

Sums of squares lose the correlation if the mean is large relative to the deviation: in float32 from about 4,000 times.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np

from lmx.errors import InputWarning
from lmx.metrics.metric import Metric

METRICS = (Metric('pearson', True, headline=',.3f'), Metric('spearman', True, headline=',.3f'))
LEAST_DEVIATION = 0.01  # of predictions, relative to the deviation of the scores; below it they are nearly constant
_NAMES = ('predictions', 'scores of the data')


def correlations(
  a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray, names: Sequence[str] = _NAMES, where: str = ''
) -> dict[str, float]:
  """Return {'pearson', 'spearman'} of two arrays of equal length, both NaN, with a warning, where they are undefined.

  That is with fewer than two values, or if all values of an array are equal: those that differ by less than the
  resolution of float32 are.

  Args:
    a, b: values.
    names: of the arrays, for the warning.
    where: its beginning, such as 'file: '.
  """
  from scipy import stats  # takes a second to import, and other objectives do not need it

  a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
  for name, x in zip(names, (a, b), strict=True):
    if is_constant(x):
      reason = (
        f'the {len(x):,} {name} are all {x[0]:.6g}' if len(x) > 1 else f'got {len(x)} {name}; expected at least 2'
      )
      warnings.warn(f'{where}correlations are NaN: {reason}', InputWarning, stacklevel=2)
      return {'pearson': math.nan, 'spearman': math.nan}
  if not (np.isfinite(a).all() and np.isfinite(b).all()):
    return {'pearson': math.nan, 'spearman': math.nan}
  return {'pearson': float(stats.pearsonr(a, b).statistic), 'spearman': float(stats.spearmanr(a, b).statistic)}


def is_constant(x: np.ndarray) -> bool:
  """Return True if the values differ by less than the resolution of float32, or there are fewer than two."""
  return len(x) < 2 or bool(np.ptp(x) <= np.finfo(np.float32).eps * np.max(np.abs(x)))
