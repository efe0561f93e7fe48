"""Verdict on a measured metric: whether the printed one is in its 95% interval.

Over several seeds the interval is Student's t for their mean, and the sign test's for their median. For a single run,
or the best one of several, it is the bootstrap over rows that the run saved. Without an interval, a difference within
the metric's band counts as reproduced, and the verdict says so.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from experiments.tables import MEAN, MEDIAN, METRICS, Metric, Row
from launch.tables import collection, measured
from launch.tables import plan as plans
from lmx import statistics

REPRODUCED, OUTSIDE, NOT_COMPARABLE, OWN = 'reproduced', 'outside', 'not comparable', 'own'
_BAND = 'within the band'
_ROUNDING = 1e-9  # of sums of floats, relative to the printed metric


class Verdict(NamedTuple):
  """Comparison of a measured metric with the printed one.

  Attributes:
    kind: REPRODUCED, OUTSIDE, NOT_COMPARABLE or OWN (nothing is printed).
    low: lower end of our interval, or of the band around our metric; NaN if the two are not compared.
    high: upper end.
    why: the interval or band; the reason for a difference, or the difference; or why the two are not comparable.
    is_band: the ends are those of the metric's band, for want of an interval.
  """

  kind: str
  low: float = math.nan
  high: float = math.nan
  why: str = ''
  is_band: bool = False


def of(one: measured.Measurement | collection.RowResult, printed: plans.Printed | None) -> Verdict:
  """Return the verdict on a recorded line, or on the runs of a row; `printed` is None if no paper prints the metric."""
  if printed is None:
    return Verdict(OWN)
  row = one.row if isinstance(one, collection.RowResult) else rows().get(one.id)
  differs = one.row.differs if isinstance(one, collection.RowResult) else one.differs
  if differs:
    return Verdict(NOT_COMPARABLE, why=differs)
  return _compare(printed, *_interval(one, band(row, printed)), row.outside if row else '')


def of_computed(value: float, printed: plans.Printed, count: int, differs: str = '') -> Verdict:
  """Return the verdict on a figure that is computed from `count` others, `differs` if one of them is not comparable."""
  if differs:
    return Verdict(NOT_COMPARABLE, why=differs)
  tolerance = band(None, printed)
  how = f'{_BAND} of a figure computed from {count} others'
  return _compare(printed, value, value - tolerance, value + tolerance, how)


def _compare(printed: plans.Printed, value: float, low: float, high: float, how: str, outside: str = '') -> Verdict:
  """Return the verdict on a metric with its interval or band."""
  is_band, slack = how.startswith(_BAND), _ROUNDING * abs(printed.value)
  if low - slack <= printed.value <= high + slack:
    return Verdict(REPRODUCED, low, high, how, is_band)
  return Verdict(OUTSIDE, low, high, outside or f'{value - printed.value:+.4g} from the printed figure', is_band)


def _interval(one: measured.Measurement | collection.RowResult, tolerance: float) -> tuple[float, float, float, str]:
  """Return our metric, the ends of its interval, and how the interval was found."""
  if isinstance(one, collection.RowResult):
    value, deviation, count, saved = one.value, one.deviation, len(one.seeds), one.interval
    statistic = one.row.statistic
  else:
    value, count, saved = float(one.value), one.count, tuple(map(float, one.interval.split()))
    deviation, statistic = float(one.spread) if one.spread else math.nan, one.statistic or MEAN
  if count > 1 and statistic == MEAN and not math.isnan(deviation):
    found = statistics.t_interval_of(value, deviation, count)
    return value, found.low, found.high, f'95% interval over {count} seeds'
  what = 'a single run' if count == 1 else f'the {measured.of_seeds(statistic, count)}'
  if saved and (count == 1 or statistic != MEAN):
    low, high = saved
    return (
      value,
      low,
      high,
      f'95% interval of {what}' if statistic == MEDIAN else f'95% interval over the rows of {what}',
    )
  is_known = count == 1 or statistic != MEAN
  how = f'within the band of {what}' if is_known else f'within the band, as the spread of {count} seeds is unknown'
  return value, value - tolerance, value + tolerance, how


def band(row: Row | None, printed: plans.Printed | None) -> float:
  """Return the tolerance around the published metric: the row's, twice the published spread, or the metric's.

  NaN if nothing is published.
  """
  if printed is None:
    return math.nan
  metric = _metric(row, printed)
  ours = metric.band * printed.value if metric.relative else metric.band
  own = row.band if row else 0.0
  return own or (ours if math.isnan(printed.spread) else max(2 * printed.spread, _rounding(printed.text)))


def is_count(key: str) -> bool:
  """Return whether the printed figure `key` is a number of parameters, not a score."""
  return _metric(rows().get(key), plans.published()[key]).key.startswith('parameters')


def _metric(row: Row | None, printed: plans.Printed) -> Metric:
  """Return the metric of a row, or without one the first that is printed under the same name."""
  if row:
    return METRICS[row.metric]
  return next(metric for metric in METRICS.values() if printed.metric in metric.printed)


def printed(key: str) -> plans.Printed | None:
  """Return the published figure of a row, or of the one that it is like; None without one."""
  row = rows().get(key)
  return plans.published().get(key) or (plans.published()[row.like] if row and row.like else None)


@functools.cache
def rows() -> dict[str, Row]:
  """Return the rows of all tables by id."""
  found: dict[str, Row] = {}
  for name in plans.names():
    for row in plans.table(name).rows:
      found.setdefault(row.id, row)
  return found


def _rounding(text: str) -> float:
  """Return half of the last printed digit: 0.05 for '24.0'."""
  return 0.5 * 10.0 ** -len(text.partition('.')[2])
