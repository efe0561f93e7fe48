"""Sentences with word labels: in columns (CoNLL), as JSON lines, or as plain text without labels.

Columns are one word per line with its annotations, and an empty line between sentences. No TFDS is imported here, so
sentences can be read without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lmx import documents
from lmx.data.builders import split_files
from lmx.data.builders.files import Document
from lmx.errors import InputError

OWN_ENDINGS = ('.conll', '.conllu', '.bio', '.iob', '.tsv', '.txt', '.jsonl')  # of files with labels
ENDINGS = ('.conll', '.conllu', '.bio', '.iob', '.tsv', '.jsonl', '.txt')  # of files to tag
UPOS = 3  # column of CoNLL-U
_STARTS = {'S': 'B', 'U': 'B', 'E': 'I', 'L': 'I'}  # of BIOES and BILOU in BIO
DOCUMENT_STARTS = ('-DOCSTART-', '# newdoc')
Word = tuple[int, list[str]]  # number of the line, its cells


class Sentence(NamedTuple):
  """A sentence.

  Attributes:
    words: its words.
    tags: their labels, None if unknown.
    lines: line number of each word.
    predicate: index of the word whose arguments the labels are, None if unknown.
    document: number of its document in the file, None if the file marks none.
  """

  words: tuple[str, ...]
  tags: tuple[str, ...] | None
  lines: tuple[int, ...]
  predicate: int | None = None
  document: int | None = None


def sentences(path: str, separator: str | None = None) -> Iterator[list[Word]]:
  """Yield the sentences of a file in columns; see `with_documents`."""
  for _, words in with_documents(path, separator):
    yield words


def with_documents(path: str, separator: str | None = None) -> Iterator[tuple[int | None, list[Word]]]:
  """Yield (number of its document, sentence) for a file in columns separated by `separator`, None for white space.

  A document begins at a line that starts with '-DOCSTART-' or, as in CoNLL-U, '# newdoc'. The number is None in a file
  without such lines. They are not words, and neither are lines that start with '# ', unless they have as many cells as
  others: those are a word '#'.

  Raises:
    InputError: a line has another number of columns than the first.
  """
  words: list[Word] = []
  first, width = next(_rows(path, separator), (0, 0))
  document = 0 if any(line.startswith(DOCUMENT_STARTS) for line in documents.read_lines(path)) else None
  started = document
  for number, line in enumerate(documents.read_lines(path), 1):
    cells = line.rstrip('\n').split(separator)
    is_comment = line.startswith('-DOCSTART-') or line.startswith('# ') and len(cells) != width
    if document is not None and is_comment and line.startswith(DOCUMENT_STARTS):
      document += 1
    if line.strip() and not is_comment:
      if width not in (0, len(cells)):
        raise InputError(f'{path}, line {number}: got {len(cells)} columns; expected {width}, as in line {first}')
      started = started if words else document
      words.append((number, cells))
    elif words and not line.strip():
      yield started, words
      words = []
  if words:
    yield started, words


def name(split: str, number: int, document: int | None) -> str:
  """Return the id of a sentence, with the number of its document if the file has documents; see `document_of`."""
  return f'{split}-{number}' if document is None else f'{split}-{number}@{document}'


def document_of(name: str) -> int | None:
  """Return the number of the document in a sentence's id, None without one."""
  found = re.fullmatch(r'\w+-\d+@(\d+)', name)
  return int(found[1]) if found else None


def _rows(path: str, separator: str | None) -> Iterator[tuple[int, int]]:
  """Yield (number, cells) of each line that can be no comment."""
  for number, line in enumerate(documents.read_lines(path), 1):
    if line.strip() and not line.startswith(('-DOCSTART-', '# ')):
      yield number, len(line.rstrip('\n').split(separator))


def universal(words: Sequence[Word]) -> list[Word]:
  """Return the word lines of CoNLL-U, without multiword tokens ("3-4") and empty nodes ("8.1")."""
  return [word for word in words if word[1][0].isdigit()]


def column(path: str, words: Sequence[Word], index: int) -> list[str]:
  """Return one column of a sentence. Raises InputError with the line if it is missing."""
  for number, cells in words:
    if not -len(cells) <= index < len(cells) or not cells[index].strip():
      raise InputError(f'{path}, line {number}: has no column {index + 1 if index >= 0 else "for the label"}')
  return [plain(cells[index]) for _, cells in words]


def plain(word: str) -> str:
  """Return a word with _ for white space in it, which would separate words."""
  return '_'.join(word.split()) or '_'


def bio(labels: Sequence[str]) -> list[str]:
  """Return span labels as BIO; in IOB1 a B occurs only between two spans of a type, BIO is unchanged."""
  bio_labels, before = list(labels), 'O'
  for i, label in enumerate(labels):
    if label.startswith('I-') and (before == 'O' or before[2:] != label[2:]):
      bio_labels[i] = 'B-' + label[2:]
    before = label
  return bio_labels


def spans(labels: Sequence[str]) -> list[str]:
  """Return span labels of IOB1, BIO, BIOES or BILOU as BIO; other labels are unchanged."""
  if all(label == 'O' or label[0] in 'BIESLU' and label[1:2] == '-' for label in labels):
    labels = [_STARTS.get(label[0], label[0]) + label[1:] for label in labels]
  return bio(labels)


def find_own(pattern: str, names: str = 'words') -> dict[str, list[str]]:
  """Return {split: the user's files of labelled sentences}; see `split_files.find_splits`."""
  endings = split_files.with_compression(OWN_ENDINGS, names)
  expected = f'file of labelled words; expected {split_files.describe(OWN_ENDINGS)}'
  return split_files.find_own('tagged_files', pattern, endings, expected, names, files='files', rows='sentences')


