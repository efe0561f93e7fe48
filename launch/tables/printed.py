"""Tables in the paper's layout: its rows and columns, in its order, and the role of each figure.

A figure is read from a run of lmx, or of another system that the paper quotes, or of the paper's own system that no run
of lmx gives.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from experiments.tables import Table
from launch.tables import plan as plans
from lmx.errors import InputError

MEASURED, CONTEXT, UNMEASURED = 'measured', 'context', 'unmeasured'
OURS = '→ lmx'  # label of the line below a printed row
_Column = tuple[str, str, str]  # data set, split, metric


class BlockRow(NamedTuple):
  """Row of a block: its label, the id of each column's figure ('' for an empty cell), and remarks on them, if any."""

  label: str
  ids: tuple[str, ...]
  remarks: tuple[str, ...] = ()


class Block(NamedTuple):
  """Part of a printed table whose rows share columns: its caption, the head of its labels, and of its columns."""

  caption: str
  label: str
  columns: tuple[str, ...]
  rows: tuple[BlockRow, ...]


def figures(table: Table) -> list[str]:
  """Return the ids of all figures of the tables that `table` prints, in the order of published.csv."""
  return [key for place in table.prints for key in figures_of(place)]


def figures_of(place: tuple[str, str]) -> list[str]:
  """Return the ids of the figures of (paper, table)."""
  return [key for key, line in plans.published().items() if (line.paper, line.table) == place]


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
      raise InputError(f'{key}: expected one of a row, context and unmeasured, got {sorted(names) or "none"}')
    role[key] = names.pop()
  for text, _ in patterns:
    if text not in fitted:
      raise InputError(f'pattern "{text}" fits no printed figure')
  for place in table.prints:
    if not figures_of(place):
      raise InputError(f'published.csv has no table {place}')
  return role


def reason(table: Table, key: str) -> str:
  """Return why no run gives the figure `key`; '' if one does or it is of another system."""
  return next((one.reason for one in table.unmeasured if fnmatch.fnmatchcase(key, one.ids)), '')


def blocks(ids: Iterable[str]) -> list[Block]:
  """Return figures as the paper prints them.

  Neighbouring figures with one label are a row. Rows that share columns, also through other rows, are a block. Blocks
  of one row each with the same metrics become one block, and so do blocks of one column each with the same labels, as
  in a table of tasks. A block whose labels are all combinations 'ROW, COLUMN' has these rows and columns.
  """
  parts = _connected(_rows(ids))
  if len(parts) > 1 and all(len(part) == 1 for part in parts):
    if len({tuple(metric for *_, metric in _columns(part)) for part in parts}) == 1:
      return [_joined(parts)]
    if all(len(_columns(part)) == 1 for part in parts):
      return [_listed(parts)]
  made: list[Block] = []
  while parts:
    first = _prefixes(parts[0])
    same = [part for part in parts if len(_columns(part)) == 1 and _prefixes(part) == first]
    if len(same) < 2 or len(first) < 2:
      same = parts[:1]
    made.append(_transposed(same) if len(same) > 1 else _block(same[0]))
    parts = [part for part in parts if part not in same]
  return made


_Row = tuple[str, dict[_Column, str]]


def _rows(ids: Iterable[str]) -> list[_Row]:
  rows: list[_Row] = []
  for key in ids:
    line = plans.published()[key]
    column = (line.dataset, line.split, line.metric)
    if not rows or rows[-1][0] != line.row or column in rows[-1][1]:
      rows.append((line.row, {}))
    rows[-1][1][column] = key
  return rows


def _connected(rows: list[_Row]) -> list[list[_Row]]:
  """Return the rows in groups without a common column, each in order."""
  groups: list[tuple[set[_Column], list[int]]] = []
  for number, (_, cells) in enumerate(rows):
    columns, numbers = set(cells), [number]
    for group in [group for group in groups if group[0] & columns]:
      groups.remove(group)
      columns |= group[0]
      numbers += group[1]
    groups.append((columns, sorted(numbers)))
  return [[rows[number] for number in numbers] for _, numbers in sorted(groups, key=lambda group: group[1][0])]


def _columns(rows: list[_Row]) -> list[_Column]:
  """Return the columns in the order of the fullest row."""
  fullest_first = sorted(rows, key=lambda row: -len(row[1]))
  return list(dict.fromkeys(column for _, cells in fullest_first for column in cells))


