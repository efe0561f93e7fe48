"""The Brown corpus (Francis and Kucera 1979), from its tagged files as in NLTK, or from text files of the splits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from lmx import documents
from lmx.data.builders import streams
from lmx.data.builders.files import Document
from lmx.errors import InputError

_QUOTES = {'``': '"', "''": '"'}


MARK = '<text>'  # follows each text of the stream; the paper too counts "the marks used to separate texts"
WORDS = 1_161_692  # of the stream, including these separators
CUTS = {'train': (0, 800_000), 'valid': (800_000, 1_000_000), 'test': (1_000_000, WORDS)}
_COLUMNS = ['split', 'file', 'category', 'sentences', 'tokens']


def texts(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield the texts ordered by category and name; with tagged files the label is the category."""
  del source
  if 'all' in paths:
    yield from _tagged(paths['all'], split)
    return
  for index, text in enumerate(streams.blank_line_documents(documents.read_lines(paths[split]))):
    yield f'{split}-{index}', text, ''


def stream(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield the corpus as one stream, split at 800,000 and 1,000,000 words (Bengio et al. 2003, section 4.1).

  Read from the tagged files as in NLTK, or from text files of the splits with an index.tsv of their documents. It has
  one line with `split`, `file`, `category`, `sentences` and `tokens` per document, in the order of the splits.
  """
  texts_of = _tagged_by_name(paths['all']) if 'all' in paths else _indexed(paths)
  words = [word for _, text in sorted(texts_of.items()) for word in (*text.split(), MARK)]
  start, stop = CUTS[split]
  if not source.check_sizes:  # a sample keeps the proportions
    start, stop = (round(at * len(words) / WORDS) for at in (start, stop))
  stop = min(stop, len(words))
  lines = (' '.join(words[at : min(at + 1000, stop)]) + '\n' for at in range(start, stop, 1000))
  for index, text in enumerate(streams.join_lines(lines)):
    yield f'{split}-{index}', text, ''


def _tagged(categories: str, split: str) -> Iterator[Document]:
  """Yield the texts of a split from the folder of `categories`, NLTK's cats.txt."""
  members: dict[str, list[str]] = {}
  for line in documents.read_lines(categories):
    name, category = line.split()
    members.setdefault(category, []).append(name)
  for category in sorted(members):
    for index, name in enumerate(members[category]):
      if split == {4: 'valid', 9: 'test'}.get(index % 10, 'train'):
        yield name, tagged_text(os.path.join(os.path.dirname(categories), name)), category


def tagged_text(path: str) -> str:
  """Return the text of a tagged file, one sentence per line."""
  sentences = ([_word(token) for token in line.split()] for line in documents.read_lines(path))
  return ''.join(' '.join(words) + '\n' for words in sentences if words)


def _word(token: str) -> str:
  word = token.rpartition('/')[0]
  return _QUOTES.get(word, word)


def _tagged_by_name(categories: str) -> dict[str, str]:
  """Return {name: text} from the folder of `categories`, NLTK's cats.txt."""
  names = [line.split()[0] for line in documents.read_lines(categories)]
  return {name: tagged_text(os.path.join(os.path.dirname(categories), name)) for name in names}


def _indexed(paths: dict[str, str]) -> dict[str, str]:
  """Return {name: text} from the three splits and the index of their documents."""
  header, *rows = (line.rstrip('\n').split('\t') for line in documents.read_lines(paths['index']))
  if header != _COLUMNS:
    raise InputError(f'{paths["index"]}: the first line: got {header}; expected the columns {", ".join(_COLUMNS)}')
  texts_of: dict[str, str] = {}
  for split in ('train', 'valid', 'test'):
    texts_of_split = list(streams.blank_line_documents(documents.read_lines(paths[split])))
    listed = [row for row in rows if row[0] == split]
    if len(texts_of_split) != len(listed):
      raise InputError(
        f'{paths[split]}: got {len(texts_of_split)} documents; expected {len(listed)}, as {paths["index"]} lists'
      )
    for text, (_, name, _, _, tokens) in zip(texts_of_split, listed, strict=True):
      if len(text.split()) != int(tokens):
        raise InputError(
          f'{paths[split]}: document {name}: got {len(text.split())} tokens; expected {tokens}, as in {paths["index"]}'
        )
      texts_of[name] = text
  return texts_of
