"""CoNLL-2005, semantic roles of verbs in English news and fiction (Carreras and Màrquez 2005), in BIO."""

from __future__ import annotations

from collections.abc import Iterator

from lmx.data.builders import base, columns, propositions


class Builder(columns.PropositionBuilder):
  """One example is one sentence with one of its target verbs; test_brown is the test set out of domain."""

  BUILDER_CONFIGS = base.CHECKED
  SPLITS = ('train', 'valid', 'test', 'test_brown')
  # Carreras and Màrquez 2005, table of counts (from memory).
  EXPECTED = {
    'train': {'propositions': 90_750},
    'valid': {'propositions': 3_248},
    'test': {'propositions': 5_267},
    'test_brown': {'propositions': 804},
  }

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    return self.rows(split, propositions.read_2005(paths[split]))
