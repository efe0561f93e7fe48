"""Figures that follow from other figures of their table, such as the mean of the columns or the gain of a system.

The paper's rule is applied to lmx's metrics of the same rows before they are rounded; recorded ones are rounded.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from experiments.tables import Computed
from launch.tables import collection, measured, verdict
from launch.tables import plan as plans


class Figure(NamedTuple):
  """Computed figure: its text, and the verdict on it."""

  text: str
  verdict: verdict.Verdict


class _Part(NamedTuple):
  """Metric that a figure is computed from, and why it is not comparable, '' if it is."""

  value: float
  differs: str


def figures(results: Iterable[collection.RowResult] = ()) -> dict[str, Figure]:
  """Return each computed figure of all tables whose parts are measured; finished `results` replace recorded ones."""
  parts = {key: _Part(float(one.value), one.differs) for key, one in measured.by_row().items()}
  live = [one for one in results if one.state == collection.DONE and one.seeds]
  parts |= {one.row.id: _Part(one.value, one.row.differs) for one in live}
  found = ((one, _figure(one, parts)) for name in plans.names() for one in plans.table(name).computed)
  return {one.id: figure for one, figure in found if figure}


def _figure(one: Computed, parts: Mapping[str, _Part]) -> Figure | None:
  needed = [key for group in one.of for key in group]
  if not all(key in parts for key in needed):
    return None
  printed = plans.published()[one.id]
  value = apply(one, {key: parts[key].value for key in needed})
  differs = next((parts[key].differs for key in needed if parts[key].differs), '')
  text = f'{value:.{len(printed.text.partition(".")[2])}f} (computed)'
  return Figure(text, verdict.of_computed(value, printed, len(needed), differs))


def apply(one: Computed, values: Mapping[str, float]) -> float:
  """Return a figure by its rule from the metrics in `values`."""
  means = [statistics.fmean(values[key] for key in group) for group in one.of]
  if one.metric == 'average':
    return statistics.fmean(means)
  before, after = means
  return after - before if one.metric == 'increase' else 100 * (after - before) / (100 - before)
