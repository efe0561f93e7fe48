"""Metrics of a table's rows, of runs or recorded: mean, standard deviation and seeds. Imports no JAX."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from experiments.tables import Table
from launch.tables import collection, measured


class Value(NamedTuple):
  """Metric of a row.

  Attributes:
    mean: mean over the seeds.
    deviation: standard deviation over the seeds, NaN of one seed.
    seeds: number of seeds, 0 of a run without one.
    missing: number of seeds that are not done.
  """

  mean: float
  deviation: float = math.nan
  seeds: int = 1
  missing: int = 0


def of_results(results: Iterable[collection.RowResult]) -> dict[str, Value]:
  """Return the metrics of runs by row."""
  found = {}
  for one in results:
    if one.seeds:
      seeds = 0 if one.seeds[0].seed is None else len(one.seeds)
      found[one.row.id] = Value(one.value, one.deviation, seeds, one.expected_seeds - len(one.seeds))
  return found


def recorded(table: Table) -> dict[str, Value]:
  """Return the metrics of measured.csv by row."""
  seeds, known = {run.name: run.seeds for run in table.runs}, measured.by_row()
  lines = [(known[row.id], seeds[row.run]) for row in table.rows if row.id in known]
  return {
    one.id: Value(float(one.value), float(one.spread or math.nan), one.count if has_seeds else 0)
    for one, has_seeds in lines
  }
