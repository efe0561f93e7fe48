"""Sentences whose words have labels: in columns (CoNLL), as JSON lines, or as plain text without labels.

Columns are a word a line with what is known of it, and an empty line between sentences. No TFDS here, so that new
sentences can be read without importing it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lmx import documents
from lmx.errors import InputError

ENDINGS = ('.conll', '.conllu', '.jsonl', '.txt')
UPOS = 3  # column of CoNLL-U
Word = tuple[int, list[str]]  # number of the line, its cells


class Sentence(NamedTuple):
  """A sentence.

  Attributes:
    words: its words.
    tags: their labels, None where they are not known.
    lines: number of the line that each word is in.
  """

  words: tuple[str, ...]
  tags: tuple[str, ...] | None
  lines: tuple[int, ...]


def sentences(path: str, separator: str | None = None) -> Iterator[list[Word]]:
  """The sentences of a file in columns, whose cells are divided by `separator`, None for white space.

  Lines that begin with '-DOCSTART-' are none of theirs, nor those that begin with '# ', unless these have as many cells
  as others: that is a word '#'.
  """
  held: list[Word] = []
  width = 0
  for number, line in enumerate(documents.read_lines(path), 1):
    cells = line.rstrip('\n').split(separator)
    remark = line.startswith('-DOCSTART-') or line.startswith('# ') and len(cells) != width
    if line.strip() and not remark:
      held.append((number, cells))
      width = len(cells)
    elif held and not line.strip():
      yield held
      held = []
  if held:
    yield held


def universal(words: Sequence[Word]) -> list[Word]:
  """The lines of CoNLL-U that are words: not those of several words ("3-4"), nor of words left out ("8.1")."""
  return [word for word in words if word[1][0].isdigit()]


def column(path: str, words: Sequence[Word], index: int) -> list[str]:
  """One column of a sentence. Raises InputError that names the line where there is none."""
  for number, cells in words:
    if not -len(cells) <= index < len(cells) or not cells[index].strip():
      raise InputError(f'{path}, line {number}: has no column {index + 1 if index >= 0 else "for the label"}')
  return [plain(cells[index]) for _, cells in words]


def plain(word: str) -> str:
  """A word as data sets have it: with _ for the white space in it, which would divide it."""
  return '_'.join(word.split()) or '_'


def bio(labels: Sequence[str]) -> list[str]:
  """Labels of spans of IOB1, in which a B stands only between two spans of a type, as BIO; those of BIO as they are."""
  found, before = list(labels), 'O'
  for i, label in enumerate(labels):
    if label.startswith('I-') and (before == 'O' or before[2:] != label[2:]):
      found[i] = 'B-' + label[2:]
    before = label
  return found


def read(path: str) -> Iterator[Sentence]:
  """The sentences of a file, also as .gz.

  .conll has the word in the first column and, where there are several, the label in the last; columns are divided by
  tabs where there are some, else by white space. .conllu has the word in the second and the universal part of speech in
  the fourth; _ is none. A line of .jsonl is {"tokens": [...], "tags": [...] (optional)}, one of .txt a sentence of
  words with blanks between them.

  Raises:
    InputError: no file of this kind; a sentence without words, a line without its columns, or tags of other number than
      the tokens; the line is named.
  """
  name = path.removesuffix('.gz')
  if name.endswith('.jsonl'):
    yield from _json_lines(path)
  elif name.endswith('.txt'):
    for number, line in documents.read_rows(path):
      if not line.split():
        raise InputError(f'{path}, line {number}: there is no sentence')
      yield Sentence(tuple(line.split()), None, (number,) * len(line.split()))
  else:
    yield from _columns(path, *((1, UPOS) if name.endswith('.conllu') else (0, -1)))


def _columns(path: str, word: int, label: int) -> Iterator[Sentence]:
  universal_tags = label == UPOS
  tabs = universal_tags or any('\t' in line for line in documents.read_lines(path))
  least = 1 + (label if universal_tags else 1)
  labelled: bool | None = None
  for lines in sentences(path, '\t' if tabs else None):
    words = universal(lines) if universal_tags else lines
    if not words:
      raise InputError(f'{path}, line {lines[0][0]}: a sentence without words')
    for number, cells in words:
      has = len(cells) >= least and cells[label] != '_'
      if labelled not in (None, has):
        raise InputError(f'{path}, line {number}: has {"a" if has else "no"} label, unlike the words before it')
      labelled = has
    tags = tuple(column(path, words, label)) if labelled else None
    yield Sentence(tuple(column(path, words, word)), tags, tuple(number for number, _ in words))


def _json_lines(path: str) -> Iterator[Sentence]:
  for number, row in documents.read_json_lines(path):
    where = f'{path}, line {number}'
    words = _texts(documents.field(row, 'tokens', list, where), f'{where}: tokens')
    if not words or not all(word.strip() for word in words):
      raise InputError(f'{where}: there is an empty word' if words else f'{where}: a sentence without words')
    tags = documents.field(row, 'tags', list, where, default=None)
    tags = None if tags is None else tuple(map(plain, _texts(tags, f'{where}: tags')))
    if tags is not None and len(tags) != len(words):
      raise InputError(f'{where}: {len(tags)} tags for {len(words)} tokens')
    yield Sentence(words, tags, (number,) * len(words))


def _texts(values: Sequence[object], where: str) -> tuple[str, ...]:
  return tuple(documents.typed(value, str, where) for value in values)
