"""Universal Dependencies, English Web Treebank (Silveira et al. 2014): the universal part of speech of each word."""

from __future__ import annotations

from collections.abc import Iterator

from lmx.data.builders import base, columns, tagged


class Builder(columns.ColumnBuilder):
  """One example is one sentence: its syntactic words as text, and their parts of speech as label.

  Multiword tokens ("3-4") and empty nodes ("8.1") are skipped.
  """

  BUILDER_CONFIGS = base.CHECKED
  EXPECTED = {  # version 2.15
    'train': {'sentences': 12_544, 'tokens': 204_577},
    'valid': {'sentences': 2_001, 'tokens': 25_147},
    'test': {'sentences': 2_077, 'tokens': 25_094},
  }

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    for number, lines in enumerate(tagged.sentences(paths[split], '\t')):
      words = tagged.universal(lines)
      texts, labels = (tagged.column(paths[split], words, index) for index in (1, tagged.UPOS))
      yield f'{split}-{number}', ' '.join(texts), ' '.join(labels)
