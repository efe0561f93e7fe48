"""Sentences of the embedded corpus with tagged identifiers of programs: a small set to test tagging."""

from __future__ import annotations

import re
from collections.abc import Iterator

import tensorflow_datasets.public_api as tfds

from lmx.data import sentences as sentence_rules
from lmx.data.builders import base
from lmx.data.builders.embedded import prose
from lmx.data.tokenizers import words

_NAME = re.compile(r'\w+_\w*|_\w+|\w+\.\w[\w.]*|[a-z]+[A-Z]\w*|(?:[A-Z]+[a-z]+){2,}')
LONGEST = 64  # words; longer sentences are skipped


class Builder(base.TextBuilder):
  """One example is one sentence: its words as text, and their labels as label, separated by spaces."""

  BUILDER_CONFIGS = [base.TextConfig(name='default')]

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    del paths
    for name, tokens in sentences(split):
      yield name, ' '.join(tokens), ' '.join(labels(tokens))

  def _paths(self, dl_manager: tfds.download.DownloadManager) -> dict[str, str]:
    return {}


def sentences(split: str) -> Iterator[tuple[str, list[str]]]:
  """Yield (id, words) of the sentences of a split of the embedded corpus that have 2 to LONGEST words."""
  chosen = [document for document in prose.documents() if prose.split_of(document[0]) == split]
  for name, text, _ in sorted(chosen, key=lambda document: prose.digest(document[0])):
    for number, sentence in enumerate(sentence_rules.split(text, 'prose')):
      tokens = [word for word in words.split(sentence, 'prose') if word.strip()]
      if 1 < len(tokens) <= LONGEST:
        yield f'{name}#{number}', tokens


def labels(tokens: list[str]) -> list[str]:
  """Return O, B-name or I-name for each word."""
  names = [bool(_NAME.fullmatch(word)) for word in tokens]
  befores = [False, *names[:-1]]
  return [('I-name' if before else 'B-name') if name else 'O' for name, before in zip(names, befores, strict=True)]
