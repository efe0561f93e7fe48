"""Sampled softmax over a vocabulary sorted by falling frequency (Jean et al. 2015, arXiv 1412.2007, section 3).

Classes are drawn without repetition from the log-uniform distribution p(v) = log((v + 2) / (v + 1)) / log(V + 1), which
is near Zipf's law where class v is the (v + 1)-th most frequent. The scores are corrected by the logarithm of the
expected number of times (0 to 1) that a class is among those drawn.

`tf.nn.sampled_softmax_loss` (unique) draws until `samples` different classes are found. The same distribution comes
from one top-k: the classes with the largest log p(v) + Gumbel noise. TensorFlow puts the number n of draws that it
happened to need into 1 - (1 - p(v))^n; here n is the one number for which these expectations sum to `samples`, so
the correction is not random.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from lmx.types import Array


@functools.cache
def tries(V: int, samples: int) -> float:
  """Number of draws (a fraction) in which `samples` different classes of V are to be expected."""
  p_V = np.log1p(1.0 / (np.arange(V) + 1.0)) / math.log(V + 1)
  log_not_V = np.log1p(-p_V)
  low, high = float(samples), float(samples)
  found = lambda n: float(-np.expm1(n * log_not_V).sum())
  while found(high) < samples:
    high *= 2.0
  for _ in range(60):
    middle = 0.5 * (low + high)
    low, high = (middle, high) if found(middle) < samples else (low, middle)
  return high


def _p(ids: Array, V: int) -> Array:
  return jnp.log1p(1.0 / (ids.astype(jnp.float32) + 1.0)) / math.log(V + 1)


def draw(key: Array, V: int, samples: int) -> Array:
  """Different classes in no order that matters, (S,) int32; samples < V."""
  score_V = jnp.log(_p(jnp.arange(V), V)) + jax.random.gumbel(key, (V,), jnp.float32)
  return jax.lax.top_k(score_V, samples)[1].astype(jnp.int32)


def log_expected(ids: Array, V: int, samples: int) -> Array:
  """Logarithm of the probability that a class is among those drawn, in the shape of `ids`."""
  return jnp.log(-jnp.expm1(tries(V, samples) * jnp.log1p(-_p(ids, V))))


def nll(
  x_BTD: Array,
  table_VD: Array,
  bias_V: Array,
  targets_BT: Array,
  key: Array,
  samples: int,
  *,
  correct_target: bool = True,
) -> Array:
  """Sampled loss of each target in nats, (B, T) float32. It is no perplexity's logarithm.

  Args:
    x_BTD: last hidden layer.
    table_VD: output matrix, rows by falling frequency.
    bias_V: of the output.
    targets_BT: int32.
    key: draws the classes, the same for all positions; a position's own target is taken out of them.
    samples: number of classes drawn, below V.
    correct_target: correct the target's score too, as TensorFlow does: where the scores are log-probabilities the
      expected gradient is then 0. Without it exp(loss) has the expectation exp(full loss) for any scores.
  """
  V = table_VD.shape[0]
  ids_S = draw(key, V, samples)
  rows_SD, rows_BTD = table_VD[ids_S].astype(x_BTD.dtype), table_VD[targets_BT].astype(x_BTD.dtype)
  score_BTS = jnp.einsum('BTD,SD->BTS', x_BTD, rows_SD, preferred_element_type=jnp.float32)
  score_BTS = score_BTS + (bias_V[ids_S] - log_expected(ids_S, V, samples))
  score_BTS = jnp.where(targets_BT[..., None] == ids_S, -jnp.inf, score_BTS)
  target_BT = jnp.einsum('BTD,BTD->BT', x_BTD, rows_BTD, preferred_element_type=jnp.float32) + bias_V[targets_BT]
  if correct_target:
    target_BT = target_BT - log_expected(targets_BT, V, samples)
  return jnp.logaddexp(target_BT, jax.nn.logsumexp(score_BTS, axis=-1)) - target_BT
