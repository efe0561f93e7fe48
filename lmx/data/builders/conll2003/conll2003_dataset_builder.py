"""CoNLL 2003, named entities in English news (Tjong Kim Sang and De Meulder 2003): four types, in BIO."""

from __future__ import annotations

from collections.abc import Iterator

from lmx.data.builders import base, columns, tagged


class Builder(columns.ColumnBuilder):
  """One example is one sentence: its words as text, and their labels as label, separated by spaces."""

  BUILDER_CONFIGS = base.CHECKED
  EXPECTED = {
    'train': {'sentences': 14_041, 'tokens': 203_621},
    'valid': {'sentences': 3_250, 'tokens': 51_362},
    'test': {'sentences': 3_453, 'tokens': 46_435},
  }

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    for number, words in enumerate(tagged.sentences(paths[split])):
      labels = tagged.bio(tagged.column(paths[split], words, -1))
      yield f'{split}-{number}', ' '.join(tagged.column(paths[split], words, 0)), ' '.join(labels)
