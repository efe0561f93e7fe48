"""Table of an import's tensors: one line per kind of tensor, with folded layers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lmx.errors import InputError
from lmx.interop import mapped

READ, RENAMED, UNUSED, NEW = 'read', 'renamed', 'unused', 'newly initialised'
ABSENT = ''  # file name of a zero tensor that no file has
ROUNDED = 'a constant in half precision, which lmx computes in float32'
_SHOWN = 6  # maximum number of non-consecutive layer indices that are listed


class Row(NamedTuple):
  """A tensor.

  Attributes:
    status: READ, RENAMED, UNUSED or NEW.
    name: name in the file; for a newly initialised parameter, its path in lmx.
    shape: its shape.
    dtype: its type in the file, '' if it was not read.
    note: a renamed tensor's name in transformers; why a tensor is unused.
  """

  status: str
  name: str
  shape: tuple[int, ...]
  dtype: str
  note: str = ''


def unique(
  tensors: Mapping[str, np.ndarray], rename: Callable[[str], str], names: Mapping[str, str] = {}
) -> tuple[dict[str, str], list[Row]]:
  """Rename tensors uniquely.

  Args:
    tensors: name -> array.
    rename: returns a tensor's new name.
    names: name -> name in the file, if different, for messages and rows.

  Returns:
    ({new name: name}, the rows of tensors that repeat another with the same new name).

  Raises:
    InputError: two tensors with different values get the same name.
  """
  given: dict[str, str] = {}
  unused: list[Row] = []
  for name, x in tensors.items():
    other = rename(name)
    if other not in given:
      given[other] = name
    else:
      unused.append(repeated(names.get(name, name), x, names.get(given[other], given[other]), tensors[given[other]]))
  return given, unused


def repeated(name: str, x: np.ndarray, other: str, y: np.ndarray) -> Row:
  """Return the row of a tensor that is unused because it repeats another; raise InputError if the two differ."""
  if not mapped.are_equal(x, y):
    raise InputError(
      f'tensors "{other}" and "{name}": got other values in each; expected one of the two, because both are the same '
      'parameter; remove the one that is not meant'
    )
  return Row(UNUSED, name, tuple(x.shape), x.dtype.name, f'repeats {other}')


def lines(rows: Iterable[Row]) -> list[str]:
  """Return the table: columns tensor, shape, type, size, and a last line with the totals."""
  rows = list(rows)
  table = [('', 'tensor', 'shape', 'type', 'numbers', '')]
  for status in (READ, RENAMED, UNUSED, NEW):
    for kind in _kinds([row for row in rows if row.status == status]):
      first, numbers = kind[0], sum(math.prod(row.shape) for row in kind)
      shape = 'x'.join(map(str, first.shape)) or 'scalar'
      note = _fold([row.note for row in kind])
      note = f'as {note}' if status == RENAMED else note
      count = f'{len(kind)} of ' if len(kind) > 1 else ''
      table.append((status, _fold([row.name for row in kind]), f'{count}{shape}', first.dtype, f'{numbers:,}', note))
  widths = [max(len(cells[i]) for cells in table) for i in range(5)]
  aligned = [
    f'{cells[0]:{widths[0]}}  {cells[1]:{widths[1]}}  {cells[2]:>{widths[2]}}  {cells[3]:{widths[3]}}  '
    f'{cells[4]:>{widths[4]}}  {cells[5]}'.rstrip()
    for cells in table
  ]
  return [*aligned, _total(rows)]


def _total(rows: Sequence[Row]) -> str:
  """Return the line of totals."""
  parts = []
  for status in (READ, RENAMED, UNUSED, NEW):
    some = [row for row in rows if row.status == status]
    if some:
      parts.append(f'{len(some):,} {status} ({sum(math.prod(row.shape) for row in some):,} numbers)')
  return f'total: {", ".join(parts) or "no tensors"}'


def _kinds(rows: Sequence[Row]) -> list[list[Row]]:
  """Return the rows in groups of one kind, in order of their first row.

  Rows are of one kind if their names differ in only one number, the first that differs among names that are equal
  except for numbers.
  """
  alike: dict[tuple, list[Row]] = {}
  for row in rows:
    note = re.sub(r'\d+', '#', row.note)
    alike.setdefault((re.sub(r'\d+', '#', row.name), row.shape, row.dtype, note), []).append(row)
  kinds: list[list[Row]] = []
  for some in alike.values():
    numbers = [re.findall(r'\d+', row.name) for row in some]
    varying = [i for i, column in enumerate(zip(*numbers, strict=True)) if len(set(column)) > 1]
    groups: dict[tuple, list[Row]] = {}
    for row, own in zip(some, numbers, strict=True):
      groups.setdefault(tuple(n for i, n in enumerate(own) if i not in varying[:1]), []).append(row)
    kinds += groups.values()
  return kinds


def _fold(names: Sequence[str]) -> str:
  """Fold names that differ in one number into one, with the numbers in braces."""
  parts = [re.split(r'(\d+)', name) for name in names]
  if len({len(one) for one in parts}) > 1:
    return names[0]
  columns = zip(*parts, strict=True)
  return ''.join(column[0] if len(set(column)) == 1 else f'{{{_range(column)}}}' for column in columns)


def _range(numbers: Sequence[str]) -> str:
  """Return numbers as '0..11', or as a list."""
  ordered = sorted(dict.fromkeys(numbers), key=int)
  if [int(n) for n in ordered] == list(range(int(ordered[0]), int(ordered[0]) + len(ordered))) and len(ordered) > 2:
    return f'{ordered[0]}..{ordered[-1]}'
  return ','.join(ordered) if len(ordered) <= _SHOWN else f'{ordered[0]},{ordered[1]}..{ordered[-1]}'
