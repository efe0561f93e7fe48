"""Class-based n-gram models: p(w | h) = p(c(w) | c(h)) p(w | c(w)) (Brown et al. 1992).

Classes are found by the exchange algorithm (Kneser & Ney 1993; Martin, Liermann & Ney 1998). Words are moved, one after
another and most frequent first, to the class that maximises the likelihood of the training text under a class bigram,

    F = sum over c, c' of f(N(c, c')) - sum over c of f(N(c, .)) - sum over c of f(N(., c)),     f(n) = n log n,

which is Brown's average mutual information up to a constant. Brown's own search merges classes, so the two find
different classes of similar quality. p(c(w) | c(h)) is a back-off Kneser-Ney model over the classes
(lmx/metrics/ngram.py). p(w | c) is a relative frequency with 1 added to every count, because a closed vocabulary may
have words that the training text does not.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from lmx.errors import InputError
from lmx.metrics import ngram


@dataclasses.dataclass(frozen=True)
class ClassModel:
  """Class-based model; built by `fit`, used by `score`.

  Attributes:
    class_of: class of each word, (V,) int64.
    word: log p(w | c(w)), (V,) float64.
    ngram: n-gram model over classes.
  """

  class_of: np.ndarray
  word: np.ndarray
  ngram: ngram.KneserNey


def fit(tokens: np.ndarray, class_of: np.ndarray, order: int, *, minimum: int = 2) -> ClassModel:
  """Estimate a model of the given order over classes, from `exchange` or elsewhere."""
  counts = np.bincount(tokens, minlength=len(class_of)) + 1.0
  total = np.bincount(class_of, counts)
  model = ngram.kneser_ney(class_of[tokens], len(total), order=order, backoff=True, minimum=minimum)
  return ClassModel(class_of, np.log(counts / total[class_of]), model)


def score(model: ClassModel, tokens: np.ndarray) -> tuple[float, np.ndarray]:
  """Return (total negative log-likelihood in nats, (tokens,) float64 of each token)."""
  _, of_class = ngram.score(model.ngram, model.class_of[tokens])
  nll = of_class - model.word[tokens]
  return float(nll.sum()), nll


def exchange(tokens: np.ndarray, vocab_size: int, classes: int, *, passes: int = 5) -> np.ndarray:
  """Find classes by the exchange algorithm.

  Args:
    tokens: (tokens,) ids of the training text.
    vocab_size: V.
    classes: number of classes.
    passes: maximum number of passes over the vocabulary; the search ends when a pass moves no word.

  Returns:
    Class of each word, (V,) int64; initially the word's rank by frequency, modulo `classes`.

  Raises:
    InputError: fewer than 1 class, or more classes than words.
  """
  if not 1 <= classes <= vocab_size:
    raise InputError(f'classes: got {classes}; expected 1 to {vocab_size}, the words of the vocabulary')
  tokens = np.asarray(tokens).astype(np.int64)
  rank = np.argsort(-np.bincount(tokens, minlength=vocab_size), kind='stable')
  class_of = np.empty(vocab_size, np.int64)
  class_of[rank] = np.arange(vocab_size) % classes
  search = _Search(tokens, class_of, classes)
  for _ in range(passes):
    if not sum(search.move(int(word)) for word in rank):
      break
  return search.class_of


def objective(tokens: np.ndarray, class_of: np.ndarray) -> float:
  """Return the objective F of the module's docstring."""
  size = int(class_of.max()) + 1
  c = class_of[np.asarray(tokens)]
  pairs = np.bincount(c[:-1] * size + c[1:], minlength=size**2).reshape(size, size)
  return float(_f(pairs).sum() - _f(pairs.sum(0)).sum() - _f(pairs.sum(1)).sum())


def _f(n: np.ndarray) -> np.ndarray:
  return n * np.log(np.maximum(n, 1))


class _Search:
  """State of the exchange algorithm: class bigram counts, and neighbour counts of each word."""

  def __init__(self, tokens: np.ndarray, class_of: np.ndarray, classes: int):
    V = len(class_of)
    self.class_of, self.classes = class_of.copy(), classes
    packed, self._count = np.unique(tokens[:-1] * V + tokens[1:], return_counts=True)
    self._first, self._second = packed // V, packed % V
    self._by_second = np.argsort(self._second, kind='stable')
    ids = np.arange(V + 1)
    self._after = np.searchsorted(self._first, ids)  # start index of the pairs with each first word
    self._before = np.searchsorted(self._second[self._by_second], ids)
    a, b = class_of[self._first], class_of[self._second]
    self.pairs = np.bincount(a * classes + b, self._count, classes**2).reshape(classes, classes).astype(np.int64)

  def _neighbours(self, word: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return counts of the classes before and after a word, without the pair (word, word), and the count of that."""
    right = slice(self._after[word], self._after[word + 1])
    left = self._by_second[self._before[word] : self._before[word + 1]]
    after = np.bincount(self.class_of[self._second[right]], self._count[right], self.classes).astype(np.int64)
    before = np.bincount(self.class_of[self._first[left]], self._count[left], self.classes).astype(np.int64)
    pair_count = int(self._count[right][self._second[right] == word].sum())
    before[self.class_of[word]] -= pair_count
    after[self.class_of[word]] -= pair_count
    return before, after, pair_count

  def _update(self, c: int, before: np.ndarray, after: np.ndarray, pair_count: int, sign: int) -> None:
    self.pairs[:, c] += sign * before
    self.pairs[c] += sign * after
    self.pairs[c, c] += sign * pair_count

  def move(self, word: int) -> bool:
    """Move a word to its best class; return True if it changed."""
    before, after, pair_count = self._neighbours(word)
    home = int(self.class_of[word])
    if not before.any() and not after.any():
      return False
    self._update(home, before, after, pair_count, -1)
    gain = self._gains(before, after, pair_count)
    best = int(np.argmax(gain))
    # A gain within rounding error does not count as a move, so the search terminates.
    best = best if gain[best] > gain[home] + 1e-6 else home
    self._update(best, before, after, pair_count, 1)
    self.class_of[word] = best
    return best != home

  def _gains(self, before: np.ndarray, after: np.ndarray, pair_count: int) -> np.ndarray:
    """Return the change of F for each class that the word might join, (classes,), up to a constant."""
    pairs, rows, columns = self.pairs, np.flatnonzero(before), np.flatnonzero(after)
    from_left, to_right = pairs[rows], pairs[:, columns]
    gain = (_f(from_left + before[rows, None]) - _f(from_left)).sum(0)
    gain += (_f(to_right + after[columns]) - _f(to_right)).sum(1)
    # For pairs within the class, both sides are the same cell.
    inner = np.diagonal(pairs)
    gain += _f(inner + before + after + pair_count) + _f(inner) - _f(inner + before) - _f(inner + after)
    # The totals of the neighbours' classes regain the word's pairs, whichever class it joins.
    for total, added in (
      (pairs.sum(0) + after, before.sum() + pair_count),
      (pairs.sum(1) + before, after.sum() + pair_count),
    ):
      gain -= _f(total + added) - _f(total)
    return gain
