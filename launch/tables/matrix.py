"""A table of our own as a matrix: one row a system, its columns sizes, costs and metrics."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping

from experiments.tables import METRICS, Row, Table
from launch.tables import measured
from launch.tables import plan as plans
from launch.tables.printed import GROUP, LMX, Line
from launch.tables.values import Value

NOT_RUN = 'not run'
_YEAR = 'Year'  # title of the column with the years of the systems
_NONE = '–'


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


def lines(one: Table, known: Mapping[str, Value]) -> list[Line]:
  """Return the lines of a table's matrix; `known` are the metrics by the id of their row."""
  made: list[Line] = []
  last = ''
  texts = {row.id: _text(row, known[row.id]) if row.id in known else NOT_RUN for row in one.rows}
  for row in one.matrix.rows if one.matrix else ():
    if row.group != last:
      last = row.group
      made.append(Line(GROUP, [row.group, *('' for _ in row.cells)]))
    seeds = sorted({known[cell].seeds for cell in row.cells if cell in known} - {0})
    shown = ' to '.join(map(str, sorted({*seeds[:1], *seeds[-1:]}))) or _NONE
    made.append(Line(LMX, [*(texts.get(cell, cell) for cell in row.cells), shown]))
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


def _text(row: Row, value: Value) -> str:
  """Return a metric with the standard deviation over its seeds."""
  metric, (mean, deviation, seeds, missing) = METRICS[row.metric], value
  if metric.whole:
    text = f'{mean:,.0f}'
  elif metric.key == 'training_flops':
    text = f'{mean:.2e}'
  else:
    text = f'{mean:.{metric.digits}f}' + ('' if math.isnan(deviation) else f' ± {deviation:.{metric.digits}f}')
  return text + (f' ({seeds} of {seeds + missing} seeds)' if missing else '')
