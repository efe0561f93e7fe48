"""WNUT-17, emerging and rare entities in noisy text (Derczynski et al. 2017): six types of entities, in BIO."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lmx import documents
from lmx.data.builders import base
from lmx.errors import InputError

_URL = 'https://raw.githubusercontent.com/leondz/emerging_entities_17/e52a2d2a71ac1a051ca2d532eef28653c5c02603/'


class Builder(base.TextBuilder):
  """One example is one sentence: its words as text, and their labels as label, separated by spaces."""

  BUILDER_CONFIGS = base.CHECKED
  URLS = {
    'train': _URL + 'wnut17train.conll',
    'valid': _URL + 'emerging.dev.conll',
    'test': _URL + 'emerging.test.annotated',
  }
  EXPECTED = {
    'train': {'sentences': 3_394, 'tokens': 62_730},
    'valid': {'sentences': 1_009, 'tokens': 15_733},
    'test': {'sentences': 1_287, 'tokens': 23_394},
  }

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
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

  def sizes(self, text: Any) -> dict[str, int]:
    return {'sentences': 1, 'tokens': len(text.split())}

  def find_downloads(self, paths: dict[str, str]) -> dict[str, str]:
    return paths
