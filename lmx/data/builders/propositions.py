"""Propositions in columns (CoNLL-2005 and CoNLL-2012): sentences with the roles of a predicate as BIO labels.

Lines are words with annotations in columns separated by white space; an empty line ends a sentence. Each predicate has
a column with its arguments in brackets: `(A0*` begins one, `*` continues it or is outside of all, `*)` ends it and
`(A1*)` is one of a single word; the predicate itself is an argument V. No TFDS is imported here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lmx import documents
from lmx.data.builders import files
from lmx.data.builders.files import Document
from lmx.data.builders.tagged import Word
from lmx.errors import InputError

NONE = '-'  # a word that is not a target verb
_ROLE = re.compile(r'(?:\(([^()*]+))?\*(\))?')


def sentences(path: str, comment: str = '') -> Iterator[list[Word]]:
  """Yield the sentences of a file, plain or as .gz; a line that starts with `comment`, if given, ends one too.

  Raises:
    InputError: the lines of a sentence differ in their number of columns.
  """
  words: list[Word] = []
  for number, line in enumerate(documents.read_lines(path), 1):
    cells = line.split()
    if cells and not (comment and line.startswith(comment)):
      words.append((number, cells))
      if len(cells) != len(words[0][1]):
        raise InputError(
          f'{path}, line {number}: got {len(cells)} columns; expected {len(words[0][1])}, as in line {words[0][0]} of '
          'the same sentence'
        )
    elif words:
      yield words
      words = []
  if words:
    yield words


def parse_roles(path: str, words: Sequence[Word], column: int) -> list[str]:
  """Return one column of brackets as BIO labels: B-A0, I-A0, ..., O.

  Raises:
    InputError: a cell is not a bracket, or a role starts inside another, ends without a start or does not end; file,
      line and column are named.
  """
  labels: list[str] = []
  role, first = '', 0
  for number, cells in words:
    where, cell = f'{path}, line {number}, column {column + 1}: got "{cells[column]}"', cells[column]
    match = _ROLE.fullmatch(cell)
    if match is None:
      raise InputError(f'{where}; expected a role in brackets: (ROLE*, *, *) or (ROLE*)')
    begins, ends = match.groups()
    if begins and role:
      raise InputError(f'{where} inside of {role}, which begins in line {first}; expected *) before it')
    if ends and not (begins or role):
      raise InputError(f'{where}; expected a role that begins before it')
    if begins:
      role, first = begins, number
    labels.append(f'B-{role}' if begins else f'I-{role}' if role else 'O')
    role = '' if ends else role
  if role:
    raise InputError(f'{path}, line {first}, column {column + 1}: got "({role}*"; expected *) in the same sentence')
  return labels


def find_target_column(path: str) -> int:
  """Return the index of the column of target verbs of CoNLL-2005: a column of roles follows it for each verb.

  The columns between it and the word vary: the shared task's scripts put part of speech, parse, named entities and
  senses there, but not in the test sets. The column is the last one that fits all sentences.

  Raises:
    InputError: no column fits; the first line of the sentence is named.
  """
  fits: set[int] | None = None
  for words in sentences(path):
    number, cells = words[0]
    width = len(cells)
    here = {column for column in range(1, width) if width == column + 1 + len(_targets(words, column))}
    here = {column for column in here if not any('*' in word[1][column] for word in words)}
    if fits is None and not here:
      raise InputError(
        f'{path}, line {number}: got {width} columns; expected the word, other columns, the target verb ({NONE} for '
        'other words), and one column of roles for each target verb of the sentence'
      )
    if fits is not None and not fits & here:
      target = max(fits)
      count = len(_targets(words, target)) if target < width else 0
      raise InputError(
        f'{path}, line {number}: got {width} columns; expected {target + 1 + count}: {target + 1} up to the target '
        f'verbs, as in earlier sentences, and one role column for each of the {count} target verbs'
      )
    fits = here if fits is None else fits & here
  if fits is None:
    raise InputError(f'{path}: got no sentence; expected words in columns')
  return max(fits)


def _targets(words: Sequence[Word], column: int) -> list[int]:
  """Return the indices of the words with a target verb."""
  return [i for i, (_, cells) in enumerate(words) if cells[column] != NONE]


def read_2005(path: str) -> Iterator[tuple[int, list[str], list[str]]]:
  """Yield (index of the predicate, words, labels) for each target verb in a CoNLL-2005 file.

  Raises:
    InputError: also if a column's V is not at its target verb.
  """
  target = find_target_column(path)
  for words in sentences(path):
    texts = [cells[0] for _, cells in words]
    for order, predicate in enumerate(_targets(words, target)):
      column = target + 1 + order
      labels = parse_roles(path, words, column)
      if labels[predicate] not in ('B-V', 'I-V'):
        number, cells = words[predicate]
        raise InputError(
          f'{path}, line {number}, column {column + 1}: got "{cells[column]}"; expected the predicate (V*), since '
          f'"{cells[target]}" is target verb {order + 1} of the sentence'
        )
      yield predicate, texts, labels


FIRST_2012 = 11  # index of the first column of roles; the last column is coreference


def read_2012(path: str) -> Iterator[tuple[int, list[str], list[str]]]:
  """Yield (index of the predicate, words, labels) for each predicate in a CoNLL-2012 file.

  A predicate is the word where the V of a column begins. A sentence without one has no column of roles, or one of *.
  A column without a V or with two is refused, because it does not name its predicate; whether released files have such
  columns is unverified.

  Raises:
    InputError: also if a column has no V or several, or two columns have the same predicate.
  """
  for words in sentences(path, '#'):
    number, cells = words[0]
    if len(cells) <= FIRST_2012:
      raise InputError(
        f'{path}, line {number}: got {len(cells)} columns; expected at least {FIRST_2012 + 1}: {FIRST_2012} up to the '
        'named entity, one of roles for each predicate, and coreference'
      )
    columns = range(FIRST_2012, len(cells) - 1)
    if len(columns) == 1 and all(word[1][FIRST_2012] == '*' for word in words):
      continue
    texts = [word[1][3] for word in words]
    column_of: dict[int, int] = {}  # predicate -> its column
    for column in columns:
      labels = parse_roles(path, words, column)
      where = f'{path}, line {number}, column {column + 1}'
      if labels.count('B-V') != 1:
        raise InputError(f'{where}: got {labels.count("B-V")} predicates in the sentence; expected one, as (V*)')
      predicate = labels.index('B-V')
      if predicate in column_of:
        raise InputError(
          f'{path}, line {words[predicate][0]}, column {column + 1}: got a second column for the predicate '
          f'"{texts[predicate]}" of column {column_of[predicate] + 1}; expected one'
        )
      column_of[predicate] = column
      yield predicate, texts, labels


# Data sets: one document is one sentence with one of its predicates.


def conll2005(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield the sentences of CoNLL-2005, once for each target verb; test_brown is the test set out of domain."""
  del source
  return rows(split, read_2005(paths[split]))


def conll2012(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield the sentences of CoNLL-2012, from one file a split or a tree of *gold_conll files."""
  del source
  return rows(split, (row for path in files.find_tree(paths[split], files.GOLD) for row in read_2012(path)))


def rows(split: str, propositions: Iterable[tuple[int, list[str], list[str]]]) -> Iterator[Document]:
  """Yield the documents of (index of the predicate, words, labels); the label is the index, then BIO labels."""
  for number, (predicate, words, labels) in enumerate(propositions):
    yield f'{split}-{number}', ' '.join(words), ' '.join([str(predicate), *labels])
