"""Dropout whose mask is a hash of the element's index.

The mask is computed where it is used and again in the backward pass. So it is never stored and costs a few integer
operations per element. Sampling it with threefry takes as long on a CPU as the layer that it regularises.

Each row (all axes but the last) gets a start and an odd stride from the key, and `lowbias32` (C. Wellons, "Prospecting
for hash functions", 2018) hashes start + stride * column. The mask depends only on key, shape and index. Therefore
all implementations of a layer, and all shardings of an array, drop the same units.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from lmx.types import Array


def seed(key: Array) -> Array:
  """Return two words from a key, of any generator: (2,) uint32."""
  return jax.random.bits(key, (2,), jnp.uint32)


def _mix(x: Array) -> Array:
  """Apply lowbias32, a bijection of 32-bit words in which each output bit depends on every input bit."""
  x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
  x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
  return x ^ (x >> 16)


def mask(seed_2: Array, rate: float, rows: Array, columns: Array) -> Array:
  """Return the mask of the elements that dropout keeps.

  Args:
    seed_2: from `seed`.
    rate: probability of being dropped, 0 <= rate < 1.
    rows: uint32 numbers of rows, any shape.
    columns: uint32 numbers of columns, (S,).

  Returns:
    Boolean, rows.shape + (S,).
  """
  return mask_of_columns((seed_2[0], seed_2[1]), rate, rows[..., None], columns.reshape((1,) * rows.ndim + (-1,)))


def mask_of_columns(words: tuple[Array, Array], rate: float, rows: Array, columns: Array) -> Array:
  """Return `mask` of rows and columns that broadcast, such as (R, 1) and (R, S), from the two words of a seed."""
  start = _mix(rows ^ words[0])
  stride = _mix(start ^ words[1]) | jnp.uint32(1)
  return _mix(start + stride * columns) >= jnp.uint32(min(round(rate * 2**32), 2**32 - 1))


def mask_like(x: Array, rate: float, seed_2: Array) -> Array:
  """Return `mask` for every element of an array."""
  rows = jax.lax.iota(jnp.uint32, max(x.size // x.shape[-1], 1)).reshape(x.shape[:-1])
  return mask(seed_2, rate, rows, jax.lax.iota(jnp.uint32, x.shape[-1]))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _drop(rate: float, x: Array, seed_2: Array) -> Array:
  return jnp.where(mask_like(x, rate, seed_2), x * jnp.asarray(1.0 / (1.0 - rate), x.dtype), jnp.zeros((), x.dtype))


def _drop_forward(rate: float, x: Array, seed_2: Array) -> tuple[Array, Array]:
  return _drop(rate, x, seed_2), seed_2


def _drop_backward(rate: float, seed_2: Array, g: Array) -> tuple[Array, None]:
  return _drop(rate, g, seed_2), None


_drop.defvjp(_drop_forward, _drop_backward)


def drop(x: Array, rate: float, seed_2: Array | None) -> Array:
  """Zero each element with probability `rate`, scale the others by 1 / (1 - rate); `seed_2` None returns x."""
  return x if seed_2 is None or rate == 0.0 else _drop(rate, x, seed_2)
