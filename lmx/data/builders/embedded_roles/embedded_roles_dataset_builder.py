"""Sentences of the embedded corpus with roles of a few verbs by rule: a small set to test semantic role labelling."""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow_datasets.public_api as tfds

from lmx.data.builders import base, columns
from lmx.data.builders.embedded_tags import embedded_tags_dataset_builder as embedded_tags

VERBS = frozenset('contains creates has returns takes uses'.split())
LONGEST = 24  # words; longer sentences are skipped


class Builder(columns.PropositionBuilder):
  """One example is one sentence with one of its verbs."""

  BUILDER_CONFIGS = [base.TextConfig(name='default')]

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    del paths
    rows = []
    for _, text in embedded_tags.sentences(split):
      if len(text) <= LONGEST:
        rows += [(i, text, labels(text, i)) for i, word in enumerate(text) if word in VERBS]
    return self.rows(split, iter(rows))

  def _paths(self, dl_manager: tfds.download.DownloadManager) -> dict[str, str]:
    return {}


def labels(words: list[str], predicate: int) -> list[str]:
  """Return the roles of a verb: A0 are the words before it and A1 those after it, up to a word without letters."""
  before, after = predicate, predicate + 1
  while before and words[before - 1].isalpha():
    before -= 1
  while after < len(words) and words[after].isalpha():
    after += 1
  span = lambda role, count: [f'B-{role}', *[f'I-{role}'] * (count - 1)][:count]
  roles = [*span('A0', predicate - before), 'B-V', *span('A1', after - predicate - 1)]
  return ['O'] * before + roles + ['O'] * (len(words) - after)
