"""A table of our own as a matrix: one row a system, its columns sizes, costs and metrics."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from experiments.tables import METRICS, Row, Table
from launch.tables import collection, measured
from launch.tables import plan as plans
from launch.tables.printed import GROUP, LMX, Line

NOT_RUN = 'not run'
_YEAR = 'Year'  # title of the column with the years of the systems
_NONE = '–'


class Cell(NamedTuple):
  """Text of a metric, and its number of seeds; 0 of a run without one."""

  text: str
  seeds: int


def table(name: str) -> Table:
  """Return a table; of a study with recorded rows, these rows at their own stages and rates."""
  if not plans.is_study(name):
    return plans.table(name)
  own = f'{shlex.join(("python", "-m", "launch.tables", name))} '
  lines = [line for line in measured.by_row().values() if line.command.startswith(own)]
  options = {line.id: _options(line.command) for line in lines}
  return plans.of_rows(name, options) if options else plans.table(name)


def _options(command: str) -> str:
  return next((word.partition('=')[2] for word in shlex.split(command) if word.startswith('--options=')), '')


def lines(one: Table, cells: Mapping[str, Cell]) -> list[Line]:
  """Return the lines of a table's matrix; `cells` are the metrics by the id of their row."""
  made: list[Line] = []
  last = ''
  ids = {row.id for row in one.rows}
  for row in one.matrix.rows if one.matrix else ():
    if row.group != last:
      last = row.group
      made.append(Line(GROUP, [row.group, *('' for _ in row.cells)]))
    texts = [cells[cell].text if cell in cells else NOT_RUN if cell in ids else cell for cell in row.cells]
    seeds = sorted({cells[cell].seeds for cell in row.cells if cell in cells} - {0})
    made.append(Line(LMX, [*texts, ' to '.join(map(str, sorted({*seeds[:1], *seeds[-1:]}))) or _NONE]))
  return made


def heads(one: Table) -> list[tuple[str, bool]]:
  """Return the titles of a matrix, and whether their cells are numbers."""
  return [*one.matrix.columns, ('Seeds', True)] if one.matrix else []


def years(one: Table) -> dict[str, str]:
  """Return the year of each system of a matrix, '' of one without."""
  if not one.matrix:
    return {}
  column = [title for title, _ in one.matrix.columns].index(_YEAR)
  return {row.cells[0]: row.cells[column].strip(_NONE) for row in one.matrix.rows}


def of_results(results: Iterable[collection.RowResult]) -> dict[str, Cell]:
  """Return the metrics of runs by row."""
  found = {}
  for one in results:
    if one.seeds:
      missing = '' if one.state == collection.DONE else f' ({len(one.seeds)} of {one.expected_seeds} seeds)'
      count = 0 if one.seeds[0].seed is None else len(one.seeds)
      found[one.row.id] = Cell(_text(one.row, one.value, one.deviation) + missing, count)
  return found


def recorded(one: Table) -> dict[str, Cell]:
  """Return the metrics of measured.csv by row."""
  runs, known = {run.name: run for run in one.runs}, measured.by_row()
  return {
    row.id: Cell(
      _text(row, float(known[row.id].value), float(known[row.id].spread or math.nan)),
      known[row.id].count if runs[row.run].seeds else 0,
    )
    for row in one.rows
    if row.id in known
  }


def _text(row: Row, mean: float, deviation: float) -> str:
  """Return a metric with the standard deviation over its seeds."""
  metric = METRICS[row.metric]
  if metric.whole:
    return f'{mean:,.0f}'
  if metric.key == 'training_flops':
    return f'{mean:.2e}'
  return f'{mean:.{metric.digits}f}' + ('' if math.isnan(deviation) else f' ± {deviation:.{metric.digits}f}')
