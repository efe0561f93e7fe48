"""Dropout with explicit keys (Srivastava et al. 2014), and its kinds for recurrent models.

`locked_dropout` has one mask for all steps of a sequence (Gal & Ghahramani 2016, arXiv 1512.05287, section 4),
`word_dropout` drops all occurrences of a word (the same, section 4.2), and DropConnect on recurrent weights (Wan et al.
2013; Merity et al. 2018, arXiv 1708.02182, section 2) is `dropout` of the matrix before the loop that uses it.

The mask is a hash of the element's index, never stored (lmx/kernels/hash_dropout.py).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lmx.kernels.hash_dropout import drop, seed
from lmx.types import Array


def dropout(x: Array, rate: float, key: Array | None) -> Array:
  """Zero each element with probability `rate` and divide the others by 1 - rate; key=None changes nothing."""
  return x if key is None else drop(x, rate, seed(key))


def locked_dropout(x_TBD: Array, rate: float, key: Array | None) -> Array:
  """Dropout with one mask (1, B, D) for all steps: a unit of a row is dropped throughout or never."""
  if key is None or rate == 0.0:
    return x_TBD
  return x_TBD * drop(jnp.ones((1, *x_TBD.shape[1:]), x_TBD.dtype), rate, seed(key))


def word_dropout(x_TBD: Array, tokens_TB: Array, V: int, rate: float, key: Array | None) -> Array:
  """Zeroes the embedding of whole words, drawn once for the batch, and divides the others by 1 - rate.

  The same as dropping rows of the embedding table, without the table being copied.

  Args:
    x_TBD: embeddings of `tokens_TB`, axes in any order as long as they are the same.
    tokens_TB: their ids.
    V: number of words.
    rate: probability that a word is dropped.
    key: None changes nothing.
  """
  if key is None or rate == 0.0:
    return x_TBD
  mask_V = drop(jnp.ones((1, V), x_TBD.dtype), rate, seed(key))[0]
  return x_TBD * jnp.take(mask_V, tokens_TB, mode='clip')[..., None]


def split(key: Array | None, n: int) -> list[Array | None]:
  """`n` keys from one; `n` times None from None."""
  return [None] * n if key is None else list(jax.random.split(key, n))
