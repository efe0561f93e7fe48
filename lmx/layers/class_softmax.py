"""Class-factored softmax: p(word | h) = p(class | h) p(word | class, h) (Mikolov et al. 2011, "Extensions of Recurrent
Neural Network Language Model", ICASSP, section 3; Goodman 2001).

Every word has one class. The classes are intervals of the vocabulary, which is sorted by frequency. Deviation: the
papers compute only the words of the target's class, which saves time; here all logits of a chunk are computed, as one
product.

Axes: K classes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from lmx.errors import InputError
from lmx.layers import softmax
from lmx.ops import softmax_loss
from lmx.types import Array, Table

MASSES = ('root', 'frequency')


def starts(counts: Iterable[int], classes: int, mass: str) -> tuple[int, ...]:
  """Return the first word of each class but the first, so that all have about the same mass.

  As Mikolov's toolkit assigns classes (rnnlmlib.cpp, `initNet`): words are taken in the order of the vocabulary, and a
  class ends with the word by which the sum of the masses exceeds its share.

  Args:
    counts: count of each word of the training text.
    classes: number K of classes.
    mass: 'frequency', the words' relative frequencies (its option -old-classes), or 'root', their square roots.

  Raises:
    InputError: so few words have so much of the mass that there are fewer classes.
  """
  masses = [math.sqrt(count) if mass == 'root' else float(count) for count in counts]
  total, ends, found = sum(masses) or 1.0, itertools.accumulate(masses), list[int]()
  for word, end in enumerate(ends):
    if len(found) < classes - 1 and end / total > (len(found) + 1) / classes:
      found.append(word + 1)
  found = [start for start in found if start < len(masses)]
  if len(found) < classes - 1:
    raise InputError(
      f'model.classes: got {classes}; expected at most {len(found) + 1}, which the words of the training text fill; '
      'lower it'
    )
  return tuple(found)


def class_of(first: Sequence[int], rows: int) -> np.ndarray:
  """Return the class of each of `rows` words, (V,) int32, from the first words of all classes but the first."""
  return np.searchsorted(np.asarray(first, np.int64), np.arange(rows), side='right').astype(np.int32)


def log_probabilities(
  x_BTD: Array, table_VD: Table, classes_KD: Array, class_V: np.ndarray, bias_V: Array | None = None, *, size: int = 0
) -> Array:
  """Return log p of every word, (B, T, V) float32; `size` as in `softmax.tied_logits`."""
  words_BTV = softmax.tied_logits(x_BTD, table_VD, bias_V, size=size)
  classes_BTK = jax.nn.log_softmax(softmax.tied_logits(x_BTD, classes_KD))
  lowest_BTK = jnp.full_like(classes_BTK, -jnp.inf)
  highest_BTK = jax.lax.stop_gradient(lowest_BTK.at[..., class_V].max(words_BTV))
  exponentials_BTV = jnp.exp(words_BTV - highest_BTK[..., class_V])
  within_BTK = highest_BTK + jnp.log(jnp.zeros_like(classes_BTK).at[..., class_V].add(exponentials_BTV))
  return words_BTV + (classes_BTK - within_BTK)[..., class_V]


def nll(
  x_BTD: Array,
  table_VD: Table,
  classes_KD: Array,
  class_V: np.ndarray,
  targets_BT: Array,
  bias_V: Array | None = None,
  *,
  size: int = 0,
) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32."""

  def score(x_BMD: Array, targets_BM: Array) -> Array:
    words_BMV = softmax.tied_logits(x_BMD, table_VD, bias_V, size=size)
    class_BM = jnp.asarray(class_V)[targets_BM]
    within_BMV = jnp.where(class_V == class_BM[..., None], words_BMV, -jnp.inf)
    target_BM = softmax_loss.target_logits(words_BMV, targets_BM)
    of_class_BM = softmax.cross_entropy(softmax.tied_logits(x_BMD, classes_KD), class_BM)
    return of_class_BM + jax.nn.logsumexp(within_BMV, axis=-1) - target_BM

  return softmax_loss.token_losses(score, x_BTD, targets_BT)
