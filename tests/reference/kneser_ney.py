"""Kneser-Ney, interpolated and backing off, restated with dictionaries and loops (Chen & Goodman 1999, section 3)."""

from __future__ import annotations

import collections

START = '<s>'


def _discounts(counts, modified):
  n = collections.Counter(counts)
  if not n[1] or not n[2] or (modified and not n[3]):
    return (0.5, 1.0, 1.5) if modified else (0.5, 0.5, 0.5)
  Y = n[1] / (n[1] + 2 * n[2])
  if not modified:
    return Y, Y, Y
  found = 1 - 2 * Y * n[2] / n[1], 2 - 3 * Y * n[3] / n[2], 3 - 4 * Y * n[4] / n[3]
  return found if all(0 < D <= i for i, D in enumerate(found, 1)) else (0.5, 1.0, 1.5)


class KneserNey:
  """P(word, history) over texts, each a list of ids in range(V)."""

  def __init__(self, texts, V, order, modified, minimum=1):
    self.V, self.order, self.minimum = V, order, minimum
    raw = collections.Counter()
    for text in texts:
      padded = [START, *text]
      for end in range(2, len(padded) + 1):
        for k in range(1, min(order, end) + 1):
          raw[tuple(padded[end - k : end])] += 1
    left = collections.defaultdict(set)
    for gram in raw:
      if len(gram) > 1:
        left[gram[1:]].add(gram[0])
    self.counts = {g: c if len(g) == order or g[0] == START else len(left[g]) for g, c in raw.items()}
    self.discounts = {
      k: _discounts([c for g, c in self.counts.items() if len(g) == k], modified) for k in range(1, order + 1)
    }

  def cut(self, count, k):
    """What is taken from the count of a k-gram."""
    if k > 2 and count < self.minimum:
      return count
    return self.discounts[k][min(count, 3) - 1] if count else 0.0

  def probability(self, word, history):
    history = tuple(history[len(history) - min(self.order - 1, len(history)) :])
    lower = self.probability(word, history[1:]) if history else 1 / self.V
    follow = {g: c for g, c in self.counts.items() if g[:-1] == history}
    total = sum(follow.values())
    if not total:
      return lower
    cut = lambda c: self.cut(c, len(history) + 1)
    count = follow.get((*history, word), 0)
    return (count - cut(count) + sum(map(cut, follow.values())) * lower) / total


class BackOff(KneserNey):
  """What was seen keeps its share; the rest is shared out as the lower order would, among what was not seen."""

  def probability(self, word, history):
    history = tuple(history[len(history) - min(self.order - 1, len(history)) :])
    if not history:
      return super().probability(word, history)
    follow = {g[-1]: c for g, c in self.counts.items() if g[:-1] == history}
    total = sum(follow.values())
    if not total:
      return self.probability(word, history[1:])
    share = {w: (c - self.cut(c, len(history) + 1)) / total for w, c in follow.items()}
    share = {w: s for w, s in share.items() if s > 0}
    unseen = [w for w in range(self.V) if w not in share]
    if not unseen:
      return share[word] / sum(share.values())
    if word in share:
      return share[word]
    others = sum(self.probability(w, history[1:]) for w in unseen)
    return (1 - sum(share.values())) * self.probability(word, history[1:]) / others
