"""A table of our own as a matrix: one row a system, its columns sizes, costs and metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from experiments.tables import METRICS, Table
from launch.tables import collection, measured
from launch.tables.printed import GROUP, LMX, Line

NOT_RUN = 'not run'


def lines(table: Table, texts: Mapping[str, str]) -> list[Line]:
  """Return the lines of a table's matrix; `texts` are the metrics by the id of their row."""
  made: list[Line] = []
  last = ''
  ids = {row.id for row in table.rows}
  for row in table.matrix.rows if table.matrix else ():
    if row.group != last:
      last = row.group
      made.append(Line(GROUP, [row.group, *('' for _ in row.cells[1:])]))
    made.append(Line(LMX, [texts.get(cell, NOT_RUN) if cell in ids else cell for cell in row.cells]))
  return made


def heads(table: Table) -> list[tuple[str, bool]]:
  """Return the titles of a matrix, and whether their cells are numbers."""
  return list(table.matrix.columns) if table.matrix else []


def of_results(results: Iterable[collection.RowResult]) -> dict[str, str]:
  """Return the metrics of runs by row, with the standard deviation over seeds."""
  return {one.row.id: _text(one) for one in results if one.seeds}


def recorded() -> dict[str, str]:
  """Return the metrics of measured.csv by row."""
  return {key: measured.text(one) for key, one in measured.by_row().items()}


def _text(one: collection.RowResult) -> str:
  metric, mean = METRICS[one.row.metric], one.value
  if metric.whole:
    return f'{mean:,.0f}'
  if metric.key == 'training_flops':
    return f'{mean:.2e}'
  digits = 3 if metric.band < 0.1 else 2
  spread = '' if math.isnan(one.deviation) else f' ± {one.deviation:.{digits}f}'
  missing = '' if one.state == collection.DONE else f' ({len(one.seeds)} of {one.expected_seeds} seeds)'
  return f'{mean:.{digits}f}{spread}{missing}'
