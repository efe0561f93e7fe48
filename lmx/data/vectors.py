"""Reader of pre-trained word vectors in text files: `data.vectors`, `train.init_from` and `lmx vectors`.

  GloVe      `the 0.418 0.24968 ...`, one word per line; words may contain spaces, as in glove.840B
  word2vec   the same below a line with the number of words and their width, also fastText's .vec and `lmx vectors
             --export`
  Senna      embeddings.txt has the vectors and words.lst the words (Collobert et al. 2011, arXiv 1103.0398). The path
             is their directory, the release's (embeddings/embeddings.txt, hash/words.lst), or embeddings.txt

The format is recognised from the content, and each file may be .gz. Fields are separated by one space or tab. The first
vector, whose word has no space, sets the width. Files are streamed: memory holds the vectors that are looked up.

A word is looked up as written, else in lower case, else in lower case with each digit as 0, as Senna's words.lst has
numbers. A word that a file repeats has its first vector, as in gensim, and the repeated lines are counted.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import tqdm

from lmx import documents
from lmx.data import cache
from lmx.errors import InputError, InputWarning

RULES = ('as written', 'in lower case', 'in lower case with digits as 0')
_SENNA = (('embeddings/embeddings.txt', 'hash/words.lst'), ('embeddings.txt', 'words.lst'))
_COUNTS = re.compile(r'([0-9]+) ([0-9]+)')
_DIGITS = 9  # most digits of a count of words or of a width
_DIGIT = re.compile(r'\d')
# Finite numbers as GloVe writes most of them: recognised in a quarter of the time that they take to be converted.
_NUMBERS = re.compile(r'(?:-?[0-9]++\.[0-9]++ )*+-?[0-9]++\.[0-9]++')


class Vectors(NamedTuple):
  """Vectors of a file for some words.

  Attributes:
    found: positions of the words that have a vector, int64 `(K,)`.
    rows_KE: their vectors, float32.
    counts: number of words found by each of RULES.
    duplicates: lines that repeat one of these words.
  """

  found: np.ndarray
  rows_KE: np.ndarray
  counts: tuple[int, ...]
  duplicates: int


class _Line(NamedTuple):
  """A word and its `width` numbers; `where` is file and line, `first` the place of the first number in the line."""

  where: str
  word: str
  numbers: str
  width: int
  first: int


def read(path: str, words: Iterable[str], width: int, field: str = 'model.E') -> Vectors:
  """Return the vectors of `words`. Other lines are verified too.

  Args:
    path: see the docstring of this module.
    words: words to look up.
    width: of the model's word table.
    field: the field that sets it.

  Raises:
    InputError: a file cannot be read; its vectors have another width; or a line has another number of fields, a field
      that is no finite number, no word, or bytes that are not UTF-8. The message names file, line and field.
  """
  return look_up(words, width, lambda wanted: _select(path, wanted, width, field))


def width(path: str) -> int:
  """Return the width of the vectors of a file, from its first line. Raises InputError as `read` does."""
  return next(_lines(path)).width


def read_all(path: str, field: str = 'data.vectors') -> tuple[list[str], np.ndarray]:
  """Return (words of a file in order, their vectors, float32 `(V, E)`); warn of lines that repeat a word.

  Args:
    path: see the docstring of this module.
    field: the option that names it.

  Raises:
    InputError: as `read` does.
  """
  return first_rows(path, ((line.word, _parse(line).tobytes()) for line in _lines(path, field)))


def first_rows(path: str, rows: Iterable[tuple[str, bytes]]) -> tuple[list[str], np.ndarray]:
  """Return (words, vectors) of rows with float32 numbers: of each word the first row; warn of the others."""
  words: dict[str, int] = {}
  numbers, repeated = bytearray(), 0
  for word, row in rows:
    if word in words:
      repeated += 1
      continue
    words[word] = len(words)
    numbers += row
  if repeated:
    note = f'{path}: got {repeated:,} vectors of words that have one already; the first of each word is taken'
    warnings.warn(note, InputWarning, stacklevel=2)
  return list(words), np.frombuffer(numbers, np.float32).reshape(len(words), -1)


def look_up(
  words: Iterable[str], width: int, select: Callable[[Collection[str]], Iterable[tuple[str, np.ndarray]]]
) -> Vectors:
  """Return the vectors of `words` under the rules of this module.

  Args:
    words: words to look up.
    width: of a vector.
    select: forms of words -> (form, vector) for those that have one; the first counts.
  """
  forms = [_forms(word) for word in words]
  rows: dict[str, np.ndarray] = {}
  duplicates = 0
  for form, vector_E in select({form for three in forms for form in three}):
    duplicates += form in rows
    rows.setdefault(form, vector_E)
  rules = [next((rule for rule, form in enumerate(three) if form in rows), -1) for three in forms]
  index = [i for i, rule in enumerate(rules) if rule >= 0]
  rows_KE = np.asarray([rows[forms[i][rules[i]]] for i in index], np.float32).reshape(-1, width)
  return Vectors(np.asarray(index, np.int64), rows_KE, tuple(map(rules.count, range(len(RULES)))), duplicates)


def _select(path: str, wanted: Collection[str], width: int, field: str) -> Iterator[tuple[str, np.ndarray]]:
  for line in _lines(path):
    if line.width != width:
      raise InputError(
        f'{field}: got {width}; expected {line.width}, the width of the vectors in {path} by {line.where}: '
        f'{documents.show(line.word)} and {line.width} fields; set {field}={line.width} if they are numbers, or name '
        f'vectors of {width}'
      )
    if line.word in wanted:
      yield line.word, _parse(line)
    elif not _NUMBERS.fullmatch(line.numbers):
      _parse(line)


def find(path: str, words: Iterable[str]) -> list[str]:
  """Return the `words` that have a vector, in order. Raises InputError as `read` does, except for numbers."""
  forms = {word: _forms(word) for word in words}
  wanted = {form for three in forms.values() for form in three}
  present = {line.word for line in _lines(path) if line.word in wanted}
  return [word for word, three in forms.items() if not present.isdisjoint(three)]


def digest(path: str) -> list[list[str]]:
  """Return [name, SHA-256] of each file of the vectors. Raises InputError if there is none."""
  return [[os.path.basename(name), cache.sha256(name)] for name in _files(path, 'data.vectors') if name]


def _forms(word: str) -> tuple[str, str, str]:
  """Return the forms under which a word is looked up, one for each of RULES."""
  lower = word.lower()
  return word, lower, _DIGIT.sub('0', lower)


def _files(path: str, field: str) -> tuple[str, str]:
  """Return (file of the vectors, file of their words; '' if they are in the same one)."""
  given = os.path.expanduser(path)
  documents.check_regular(given)
  if os.path.isfile(given):
    folder, name = os.path.split(given)
    beside = [os.path.join(folder, 'words.lst'), os.path.join(folder, os.pardir, 'hash', 'words.lst')]
    is_senna = name.removesuffix('.gz') == 'embeddings.txt'
    return given, next((p for words in beside for p in (words, f'{words}.gz') if is_senna and os.path.isfile(p)), '')
  for pair in _SENNA:
    files = [os.path.join(given, name) for name in pair]
    found = [next((p for p in (file, f'{file}.gz') if os.path.isfile(p)), '') for file in files]
    if all(found):
      return found[0], found[1]
  state = 'a directory without embeddings.txt and words.lst' if os.path.isdir(given) else 'which does not exist'
  other = (
    f'; lmx vectors --workdir={given} --export=FILE writes those of a run of word2vec' if os.path.isdir(given) else ''
  )
  raise InputError(f'{field}: got {path}, {state}; expected a text of word vectors, or the directory of Senna{other}')


def _lines(path: str, field: str = 'data.vectors') -> Iterator[_Line]:
  """Yield the words with their fields, which are counted but not converted. Raises InputError."""
  vectors, words = _files(path, field)
  rows = tqdm.tqdm(
    documents.read_rows(vectors),
    f'reading {os.path.basename(vectors)}',
    unit=' lines',
    leave=False,
    disable=not sys.stderr.isatty(),
    delay=1,
  )
  yield from (_separate_words(rows, vectors, words) if words else _with_words(rows, vectors))


def _with_words(rows: Iterable[tuple[int, str]], path: str) -> Iterator[_Line]:
  """Yield the lines of a file of words and vectors."""
  expected, width, count = -1, 0, 0
  for number, line in rows:
    where = f'{path}, line {number}'
    line = line.replace('\t', ' ').rstrip(' ')
    if number == 1 and (counts := _COUNTS.fullmatch(line)):
      if max(map(len, counts.groups())) > _DIGITS:
        raise InputError(f'{where}: got {documents.show(line)}; expected the number of words and their width')
      expected, width = int(counts[1]), int(counts[2])
      continue
    fields = line.count(' ') + 1
    width = width or fields - 1
    word, _, numbers = line.partition(' ')
    if fields > width + 1:  # a word with spaces
      word, *rest = line.rsplit(' ', width)
      numbers = ' '.join(rest)
    if not width or fields < width + 1 or fields > width + 1 and _is_number(word.rpartition(' ')[2]):
      wanted = f'{width + 1}, a word and {width}' if width else 'a word and its'
      raise InputError(f'{where}: got {fields} fields; expected {wanted} numbers')
    if word.endswith(' '):
      raise InputError(f'{where}, field 2: got nothing between two spaces; expected a number')
    if not word or word.startswith(' '):
      raise InputError(f'{where}, field 1: got nothing before the first space; expected a word')
    if not count and '.' in word and _is_number(word):
      raise InputError(
        f"{where}, field 1: got the number {word}; expected a word. Senna's words are in words.lst, next to "
        'embeddings.txt or in ../hash'
      )
    count += 1
    yield _Line(where, word, numbers, width, fields - width + 1)
  if not count or expected not in (-1, count):
    wanted = f'{expected:,} by the first line' if expected >= 0 else 'some'
    raise InputError(f'{path}: got {count:,} vectors; expected {wanted}; fetch the file again')


def _separate_words(rows: Iterable[tuple[int, str]], path: str, words: str) -> Iterator[_Line]:
  """Yield the lines of a file of vectors and one of their words."""
  names, width = documents.read_rows(words), 0
  for number, line in rows:
    _, word = next(names, (0, ''))
    numbers = line.replace('\t', ' ').strip(' ')
    fields = numbers.count(' ') + 1
    width = width or fields
    if not word.strip():
      raise InputError(f'{words}, line {number}: got no word; expected one for each line of {path}')
    if fields != width:
      raise InputError(f'{path}, line {number}: got {fields} fields; expected {width}')
    yield _Line(f'{path}, line {number}', word.strip(), numbers, width, 1)
  if (extra := next(names, None)) is not None:
    raise InputError(f'{words}, line {extra[0]}: got another word; expected one for each line of {path}')


def _parse(line: _Line) -> np.ndarray:
  """Return the vector of a line, float32 `(E,)`. Raises InputError that names the first field at fault."""
  numbers = line.numbers.split(' ')
  try:
    with np.errstate(over='ignore'):  # overflow gives infinity, which is refused
      vector_E = np.array(list(map(float, numbers)), np.float32)
    if np.isfinite(vector_E).all() and '_' not in line.numbers and line.numbers.isascii():  # as documents.parse_number
      return vector_E
  except ValueError:
    pass
  for place, text in enumerate(numbers, line.first):
    if not _is_number(text):
      raise InputError(f'{line.where}, field {place}: got {documents.show(text)}; expected a finite number')
  return np.array(list(map(float, numbers)), np.float32)  # with white space other than ASCII around a number


def _is_number(text: str) -> bool:
  """Return True for a number that float32 can represent."""
  try:
    return abs(documents.parse_number(text, '')) <= float(np.finfo(np.float32).max)
  except InputError:
    return False
