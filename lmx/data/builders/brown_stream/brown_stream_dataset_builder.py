"""The Brown corpus as one stream, split at 800,000 and 1,000,000 words (Bengio et al. 2003, section 4.1).

Read from the tagged files as in NLTK, or from text files of the splits with an index.tsv of their documents. It has one
line with `split`, `file`, `category`, `sentences` and `tokens` per document, in the order of the splits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from lmx import documents
from lmx.data.builders import base
from lmx.data.builders.brown import brown_dataset_builder as brown
from lmx.errors import InputError

MARK = '<text>'  # follows each text; the paper too counts "the marks used to separate texts"
WORDS = 1_161_692  # including these separators
CUTS = {'train': (0, 800_000), 'valid': (800_000, 1_000_000), 'test': (1_000_000, WORDS)}
_COLUMNS = ['split', 'file', 'category', 'sentences', 'tokens']


class Builder(base.TextBuilder):
  """A stream, in several examples."""

  BUILDER_CONFIGS = base.CHECKED
  URLS = brown.Builder.URLS
  EXPECTED = {'train': {'words': 800_000}, 'valid': {'words': 200_000}, 'test': {'words': WORDS - 1_000_000}}

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    texts = _tagged(paths['all']) if 'all' in paths else _indexed(paths)
    words = [word for _, text in sorted(texts.items()) for word in (*text.split(), MARK)]
    start, stop = CUTS[split]
    if not self.builder_config.check_sizes:  # a sample keeps the proportions
      start, stop = (round(at * len(words) / WORDS) for at in (start, stop))
    stop = min(stop, len(words))
    lines = (' '.join(words[at : min(at + 1000, stop)]) + '\n' for at in range(start, stop, 1000))
    for index, text in enumerate(base.join_lines(lines)):
      yield f'{split}-{index}', text, ''

  def sizes(self, text: Any) -> dict[str, int]:
    return {'words': len(text.split())}


def _tagged(categories: str) -> dict[str, str]:
  """Return {name: text} from the folder of `categories`, NLTK's cats.txt."""
  names = [line.split()[0] for line in documents.read_lines(categories)]
  return {name: brown.tagged_text(os.path.join(os.path.dirname(categories), name)) for name in names}


def _indexed(paths: dict[str, str]) -> dict[str, str]:
  """Return {name: text} from the three splits and the index of their documents."""
  header, *rows = (line.rstrip('\n').split('\t') for line in documents.read_lines(paths['index']))
  if header != _COLUMNS:
    raise InputError(f'{paths["index"]}: the first line: got {header}; expected the columns {", ".join(_COLUMNS)}')
  texts: dict[str, str] = {}
  for split in ('train', 'valid', 'test'):
    texts_of_split = list(base.blank_line_documents(documents.read_lines(paths[split])))
    listed = [row for row in rows if row[0] == split]
    if len(texts_of_split) != len(listed):
      raise InputError(
        f'{paths[split]} holds {len(texts_of_split)} documents but {paths["index"]} lists {len(listed)} for it'
      )
    for text, (_, name, _, _, tokens) in zip(texts_of_split, listed, strict=True):
      if len(text.split()) != int(tokens):
        raise InputError(
          f'{paths[split]}: document {name} has {len(text.split())} tokens, but {tokens} in {paths["index"]}'
        )
      texts[name] = text
  return texts
