"""Tables in the paper's layout: its rows and columns, in its order, and the role of each figure.

A figure is read from a run of lmx, or of another system that the paper quotes, or of the paper's own system that no run
of lmx gives.
"""

from __future__ import annotations

import fnmatch

from experiments.tables import Table
from launch.tables import plan as plans
from lmx.errors import InputError

MEASURED, CONTEXT, UNMEASURED = 'measured', 'context', 'unmeasured'


def figures(table: Table) -> list[str]:
  """Return the ids of all figures of the tables that `table` prints, in the order of published.csv."""
  return [key for key, line in plans.published().items() if (line.paper, line.table) in table.prints]


def roles(table: Table) -> dict[str, str]:
  """Return the role of each printed figure by id: MEASURED, CONTEXT or UNMEASURED.

  Raises:
    InputError: a figure has no role or two, a pattern fits none, or published.csv lacks one of the tables.
  """
  rows = {row.id for row in table.rows}
  patterns = [*((text, CONTEXT) for text in table.context), *((one.ids, UNMEASURED) for one in table.unmeasured)]
  fitted: set[str] = set()
  role: dict[str, str] = {}
  for key in figures(table):
    fits = [(text, name) for text, name in patterns if fnmatch.fnmatchcase(key, text)]
    fitted |= {text for text, _ in fits}
    names = {name for _, name in fits} | ({MEASURED} if key in rows else set())
    if len(names) != 1:
      raise InputError(
        f'{key}: expected a row, a pattern of context or one of unmeasured, got {sorted(names) or "none"}'
      )
    role[key] = names.pop()
  for text, _ in patterns:
    if text not in fitted:
      raise InputError(f'pattern "{text}" fits no printed figure')
  known = {(line.paper, line.table) for line in plans.published().values()}
  for printed in table.prints:
    if printed not in known:
      raise InputError(f'published.csv has no table {printed}')
  return role