def _prefixes(rows: list[_Row]) -> list[str]:
  """Return the labels without what follows a colon, the system of one cell."""
  return [label.partition(': ')[0] for label, _ in rows]


def _block(rows: list[_Row]) -> Block:
  columns = _columns(rows)
  if len(columns) == 1 and (matrix := _matrix(rows)):
    return Block(_join(*columns[0]), '', *matrix)
  differ = [len({column[i] for column in columns}) > 1 or (len(columns) == 1 and i == 2) for i in range(3)]
  heads = tuple(
    ', '.join(part for part, shown in zip(column, differ, strict=True) if shown and part) for column in columns
  )
  common = ', '.join(part for part, shown in zip(columns[0], differ, strict=True) if not shown and part)
  made = (BlockRow(label, tuple(cells.get(column, '') for column in columns)) for label, cells in rows)
  return Block(common, '', heads, tuple(made))


def _matrix(rows: list[_Row]) -> tuple[tuple[str, ...], tuple[BlockRow, ...]] | None:
  """Return the columns and rows of figures whose labels 'ROW, COLUMN' have all combinations; None if they have not."""
  ids = {tuple(label.rsplit(', ', 1)): key for label, cells in rows for key in cells.values()}
  if any(len(parts) == 1 for parts in ids):
    return None
  labels, heads = (tuple(dict.fromkeys(part)) for part in zip(*ids, strict=True))
  if min(len(labels), len(heads)) < 2 or not len(labels) * len(heads) == len(rows) == len(ids):
    return None
  return heads, tuple(BlockRow(label, tuple(ids[label, head] for head in heads)) for label in labels)


def _joined(parts: list[list[_Row]]) -> Block:
  """Return blocks of one row with the same metrics as one, the data sets in the labels."""
  made = []
  for [(label, cells)] in parts:
    dataset, split, _ = next(iter(cells))
    known = _letters(dataset) in _letters(label)
    made.append(BlockRow(label if known else _join(label, dataset, split), tuple(cells.values())))
  return Block('', '', tuple(metric for *_, metric in _columns(parts[0])), tuple(made))


def _letters(text: str) -> str:
  return ''.join(letter for letter in text.lower() if letter.isalnum())


def _listed(parts: list[list[_Row]]) -> Block:
  """Return figures that have nothing in common as a list."""
  rows = (BlockRow(_join(label, *column), (key,)) for [(label, cells)] in parts for column, key in cells.items())
  return Block('', '', ('figure',), tuple(rows))


def _transposed(parts: list[list[_Row]]) -> Block:
  rows = []
  for part in parts:
    ids = tuple(key for _, cells in part for key in cells.values())
    rows.append(BlockRow(_join(*_columns(part)[0]), ids, tuple(label.partition(': ')[2] for label, _ in part)))
  return Block('', 'Task', tuple(_prefixes(parts[0])), tuple(rows))


def _join(*texts: str) -> str:
  return ', '.join(text for text in texts if text)


class Shown(NamedTuple):
  """Parts shown with printed figures, by id: the role, the text of lmx's figure, and the mark of a footnote."""

  role: Mapping[str, str]
  ours: Mapping[str, str]
  marks: Mapping[str, str]


def cells_of(row: BlockRow, shown: Shown) -> list[list[str]]:
  """Return the cells of a printed row, label first, and those of lmx below it unless it is of other systems alone."""
  kinds = [shown.role.get(key, CONTEXT) if key else '' for key in row.ids]
  remarks = row.remarks or ('',) * len(row.ids)
  paper = [_paper(key, remark) for key, remark in zip(row.ids, remarks, strict=True)]
  if set(kinds) <= {CONTEXT, ''}:
    return [[f'{row.label} (context)', *paper]]
  return [[row.label, *paper], [OURS, *(_ours(key, kind, shown) for key, kind in zip(row.ids, kinds, strict=True))]]


def _paper(key: str, remark: str) -> str:
  if not key:
    return ''
  line = plans.published()[key]
  spread = '' if math.isnan(line.spread) else f' ± {line.spread:g}'
  return line.text + spread + ('' if line.verified else ' (not checked)') + (f' ({remark})' if remark else '')


def _ours(key: str, kind: str, shown: Shown) -> str:
  if kind in ('', CONTEXT):
    return ''
  text = shown.ours.get(key, 'not run') if kind == MEASURED else '–'
  return f'{text} {shown.marks[key]}' if key in shown.marks else text
