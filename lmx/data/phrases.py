"""Phrases: words that keep company are joined into one ("new_york"), as word2phrase does before word2vec.

Mikolov et al. 2013 (arXiv 1310.4546, section 4): score(a, b) = (count(a b) - discount) / (count(a) count(b)), a pair
above the threshold is joined, and several passes with falling thresholds find longer phrases. As in the released
word2phrase.c the score is multiplied by the number of words of the text, which makes thresholds (200, then 100)
independent of its size, and a text is joined from left to right, a word belonging to one pair at most in a pass.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from lmx.errors import check_range

Sentences = Callable[[], Iterable[list[str]]]  # a text that can be read several times


class Phrases(NamedTuple):
  """Pairs to be joined, with their scores, and what joins them."""

  scores: Mapping[tuple[str, str], float]
  joint: str

  def apply(self, words: list[str]) -> list[str]:
    """Join the pairs of one sentence, from left to right."""
    found: list[str] = []
    at = 0
    while at < len(words):
      joined = at + 1 < len(words) and (words[at], words[at + 1]) in self.scores
      found.append(self.joint.join(words[at : at + 2]) if joined else words[at])
      at += 2 if joined else 1
    return found


def learn(
  sentences: Iterable[list[str]],
  *,
  threshold: float = 200.0,
  discount: float = 5.0,
  min_count: int = 5,
  joint: str = '_',
) -> Phrases:
  """Find the pairs of one pass.

  Args:
    sentences: lists of words; a pair does not reach over the end of one.
    threshold: 200 in the first pass of the released demo, 100 in the second.
    discount: delta of the paper; word2phrase.c takes `min_count` for it.
    min_count: rarer words and pairs are in no phrase.
    joint: stands between the words of a phrase.
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
  """Yield the phrases of one pass after the other, each over the text that those before have joined."""
  found: list[Phrases] = []
  for threshold in thresholds:
    text = (_joined(words, found) for words in sentences())
    found.append(learn(text, threshold=threshold, discount=discount, min_count=min_count, joint=joint))
    yield found[-1]


def _joined(words: list[str], found: Iterable[Phrases]) -> list[str]:
  for phrases in found:
    words = phrases.apply(words)
  return words
