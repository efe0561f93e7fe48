"""Dropout with explicit keys (Srivastava et al. 2014), and its kinds for recurrent models.

`locked_dropout` has one mask for all steps of a sequence (Gal & Ghahramani 2016, arXiv 1512.05287, section 4),
`word_dropout` drops all occurrences of a word (the same, section 4.2), and DropConnect on recurrent weights (Wan et al.
2013; Merity et al. 2018, arXiv 1708.02182, section 2) is `dropout` of the matrix before the loop that uses it.

The mask is a hash of the element's index, computed where it is used and again in the backward pass, so it is never
stored and costs a few integer operations an element; drawing it with threefry takes as long on a CPU as the layer it
regularises. The hash: each row (all axes but the last) gets a start and an odd stride from the key, and
`lowbias32` (C. Wellons, "Prospecting for hash functions", 2018) scrambles start + stride * column. A mask depends on
nothing but key, shape and index; so two ways of computing the same layer drop the same units, and every
sharding of an array does as well.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from lmx.types import Array


def seed(key: Array) -> Array:
  """Two words from a key, of any generator: (2,) uint32."""
  return jax.random.bits(key, (2,), jnp.uint32)


def _mix(x: Array) -> Array:
  """lowbias32: a bijection of 32-bit words in which each output bit depends on every input bit."""
  x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
  x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
  return x ^ (x >> 16)


def kept(seed_2: Array, rate: float, rows: Array, columns: Array) -> Array:
  """Which elements dropout keeps.

  Args:
    seed_2: from `seed`.
    rate: probability of being dropped, 0 <= rate < 1.
    rows: uint32 numbers of rows, any shape.
    columns: uint32 numbers of columns, (S,).

  Returns:
    Boolean, rows.shape + (S,).
  """
  start = _mix(rows ^ seed_2[0])
  stride = _mix(start ^ seed_2[1]) | jnp.uint32(1)
  columns = columns.reshape((1,) * rows.ndim + (-1,))
  bits = _mix(start[..., None] + stride[..., None] * columns)
  return bits >= jnp.uint32(min(round(rate * 2**32), 2**32 - 1))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _drop(rate: float, x: Array, seed_2: Array) -> Array:
  rows = jax.lax.iota(jnp.uint32, max(x.size // x.shape[-1], 1)).reshape(x.shape[:-1])
  keep = kept(seed_2, rate, rows, jax.lax.iota(jnp.uint32, x.shape[-1]))
  return jnp.where(keep, x * jnp.asarray(1.0 / (1.0 - rate), x.dtype), jnp.zeros((), x.dtype))


def _drop_forward(rate, x, seed_2):
  return _drop(rate, x, seed_2), seed_2


def _drop_backward(rate, seed_2, g):
  return _drop(rate, g, seed_2), None


_drop.defvjp(_drop_forward, _drop_backward)


def dropout(x: Array, rate: float, key: Array | None) -> Array:
  """Zeroes each element with probability `rate` and divides the others by 1 - rate; key=None changes nothing."""
  return x if key is None else drop(x, rate, seed(key))


def drop(x: Array, rate: float, seed_2: Array | None) -> Array:
  """`dropout` by the two words of `seed`; None changes nothing."""
  return x if seed_2 is None or rate == 0.0 else _drop(rate, x, seed_2)


def locked_dropout(x_TBD: Array, rate: float, key: Array | None) -> Array:
  """Dropout with one mask (1, B, D) for all steps: a unit of a row is dropped throughout or never."""
  if key is None or rate == 0.0:
    return x_TBD
  return x_TBD * _drop(rate, jnp.ones((1, *x_TBD.shape[1:]), x_TBD.dtype), seed(key))


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
  mask_V = _drop(rate, jnp.ones((1, V), x_TBD.dtype), seed(key))[0]
  return x_TBD * jnp.take(mask_V, tokens_TB, mode='clip')[..., None]


def split(key: Array | None, n: int) -> list[Array | None]:
  """`n` keys from one; `n` times None from None."""
  return [None] * n if key is None else list(jax.random.split(key, n))
