"""Rows of tables as cells of named columns: .tsv (unquoted), .csv (RFC 4180), .jsonl, also compressed, and .parquet.

Lines with only white space are skipped. A cell of .jsonl is any JSON value, one of .parquet a text,
number or truth value, other cells are strings; `text` and `label`
read both. No TFDS is imported here, so a complete token cache can be found without it.
"""

from __future__ import annotations

import csv
import json
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from lmx import documents
from lmx.data.builders import parquet
from lmx.errors import InputError, InputWarning

Cells = dict[str, Any]  # column -> cell
ENDINGS = ('.tsv', '.csv', '.jsonl')
_CELL = documents.LONGEST // 4  # characters of 4 bytes; Python's csv limits a cell to 131,072 by default
_LINES = re.compile(r'[^\r]*\r|[^\r]+')


def read(path: str, *, plain: Sequence[str] = (), broken: bool = False) -> Iterator[tuple[int, Cells]]:
  """Yield (line number, cells) for each table row, by file suffix (others are read as .tsv).

  Args:
    path: the file.
    plain: column names of a .tsv without a header, recognised by its number of cells.
    broken: skip .tsv records that break over lines, with a warning that counts and names them.

  Raises:
    InputError: the file is damaged, or a row's number of cells differs from the first line's; the line is named.
  """
  kind = documents.ending(path)[1:]
  if kind == 'csv':
    yield from read_csv(path)
  elif kind == 'jsonl':
    for number, row in documents.read_json_lines(path):
      if not isinstance(row, dict):
        raise InputError(f'{path}, line {number}: got {documents.show(row)}; expected a JSON object')
      yield number, row
  elif kind == 'parquet':
    with parquet.open_file(path) as source:
      yield from parquet.rows(source, path, parquet.columns(source))
  else:
    yield from _read_tsv(path, plain, broken)


def read_csv(path: str, plain: Sequence[str] = ()) -> Iterator[tuple[int, Cells]]:
  """Yield (line number, cells) for each row of a .csv file. Raises InputError as `read` does.

  Args:
    path: the file.
    plain: column names of a file whose rows begin with a number; a header is skipped.
  """
  names = plain
  for index, (number, cells) in enumerate(_csv_records(path)):
    if index == 0 and not (plain and cells[0].strip().isdecimal()):
      names = plain or _names(cells, path, number)
    else:
      yield number, _row(names, cells, path, number, _hint(cells))


def _csv_records(path: str) -> Iterator[tuple[int, list[str]]]:
  """Yield (line number, cells) for each record of a .csv file.

  Text after a closing quote belongs to its cell if the record is one line (`"hi" he said` is `hi he said`, as in
  Python's csv and pandas). In a record of several lines it is an error: an earlier quote was left open.
  """
  csv.field_size_limit(_CELL)
  lines = (part for line in documents.read_lines(path) for part in _LINES.findall(line))
  last = ['']  # the last line read

  def record_last() -> Iterator[str]:
    for last[0] in lines:
      yield last[0]

  reader = csv.reader(record_last(), strict=True)
  while True:
    begin = reader.line_num + 1
    try:
      cells = next(reader)
    except StopIteration:
      return
    except csv.Error as error:
      is_long = 'field limit' in str(error)
      cells = next(csv.reader(last)) if reader.line_num == begin and not is_long else []
      if not cells or cells[-1].endswith(('\n', '\r')):  # the last cell continues after the line
        after = f'has text after its closing quote in line {reader.line_num}'
        wrong = 'is not closed' if 'end of data' in str(error) else after
        if is_long:
          wrong = f'has more than {_CELL:,} characters'
        raise InputError(
          f'{path}, line {begin}: a quoted cell begins here and {wrong}; close it before the comma or the line end, '
          'and write a quote within it twice'
        ) from None
    if reader.line_num > begin or last[0].strip():
      yield begin, cells


def _hint(cells: Sequence[str]) -> str:
  """Return a hint for a row of a .csv file that has too few or too many cells."""
  spaced = any(cell[:1] == ' ' and cell.lstrip().startswith('"') for cell in cells)
  return '; a quote after a space does not quote the cell: delete the space before it' if spaced else ''


def _read_tsv(path: str, plain: Sequence[str], broken: bool) -> Iterator[tuple[int, Cells]]:
  names: Sequence[str] = ()
  skipped: list[int] = []  # first line of each broken record
  pending = 0  # cells of the broken record so far
  for number, line in enumerate(documents.read_lines(path), 1):
    if not line.strip():
      continue
    cells = line.rstrip('\n').split('\t')
    if not names:
      named = len(cells) != len(plain) or any(name in cells for name in plain)
      names = _names(cells, path, number) if named else plain
      if named:
        continue
    if broken and len(cells) != len(names):
      skipped += [] if pending else [number]
      pending = (pending + len(cells) - 1 if pending else len(cells)) % len(names)
    else:
      pending = 0
      yield number, _row(names, cells, path, number)
  if skipped:
    records = 'record that breaks over lines is' if len(skipped) == 1 else 'records that break over lines are'
    note = f'{path}: {len(skipped):,} {records} skipped ({documents.format_lines(skipped)})'
    warnings.warn(note, InputWarning, stacklevel=2)


def _names(cells: Sequence[str], path: str, number: int) -> list[str]:
  names = [cell.strip() for cell in cells]
  twice = [name for name in names if name and names.count(name) > 1]
  if twice:
    raise InputError(f'{path}, line {number}: got two columns named "{twice[0]}"; expected different names; rename one')
  return names


def _row(names: Sequence[str], cells: Sequence[str], path: str, number: int, hint: str = '') -> Cells:
  if len(cells) != len(names):
    raise InputError(f'{path}, line {number}: got {len(cells)} cells; expected {len(names)}{hint}')
  return dict(zip(names, cells, strict=True))


def text(value: Any, where: str, *, strip: bool = True) -> str:
  """Return a cell as text, '' for null and NaN.

  Args:
    value: the cell.
    where: file, line and column, for messages.
    strip: strip white space.

  Raises:
    InputError: the cell is a list, an object or an infinite number.
  """
  if value is None or value != value:
    return ''
  if isinstance(value, (list, dict)) or isinstance(value, float) and math.isinf(value):
    raise InputError(f'{where}: got {documents.show(value)}; expected a text')
  if not isinstance(value, str):
    return json.dumps(value)
  return value.strip() if strip else value


def label(value: Any, where: str) -> str:
  """Return a cell as a label name (`documents.label_name`), '' for no label. Raises InputError as `text` does."""
  return documents.label_name(value) if text(value, where) else ''


def score(value: Any, where: str) -> str:
  """Return a cell as the text of a number, '' for no score. Raises InputError as `text` and `documents.parse_number`
  do.
  """
  cell = text(value, where)
  return repr(documents.parse_number(cell, where)) if cell else ''
