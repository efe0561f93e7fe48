"""The interpolated trigram of Bengio et al. 2003, "A Neural Probabilistic Language Model", section 4.2.

After Jelinek and Mercer (1980), deleted interpolation:

    P(w | w'', w') = a0(q) / V + a1(q) p1(w) + a2(q) p2(w | w') + a3(q) p3(w | w'', w')

with relative frequencies p1, p2, p3 of the training text and weights that depend on the count of the context,
q = l(frequency of w'', w') with l(f) = ceil(-log((1 + f) / T)) for a training text of T words. The weights of each q
are estimated by EM, in about five iterations, on held-out text: the validation split.

An unseen context has no relative frequencies; those of the lower order replace them. A value of q that the held-out
text does not have gets the weights of the nearest one. The text is one stream, with two boundary tokens before its
first word.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from lmx.errors import InputError

ITERATIONS = 5  # section 4.2


@dataclasses.dataclass(frozen=True)
class _Table:
  """Relative frequencies of one order.

  Attributes:
    contexts: sorted packed contexts.
    counts: number of words that followed each.
    grams: sorted packed (index of the context, word).
    share: relative frequency of each gram.
  """

  contexts: np.ndarray
  counts: np.ndarray
  grams: np.ndarray
  share: np.ndarray


@dataclasses.dataclass(frozen=True)
class Trigram:
  """Interpolated trigram; built by `fit`, used by `score`.

  Attributes:
    V: vocabulary size.
    T: number of words of the training text.
    unigram: p1, (V,) float64.
    bigram: p2.
    trigram: p3.
    classes: values of q that have weights, in increasing order.
    weights: a0 .. a3 of each, (classes, 4) float64.
  """

  V: int
  T: int
  unigram: np.ndarray
  bigram: _Table
  trigram: _Table
  classes: np.ndarray
  weights: np.ndarray


def fit(tokens: np.ndarray, held_out: np.ndarray, vocab_size: int, iterations: int = ITERATIONS) -> Trigram:
  """Count the frequencies on `tokens` and estimate the weights on `held_out`.

  Args:
    tokens: (T,) ids of the training text.
    held_out: (words,) ids of another text.
    vocab_size: V.
    iterations: number of EM iterations, from equal weights.

  Raises:
    InputError: an id outside the vocabulary, or a text without words.
  """
  V = vocab_size
  w, previous, pair = _windows(tokens, V)
  model = Trigram(
    V,
    len(w),
    np.bincount(w, minlength=V) / len(w),
    _count(previous, w, V),
    _count(pair, w, V),
    np.zeros(0, np.int64),
    np.zeros((0, 4)),
  )
  p, q = _probabilities(model, held_out)
  classes, class_index = np.unique(q, return_inverse=True)
  weights = np.full((len(classes), 4), 0.25)
  words = np.bincount(class_index)
  for _ in range(iterations):
    share = weights[class_index] * p
    share /= share.sum(1, keepdims=True)
    weights = np.stack([np.bincount(class_index, share[:, i]) for i in range(4)], 1) / words[:, None]
  return dataclasses.replace(model, classes=classes, weights=weights)


def score(model: Trigram, tokens: np.ndarray) -> tuple[float, np.ndarray]:
  """Return (total negative log-likelihood in nats, (words,) float64 of each word). Raises InputError."""
  p, q = _probabilities(model, tokens)
  nll = -np.log((model.weights[_nearest(model.classes, q)] * p).sum(1))
  return float(nll.sum()), nll


def _windows(tokens: np.ndarray, V: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Return (each word, its previous word, its packed previous two); words before the text have id V."""
  tokens = np.asarray(tokens)
  if tokens.ndim != 1 or not tokens.size:
    raise InputError(f'tokens: got shape {tokens.shape}; expected a 1-D array with at least one word')
  if tokens.min() < 0 or tokens.max() >= V:
    raise InputError(f'word ids: got {tokens.min()} to {tokens.max()}; expected 0 to {V - 1}')
  x = np.concatenate([[V, V], tokens.astype(np.int64)])
  return x[2:], x[1:-1], x[:-2] * (V + 1) + x[1:-1]


def _count(context: np.ndarray, w: np.ndarray, V: int) -> _Table:
  contexts, context_index, counts = np.unique(context, return_inverse=True, return_counts=True)
  grams, gram_counts = np.unique(context_index * (V + 1) + w, return_counts=True)
  return _Table(contexts, counts, grams, gram_counts / counts[grams // (V + 1)])


def _look_up(table: _Table, context: np.ndarray, w: np.ndarray, V: int, lower_order: np.ndarray) -> Any:
  """Return (relative frequency of each word, or `lower_order` where its context is new; count of its context)."""
  index = np.minimum(np.searchsorted(table.contexts, context), len(table.contexts) - 1)
  is_known = table.contexts[index] == context
  packed = index * (V + 1) + w
  gram = np.minimum(np.searchsorted(table.grams, packed), len(table.grams) - 1)
  share = np.where(table.grams[gram] == packed, table.share[gram], 0.0)
  return np.where(is_known, share, lower_order), np.where(is_known, table.counts[index], 0)


def _probabilities(model: Trigram, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Return p0 .. p3 of each word, (words, 4), and its class q."""
  w, previous, pair = _windows(tokens, model.V)
  p1 = model.unigram[w]
  p2, _ = _look_up(model.bigram, previous, w, model.V, p1)
  p3, frequency = _look_up(model.trigram, pair, w, model.V, p2)
  q = np.ceil(-np.log((1 + frequency) / model.T)).astype(np.int64)
  return np.stack([np.full(len(w), 1 / model.V), p1, p2, p3], 1), q


def _nearest(classes: np.ndarray, q: np.ndarray) -> np.ndarray:
  """Return the index of the class nearest to each q, the lower one on ties."""
  if len(classes) == 1:
    return np.zeros_like(q)
  above = np.clip(np.searchsorted(classes, q), 1, len(classes) - 1)
  return np.where(q - classes[above - 1] <= classes[above] - q, above - 1, above)
