"""Tables in the paper's layout: its rows and columns, in its order, and the role of each figure.

A figure is read from a run of lmx or follows from such figures, is of another system that the paper quotes, or of the
paper's own system that no run of lmx gives.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from experiments.tables import Table
from launch.tables import plan as plans
from lmx.errors import InputError

MEASURED, CONTEXT, UNMEASURED = 'measured', 'context', 'unmeasured'
OURS = '→ lmx'  # label of the line below a printed row
PARAMETERS = '#Params'
SINGLE, ENSEMBLES, AVERAGED = 'Single models', 'Ensembles', 'Model averaging'
_GROUPS = {AVERAGED: 'model averaging', ENSEMBLES: 'ensemble', SINGLE: 'single'}  # by words of label and protocol
_TASK = 'Task'  # head of the labels of a table of tasks
_INCREASES = (' increase', 'relative error reduction %')  # ends of metrics
_Column = tuple[str, str, str]  # data set, split, metric


class BlockRow(NamedTuple):
  """Row of a block: its label, the id of each column's figure ('' for an empty cell), and remarks on them, if any."""

  label: str
  ids: tuple[str, ...]
  remarks: tuple[str, ...] = ()

  @property
  def parameters(self) -> str:
    """Size that the paper prints in the row, '' without one."""
    lines = [plans.published()[key] for key in self.ids if key]
    return ' / '.join(dict.fromkeys(line.parameters for line in lines if line.parameters))

  @property
  def group(self) -> str:
    """SINGLE, ENSEMBLES or AVERAGED if the label or the protocol says so, else ''."""
    lines = [plans.published()[key] for key in self.ids if key]
    text = ' '.join([self.label, *(line.protocol for line in lines)]).lower()
    return next((name for name, word in _GROUPS.items() if word in text), '')


class Block(NamedTuple):
  """Part of a printed table whose rows share columns: its caption, the head of its labels, and of its columns."""

  caption: str
  label: str
  columns: tuple[str, ...]
  rows: tuple[BlockRow, ...]

  @property
  def has_parameters(self) -> bool:
    """Return whether the table has a column of sizes besides its figures."""
    metrics = {plans.published()[key].metric for row in self.rows for key in row.ids if key}
    return any(row.parameters for row in self.rows) and not any(text.startswith('parameters') for text in metrics)

  @property
  def heads(self) -> tuple[str, ...]:
    """Heads of all columns: label, sizes if there are any, figures."""
    return (self.label, *((PARAMETERS,) if self.has_parameters else ()), *self.columns)

  @property
  def groups(self) -> list[str]:
    """Heading of each row that begins the single models or the ensembles of the paper, '' for the others."""
    names = [row.group for row in self.rows]
    if AVERAGED in names:
      names = [name or SINGLE for name in names]
    starts = [name if i == 0 or name != names[i - 1] else '' for i, name in enumerate(names)]
    parts = [name for name in starts if name]
    return starts if 2 <= len(parts) <= 3 and '' not in names and len(set(parts)) > 1 else [''] * len(names)


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
  rows = {row.id for row in table.rows} | {one.id for one in table.computed}
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
  return _with_increases(made)


def _with_increases(made: list[Block]) -> list[Block]:
  """Return the blocks with increases, which are a row of all tasks, as columns of the table of tasks."""
  tasks = next((block for block in made if block.label == _TASK), None)
  listed = next((block for block in made if _are_increases(block)), None)
  if not tasks or not listed:
    return made
  lines = plans.published()
  found: dict[tuple[str, str], list[str]] = {}
  for key in listed.rows[0].ids:
    found.setdefault((lines[key].dataset, lines[key].split), []).append(key)
  rows = []
  for row in tasks.rows:
    first = lines[row.ids[0]]
    more = tuple(found[first.dataset, first.split])
    rows.append(row._replace(ids=(*row.ids, *more), remarks=(*row.remarks, *('' for _ in more))))
  columns = (*tasks.columns, 'increase, absolute', 'increase, relative, %')
  joined = tasks._replace(columns=columns, rows=tuple(rows))
  return [joined if block is tasks else block for block in made if block is not listed]


def _are_increases(block: Block) -> bool:
  metrics = [plans.published()[key].metric for row in block.rows for key in row.ids if key]
  return len(block.rows) == 1 and all(metric.endswith(_INCREASES) for metric in metrics)


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
    known = letters(dataset) in letters(label)
    made.append(BlockRow(label if known else _join(label, dataset, split), tuple(cells.values())))
  return Block('', '', tuple(metric for *_, metric in _columns(parts[0])), tuple(made))


def letters(text: str) -> str:
  """Return the letters and digits of a text in lower case, by which labels are compared."""
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
  return Block('', _TASK, tuple(_prefixes(parts[0])), tuple(rows))


def _join(*texts: str) -> str:
  return ', '.join(text for text in texts if text)


class Shown(NamedTuple):
  """Parts shown with printed figures, by id: the role, the text of lmx's figure, and the mark of a footnote."""

  role: Mapping[str, str]
  ours: Mapping[str, str]
  marks: Mapping[str, str]


class Line(NamedTuple):
  """Line of a rendered table: GROUP (a heading), PAPER, CONTEXT or LMX, and its cells, label first."""

  kind: str
  cells: list[str]


GROUP, PAPER, LMX = 'group', 'paper', 'lmx'


def lines_of(block: Block, shown: Shown) -> list[Line]:
  """Return the lines of a block: printed rows, each with lmx's line below unless it is of other systems only."""
  lines: list[Line] = []
  for row, group in zip(block.rows, block.groups, strict=True):
    if group:
      lines.append(Line(GROUP, [group, *('' for _ in block.heads[1:])]))
    lines += _lines(row, shown, block.has_parameters)
  return lines


def _lines(row: BlockRow, shown: Shown, has_parameters: bool) -> list[Line]:
  kinds = [shown.role.get(key, CONTEXT) if key else '' for key in row.ids]
  remarks = row.remarks or ('',) * len(row.ids)
  size = [row.parameters] if has_parameters else []
  paper = [*size, *(_paper(key, remark) for key, remark in zip(row.ids, remarks, strict=True))]
  if set(kinds) <= {CONTEXT, ''}:
    return [Line(CONTEXT, [f'{row.label} (context)', *paper])]
  ours = [_ours(key, kind, shown) for key, kind in zip(row.ids, kinds, strict=True)]
  return [Line(PAPER, [row.label, *paper]), Line(LMX, [OURS, *('' for _ in size), *ours])]


def figure(line: plans.Printed, text: str = '') -> str:
  """Return a printed figure with its spread: '93.5 ± 0.10', and powers of ten as printed."""
  spread = f' ± {line.spread_text}' if line.spread_text else ''
  power = _POWER.fullmatch(line.text)
  shown = f'{power[1]}·10{power[2].translate(_SUPERSCRIPTS)}' if power else text or line.text
  return shown + spread + ('' if line.verified else ' (not checked)')


_POWER = re.compile(r'([\d.]+)e(\d+)')
_SUPERSCRIPTS = str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹')


def _paper(key: str, remark: str) -> str:
  return figure(plans.published()[key]) + (f' ({remark})' if remark else '') if key else ''


def _ours(key: str, kind: str, shown: Shown) -> str:
  if kind in ('', CONTEXT):
    return ''
  text = shown.ours.get(key, 'not run') if kind == MEASURED else '–'
  return f'{text} {shown.marks[key]}' if key in shown.marks else text
