"""Pairs of texts from the embedded corpus: are the words of the second in the first?"""

from __future__ import annotations

import random
from collections.abc import Iterator

import tensorflow_datasets.public_api as tfds

from lmx.data import sentences
from lmx.data.builders import base
from lmx.data.builders.embedded import prose

LABELS = ('contained', 'not_contained')
WORDS = 5  # of a second text
MOST = {'train': 3_000, 'valid': 300, 'test': 300}


class Builder(base.TextBuilder):
  """An example is two texts, the first with the label."""

  BUILDER_CONFIGS = [base.TextConfig(name='default')]

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    for number, (first, second, label) in enumerate(generate(split)):
      yield f'{split}-{number}.0', first, label
      yield f'{split}-{number}.1', second, ''

  def sizes(self, text: str) -> dict[str, int]:
    return {}

  def _paths(self, dl_manager: tfds.download.DownloadManager) -> dict[str, str]:
    return {}


def generate(split: str) -> list[tuple[str, str, str]]:
  """Return (sentence, words, label) of each pair of a split, the same each time; both labels are equally frequent.

  The words are consecutive words of the sentence, or of the sentence that follows it.
  """
  chosen = [document for document in prose.documents() if prose.split_of(document[0]) == split]
  neighbours: list[tuple[list[str], list[str]]] = []
  for _, text, _ in sorted(chosen, key=lambda document: prose.digest(document[0])):
    texts = [words for sentence in sentences.split(text, 'prose') if 8 <= len(words := sentence.split()) <= 25]
    neighbours += zip(texts[::2], texts[1::2], strict=False)
  draw, pairs = random.Random(split), []
  for number, neighbour in enumerate(neighbours[: MOST[split] // 2 * 2]):
    words = neighbour[number % 2]
    at = draw.randrange(len(words) - WORDS + 1)
    pairs.append((' '.join(neighbour[0]), ' '.join(words[at : at + WORDS]), LABELS[number % 2]))
  return pairs
