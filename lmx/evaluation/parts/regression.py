"""Regressions of a score of rows: their baselines, and a warning of predictions that are all nearly equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmx.metrics import correlation

OPTIONS = {'baselines': 'bag_of_words'}


def notes(metrics: Mapping[str, Any]) -> list[str]:
  """Return a warning if the predictions are nearly equal for all rows."""
  ratio = metrics.get('deviation_ratio', 1)
  if not ratio < correlation.LEAST_DEVIATION:
    return []
  return [
    f'  warning: predictions: got nearly the same for all rows, with {ratio:.2%} of the standard deviation of the '
    f'scores; expected at least {correlation.LEAST_DEVIATION:.0%}; train longer, or change optim.lr'
  ]
