"""Tables of examples: each row has one or two texts, and a label or score to predict.

Files are read by lmx/data/builders/cells.py: GLUE (Wang et al. 2019, arXiv 1804.07461) in its archives' layout, SNLI
(Bowman et al. 2015), SciTail (Khot et al. 2018), SWAG (Zellers et al. 2018), RACE (Lai et al. 2017), the Story Cloze
Test (Mostafazadeh et al. 2016), news, articles and reviews with their classes (Zhang et al. 2015), LAMBADA and the
Children's Book Test (see cloze.py) in their own layouts, and the user's tables.

The texts of a row with choices are a context, a question (or the start of the continuation), which may be empty, and
the choices; its label is the number of the correct one. A row of `race/joined` has no question: it is already joined to
each choice. RACE-M is `race/middle` or `race/joined_middle`, RACE-H the same with `high`.
No TFDS is imported here, so a complete token cache can be found without it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lmx import documents
from lmx.data.builders import cells, files, split_files
from lmx.data.builders.files import Table
from lmx.errors import InputError

Row = tuple[str, tuple[str, ...], str]  # id, texts, label ('' for none)


def story_cells(path: str) -> Iterator[tuple[int, cells.Cells]]:
  """Yield the rows of the Story Cloze Test: four sentences and two endings, numbered from 1."""
  for number, row in cells.read_csv(path):
    try:
      texts = {'context': ' '.join(row[f'InputSentence{i}'] for i in range(1, 5)), 'question': ''}
      texts |= {f'choice_{i}': row[f'RandomFifthSentenceQuiz{i + 1}'] for i in range(2)}
      yield number, texts | ({'label': str(int(row['AnswerRightEnding']) - 1)} if row.get('AnswerRightEnding') else {})
    except (KeyError, ValueError) as error:
      raise InputError(
        f'{path}, line {number}: got no row of the Story Cloze Test ({error}); expected its columns'
      ) from None


def race_cells(path: str) -> Iterator[tuple[int, cells.Cells]]:
  """Yield the questions of RACE: a JSON file per passage, in the folders middle and high, or in `path` itself."""
  levels = [os.path.join(path, level) for level in ('middle', 'high')]
  folders = (
    [path]
    if os.path.basename(path.rstrip(os.sep)) in ('middle', 'high')
    else [one for one in levels if os.path.isdir(one)]
  )
  names = [os.path.join(folder, name) for folder in folders for name in documents.list_names(folder)]
  number = 0
  for name in names:
    passage = documents.read_json(name)
    article = documents.field(passage, 'article', str, name)
    columns = [documents.field(passage, key, list, name) for key in ('questions', 'options', 'answers')]
    if len({*map(len, columns)}) > 1:
      raise InputError(
        f'{name}: got {" and ".join(map(str, map(len, columns)))} questions, options and answers; '
        'expected as many of each'
      )
    for question, options, answer in zip(*columns, strict=True):
      number += 1
      if answer not in ('A', 'B', 'C', 'D'):
        raise InputError(f'{name}: answers: got {documents.show(answer)}; expected A, B, C or D')
      choices = {f'choice_{i}': x for i, x in enumerate(documents.convert(options, list, f'{name}: options'))}
      yield number, {'context': article, 'question': question, 'label': str('ABCD'.index(answer)), **choices}


def race_row(row: cells.Cells, where: str) -> cells.Cells:
  """Return a row with `-` for an empty choice, and `answer_<i>`, its question with choice i.

  The choice replaces every `_` of the question, or follows it (zihangdai/xlnet, run_race.py).
  """
  cells_with_answers = dict(row)
  question = cells.text(row.get('question'), f'{where}: question')
  for name in [name for name in row if name.startswith('choice_')]:
    choice = cells.text(row[name], f'{where}: {name}') or '-'
    joined = question.replace('_', choice) if '_' in question else f'{question} {choice}'
    cells_with_answers |= {name: choice, name.replace('choice', 'answer'): joined.strip()}
  return cells_with_answers


def find(name: str, table: Table, directory: str) -> dict[str, str]:
  """Return {split: file} of a data set in `directory`. Raises InputError with the expected names."""
  if not os.path.isdir(directory):
    raise InputError(f'data.manual_dir: got {directory}; expected a directory with the files of data set {name}')
  for folder in table.folders:
    paths = {split: files.first(os.path.join(directory, folder), names) for split, names in table.files.items()}
    if paths[table.needed]:
      return {split: path for split, path in paths.items() if path}
  wanted = ' or '.join(os.path.join(folder, table.files[table.needed][0]) for folder in table.folders)
  raise InputError(f'data.manual_dir: got {directory}; expected {wanted} of data set {name} (each also as .gz)')


def own(texts: Sequence[str], label: str, scores: bool) -> Table:
  """Return a table of the user with these columns."""
  return Table(tuple((name,) for name in texts), (label,), scores=scores, is_own=True)


def find_own(pattern: str, names: str = 'words') -> dict[str, list[str]]:
  """Return {split: the user's tables}; see `split_files.find_splits` for `pattern` and `names`."""
  endings = (*split_files.with_compression(cells.ENDINGS, names), *(['.parquet'] if names == 'words' else []))
  expected = f'table; expected *.parquet, {split_files.describe(cells.ENDINGS)}'
  return split_files.find_own('table_files', pattern, endings, expected, names, files='tables', rows='rows')


def read(table: Table, path: str, split: str) -> Iterator[Row]:
  """Yield the rows in a file, in order; the second text of a pair may be empty.

  Raises:
    InputError: a column is missing, a text is empty, a label is not a class or number, or a training row has no label;
      the lines are named.
  """
  unlabelled: list[int] = []
  number = 0
  for number, row in _rows(table, path):
    where = f'{path}, line {number}'
    row = _prepare(table, row, where)
    columns = [_column(table, names, row, where) for names in table.texts]
    name = next((name for name in table.label if name in row), '')
    answer = _answer(table, row.get(name), f'{where}: {name}')
    if answer is None:
      continue
    texts = tuple(cells.text(row[column], f'{where}: {column}', strip=table.strip) for column in columns)
    empty = next((i for i, text in enumerate(texts) if not text.strip() and not (i == 1 and table.pairs)), None)
    if empty is not None:
      raise InputError(f'{where}: {columns[empty]}: got an empty cell; expected a text')
    if not answer and split == 'train':
      if not name:
        own = '; name the column of the labels by --config.data.label=' if table.is_own else ''
        raise InputError(f'{where}: got no column {" or ".join(table.label)}; it has {", ".join(row)}{own}')
      unlabelled.append(number)
    yield f'{split}-{number}', texts, answer
  if not number:
    raise InputError(f'{path}: the file has no rows')
  if unlabelled:
    raise InputError(
      f'{path}: got {len(unlabelled):,} training rows without a label '
      f'({documents.format_lines(unlabelled)}); expected a label in each; label them, or remove them'
    )


def _rows(table: Table, path: str) -> Iterator[tuple[int, cells.Cells]]:
  if table.read:
    columns = [(*table.label, *table.joined)] if table.joined else []
    yield from files.function(table.read)(path, *columns)
  else:
    yield from cells.read(path, plain=table.plain, broken=table.broken)


def _prepare(table: Table, row: cells.Cells, where: str) -> cells.Cells:
  """Return the row with the columns that the table adds; the user's rows have the joined `text` already."""
  if table.joined and table.joined[-1] in row:
    parts = [cells.text(row[name], f'{where}: {name}') for name in table.joined]
    text = '\n'.join(filter(None, parts)).replace(table.breaks, '\n').replace(r'\"', '"')
    row = row | {'text': text}
  return files.function(table.prepare)(row, where) if table.prepare else row


def _column(table: Table, names: tuple[str, ...], row: Mapping[str, Any], where: str) -> str:
  column = next((name for name in names if name in row), None)
  if column is None:
    apart = next((mark for mark in (';', '\t') if len(row) == 1 and mark in next(iter(row))), '')
    expected = ', '.join(' or '.join(each) for each in table.texts) + ', as in training' * table.is_new
    fix = '; rename them' if table.is_new else ''
    fix = '; name the columns of the texts by --config.data.texts=' if table.is_own else fix
    fix = f'; separate the columns by commas instead of {apart!r}, or use tabs in a .tsv' if apart else fix
    raise InputError(
      f'{where}: got no column "{" or ".join(names)}"; expected {expected}; it has {", ".join(row)}{fix}'
    )
  return column


def _answer(table: Table, cell: Any, where: str) -> str | None:
  """Return a row's label or score, '' for none, None if the row is skipped."""
  if table.scores:
    return cells.score(cell, where)
  label = cells.label(cell, where)
  if label in table.skipped:
    return None
  expected = table.classes or [str(choice) for choice in range(table.choices)]
  if expected and label and label not in expected:
    raise InputError(f'{where}: got "{label}"; expected one of {", ".join(expected)}')
  return table.classes.get(label, label)
