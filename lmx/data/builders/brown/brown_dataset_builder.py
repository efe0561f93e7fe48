"""The Brown corpus (Francis and Kucera 1979), from its tagged files as in NLTK, or from text files of the splits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from lmx import documents
from lmx.data.builders import base

_URL = (
  'https://raw.githubusercontent.com/nltk/nltk_data/5db857e6f7df11eabb5e5665836db9ec8df07e28/packages/corpora/brown.zip'
)
_QUOTES = {'``': '"', "''": '"'}


class Builder(base.TextBuilder):
  """Texts ordered by category and name; with tagged files the label is the category."""

  BUILDER_CONFIGS = base.CHECKED
  URLS = {'archive': _URL}
  EXPECTED = {
    'train': {'tokens': 945_561, 'sentences': 46_682},
    'valid': {'tokens': 120_857, 'sentences': 5_914},
    'test': {'tokens': 94_774, 'sentences': 4_744},
  }

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    if 'all' in paths:
      yield from _tagged(paths['all'], split)
      return
    for index, text in enumerate(base.blank_line_documents(documents.read_lines(paths[split]))):
      yield f'{split}-{index}', text, ''

  def sizes(self, text: Any) -> dict[str, int]:
    return {'tokens': len(text.split()), 'sentences': text.count('\n')}


def _tagged(categories: str, split: str) -> Iterator[base.Document]:
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
