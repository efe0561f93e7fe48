"""Phrases: words that often occur together are joined into one ("new_york"), as by word2phrase before word2vec.

Mikolov et al. 2013 (arXiv 1310.4546, section 4): score(a, b) = (count(a b) - discount) / (count(a) count(b)). A pair
above the threshold is joined, and several passes with decreasing thresholds build longer phrases. As in the released
word2phrase.c, the score is multiplied by the text's word count, which makes thresholds (200, then 100) independent of
its size. A text is joined from left to right, and a word belongs to at most one pair in a pass.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from lmx.errors import check_range

Sentences = Callable[[], Iterable[list[str]]]  # a text that can be read several times


class Phrases(NamedTuple):
  """Pairs to join, with their scores and the joining string."""

  scores: Mapping[tuple[str, str], float]
  joint: str

  def apply(self, words: list[str]) -> list[str]:
    """Join the pairs of one sentence, from left to right."""
    phrases: list[str] = []
    at = 0
    while at < len(words):
      joined = at + 1 < len(words) and (words[at], words[at + 1]) in self.scores
      phrases.append(self.joint.join(words[at : at + 2]) if joined else words[at])
      at += 2 if joined else 1
    return phrases


def learn(
  sentences: Iterable[list[str]],
  *,
  threshold: float = 200.0,
  discount: float = 5.0,
  min_count: int = 5,
  joint: str = '_',
) -> Phrases:
  """Return the pairs of one pass.

  Args:
    sentences: lists of words; pairs do not cross sentences.
    threshold: 200 in the first pass of the released demo, 100 in the second.
    discount: delta of the paper; word2phrase.c uses `min_count` for it.
    min_count: rarer words and pairs are in no phrase.
    joint: string between the words of a phrase.
  """
  check_range('threshold', threshold, 0)
  check_range('min_count', min_count, 1)
  words: collections.Counter[str] = collections.Counter()
  pairs: collections.Counter[tuple[str, str]] = collections.Counter()
  for sentence in sentences:
    words.update(sentence)
    pairs.update(zip(sentence, sentence[1:], strict=False))
  total = sum(words.values())
  scores = {}
  for (a, b), count in pairs.items():
    if min(words[a], words[b], count) >= min_count:
      score = (count - discount) / words[a] / words[b] * total
      if score > threshold:
        scores[a, b] = score
  return Phrases(scores, joint)


def passes(
  sentences: Sentences, thresholds: Iterable[float], *, discount: float = 5.0, min_count: int = 5, joint: str = '_'
) -> Iterator[Phrases]:
  """Yield the phrases of one pass after another, each over the text joined by the passes before."""
  previous: list[Phrases] = []
  for threshold in thresholds:
    text = (_join(words, previous) for words in sentences())
    previous.append(learn(text, threshold=threshold, discount=discount, min_count=min_count, joint=joint))
    yield previous[-1]


def _join(words: list[str], phrases_of_passes: Iterable[Phrases]) -> list[str]:
  for phrases in phrases_of_passes:
    words = phrases.apply(words)
  return words
