"""Files of texts to score: .txt (a text per line), .jsonl, .tsv and .csv, also compressed; one row out per row in."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lmx import documents
from lmx.data.builders import cells
from lmx.errors import InputError, nearest

if TYPE_CHECKING:  # imports JAX
  from lmx.scoring.sentences import Score

ENDINGS = ('.txt', '.jsonl', '.tsv', '.csv')
FORMATS = ('.jsonl', '.tsv')  # of the output
UNITS = ('sentence', 'word', 'token')
TEXT = 'text'
_WRITTEN = {
  'sentence': ('tokens', 'sum', 'per_token', 'per_word', 'per_byte', 'unknown'),
  'word': ('row', 'position', 'word', 'surprisal'),
  'token': ('row', 'position', 'token', 'surprisal'),
}
_NESTED = {'word': 'words', 'token': 'token_scores'}  # columns of .jsonl
_DIGITS = 6  # of scores after the point; float32 has no more


class Texts(NamedTuple):
  """Texts of a file.

  Attributes:
    texts: the texts.
    rows: all columns of each row, the text included.
    numbers: line of each row.
  """

  texts: list[str]
  rows: list[Mapping[str, Any]]
  numbers: list[int]


def read(path: str, column: str = '') -> Texts:
  """Return the texts of a file, as they are written, with the other columns.

  Args:
    path: the file.
    column: column of the texts, '' for 'text'.

  Raises:
    InputError: the file cannot be read, has no rows or no such column, or a text is empty; the line is named.
  """
  kind = documents.ending(path)
  if kind not in ENDINGS:
    raise InputError(f'--input: got {path}; expected a name that ends in {", ".join(ENDINGS)}, also compressed')
  if kind == '.txt':
    if column:
      raise InputError(f'--column: got {column} with {path}, which has no columns; omit it')
    rows = [(number, {TEXT: line}) for number, line in documents.read_rows(path)]
  else:
    rows = list(cells.read(path))
  if not rows:
    raise InputError(f'{path}: got no rows; expected at least one')
  name = column or TEXT
  texts = [_text(row, name, f'{path}, line {number}', given=bool(column)) for number, row in rows]
  if kind == '.tsv':
    _check_gaps(path, rows)
  return Texts(texts, [row for _, row in rows], [number for number, _ in rows])


def _text(row: Mapping[str, Any], name: str, where: str, *, given: bool) -> str:
  if name not in row:
    hint = '' if given else '; name the column of the texts by --column='
    raise InputError(f'{where}: got no column "{name}"{nearest(name, map(str, row))}{hint}')
  text = documents.convert(row[name], str, f'{where}: {name}')
  if not text.strip():
    raise InputError(f'{where}: {name}: got an empty text; expected at least one word; remove the line')
  return text


def _check_gaps(path: str, rows: Sequence[tuple[int, Any]]) -> None:
  """Raise InputError for a blank line in a table of one column, where it is an empty text."""
  for (before, row), (number, _) in itertools.pairwise(rows):
    if len(row) == 1 and number > before + 1:
      raise InputError(f'{path}, line {before + 1}: got an empty text; expected at least one word; remove the line')


def check_columns(path: str, read: Texts, by: str, form: str) -> None:
  """Raise InputError if a column of the input is one that is written, or a cell does not fit in a .tsv file."""
  names = {name: None for row in read.rows for name in row}
  written = _WRITTEN[by]
  if form == '.jsonl':
    written = (*_WRITTEN['sentence'], *(nested for unit, nested in _NESTED.items() if unit == by))
  for name in written:
    if name in names:
      raise InputError(f'{path}: got a column "{name}", which lmx score writes; expected another name; rename it')
  if form != '.tsv':
    return
  for row, number in zip(read.rows, read.numbers, strict=True):
    for name, value in row.items():
      if {'\t', '\n', '\r'} & {*name, *_cell(value)}:
        raise InputError(
          f'{path}, line {number}: {name}: got a tab or a line end, which a .tsv cannot hold; expected none; write a '
          '.jsonl file'
        )


def lines(rows: Iterable[Mapping[str, Any]], scores: Iterable[Score], by: str, probability: bool) -> Iterator[str]:
  """Yield a JSON line for each row with its score.

  Args:
    rows: columns of each row.
    scores: score of each row.
    by: one of UNITS: what else has its score.
    probability: exp of a sum is a probability, so `per_byte` has a meaning.
  """
  for row, score in zip(rows, scores, strict=True):
    record = {**row, **_columns(score, probability)}
    if by != 'sentence':
      record[_NESTED[by]] = [{by: name, 'surprisal': _round(value)} for name, value in _parts(score, by)]
    yield json.dumps(record, ensure_ascii=False) + '\n'


def tsv_lines(rows: Sequence[Mapping[str, Any]], scores: Iterable[Score], by: str, probability: bool) -> Iterator[str]:
  """Yield the lines of a table: a row for each text, or for each of its words or tokens with the number of its row."""
  names = list({name: None for row in rows for name in row})
  written = [name for name in _WRITTEN[by] if probability or name != 'per_byte']
  yield '\t'.join([*names, *written]) + '\n'
  for number, (row, score) in enumerate(zip(rows, scores, strict=True), 1):
    begin = [_cell(row.get(name)) for name in names]
    if by == 'sentence':
      values = [list(_columns(score, probability).values())]
    else:
      values = [[number, i, name, _round(value)] for i, (name, value) in enumerate(_parts(score, by), 1)]
    for each in values:
      yield '\t'.join([*begin, *map(_cell, each)]) + '\n'


def _columns(score: Score, probability: bool) -> dict[str, Any]:
  """Return the scores of a text; the mean per byte includes the spelling of unknown words."""
  assert score.unknown is not None
  predicted, whole = score.predicted, score.predicted == len(score.tokens)
  columns: dict[str, Any] = {
    'tokens': predicted,
    'sum': _round(score.sum),
    'per_token': _round(score.sum / predicted if predicted else None),
    'per_word': _round(score.sum / len(score.text.split())),
  }
  if probability:
    spelled = score.sum - score.unknown.nats
    columns['per_byte'] = _round(spelled / len(score.text.encode()) if whole else None)
  return columns | {'unknown': score.unknown.words}


def _parts(score: Score, by: str) -> list[tuple[str, float | None]]:
  """Return (word or token, surprisal in nats; None if it is not predicted)."""
  if by == 'word':
    return [*(score.words or ())]
  values = (None if value != value else -value for value in score.log_p_T.tolist())
  return list(zip(score.tokens, values, strict=True))


def _round(value: float | None) -> float | None:
  return None if value is None else round(value, _DIGITS)


def _cell(value: Any) -> str:
  if value is None:
    return ''
  return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