def read_labelled(path: str) -> Iterator[Sentence]:
  """Yield the sentences of a user's file as `read`; .txt has columns too.

  Raises:
    InputError: as `read`, or a sentence has no labels.
  """
  for sentence in _columns(path, 0, -1) if documents.ending(path) == '.txt' else read(path):
    if sentence.tags is None:
      raise InputError(
        f'{path}, line {sentence.lines[0]}: got words without labels; expected a label in the last column; add '
        'them, or tag the file with `lmx predict`'
      )
    yield sentence


def read(path: str) -> Iterator[Sentence]:
  """Yield the sentences of a file, also compressed.

  .conll, .bio, .iob and .tsv have the word in the first column and, if there are several, the label in the last;
  columns are separated by tabs if there are any, else by white space. .conllu has the word in the second and the
  universal part of speech in the fourth; _ is none. A line of .jsonl is {"tokens": [...], "tags": [...] (optional),
  "predicate": index (optional)}, one of .txt a sentence of words separated by blanks.

  Raises:
    InputError: the file has another format; a sentence has no words, a line lacks columns, tags and tokens differ in
      number, or the predicate's index is out of range; the line is named.
  """
  ending = documents.ending(path)
  if ending == '.jsonl':
    yield from _json_lines(path)
  elif ending == '.txt':
    for number, line in documents.read_rows(path):
      if not line.split():
        raise InputError(f'{path}, line {number}: got an empty line; expected a sentence')
      yield Sentence(tuple(line.split()), None, (number,) * len(line.split()))
  else:
    yield from _columns(path, *((1, UPOS) if ending == '.conllu' else (0, -1)))


def _columns(path: str, word: int, label: int) -> Iterator[Sentence]:
  universal_tags = label == UPOS
  tabs = universal_tags or any('\t' in line for line in documents.read_lines(path))
  least = 1 + (label if universal_tags else 1)
  labelled: bool | None = None
  for document, lines in with_documents(path, '\t' if tabs else None):
    words = universal(lines) if universal_tags else lines
    if not words:
      raise InputError(f'{path}, line {lines[0][0]}: got a sentence without words; expected a word a line')
    for number, cells in words:
      if tabs and len(cells) == 1 and len(cells[0].split()) > 1:
        raise InputError(
          f'{path}, line {number}: got blanks between columns, but tabs on other lines; expected only tabs'
        )
      has = len(cells) >= least and cells[label] != '_'
      if labelled not in (None, has):
        raise InputError(f'{path}, line {number}: has {"a" if has else "no"} label, unlike the words before it')
      labelled = has
    tags = tuple(column(path, words, label)) if labelled else None
    yield Sentence(tuple(column(path, words, word)), tags, tuple(number for number, _ in words), document=document)


def _json_lines(path: str) -> Iterator[Sentence]:
  for number, row in documents.read_json_lines(path):
    where = f'{path}, line {number}'
    words = _texts(documents.field(row, 'tokens', list, where), f'{where}: tokens')
    if not words or not all(word.strip() for word in words):
      raise InputError(f'{where}: a sentence with an empty word' if words else f'{where}: a sentence without words')
    tags = documents.field(row, 'tags', list, where, default=None)
    tags = None if tags is None else tuple(map(plain, _texts(tags, f'{where}: tags')))
    if tags is not None and len(tags) != len(words):
      raise InputError(f'{where}: got {len(tags)} tags; expected {len(words)}, one for each token')
    predicate = documents.field(row, 'predicate', int, where, default=None)
    if predicate is not None and not 0 <= predicate < len(words):
      raise InputError(f'{where}: predicate: got {predicate}; expected the index of one of {len(words)} words, from 0')
    yield Sentence(words, tags, (number,) * len(words), predicate)


def _texts(values: Sequence[object], where: str) -> tuple[str, ...]:
  return tuple(documents.convert(value, str, where) for value in values)


# Data sets: one document is one sentence, its words as text, and their labels as label, separated by spaces.


def conll2003(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield the sentences of CoNLL 2003, labels in BIO."""
  del source
  for number, (document, words) in enumerate(with_documents(paths[split])):
    labels = bio(column(paths[split], words, -1))
    yield name(split, number, document), ' '.join(column(paths[split], words, 0)), ' '.join(labels)


def ud_ewt(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield the syntactic words of the English Web Treebank and their parts of speech.

  Multiword tokens ("3-4") and empty nodes ("8.1") are skipped.
  """
  del source
  for number, (document, lines) in enumerate(with_documents(paths[split], '\t')):
    words = universal(lines)
    texts, labels = (column(paths[split], words, index) for index in (1, UPOS))
    yield name(split, number, document), ' '.join(texts), ' '.join(labels)


def wnut17(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield the sentences of WNUT-17."""
  del source
  words: list[str] = []
  labels: list[str] = []
  number = 0
  for at, line in enumerate(documents.read_lines(paths[split]), 1):
    if line.strip():
      word, tab, label = line.rstrip('\n').partition('\t')
      if not (tab and word and label.strip() and len(label.split()) == 1):
        raise InputError(f'{paths[split]}, line {at}: expected "word<TAB>label"')
      words.append('_'.join(word.split()) or '_')  # white space separates words in the written text
      labels.append(label.strip())
    if words and not line.strip():
      yield f'{split}-{number}', ' '.join(words), ' '.join(labels)
      words, labels, number = [], [], number + 1
  if words:
    yield f'{split}-{number}', ' '.join(words), ' '.join(labels)
