"""Dropout with explicit keys (Srivastava et al. 2014), whose mask is a hash of the element's index.

The mask costs a few integer operations per element. Sampling it with threefry takes as long on a CPU as a whole layer.

Each row (all axes but the last) gets a start and an odd stride from the key, and `lowbias32` (C. Wellons, "Prospecting
for hash functions", 2018) hashes start + stride * column. The mask depends only on key, shape and index. Therefore
all implementations of a layer, and all shardings of an array, drop the same units.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lmx.ops.operation import Operation
from lmx.types import Array


def dropout(x: Array, rate: float, key: Array | None) -> Array:
  """Zero each element with probability `rate` and scale the others by 1 / (1 - rate); key=None returns x."""
  return x if key is None else drop(x, rate, seed(key))


def split(key: Array | None, n: int) -> list[Array | None]:
  """Split a key into `n`; None gives `n` times None."""
  return [None] * n if key is None else list(jax.random.split(key, n))


def seed(key: Array) -> Array:
  """Return two words from a key, of any generator: (2,) uint32."""
  return jax.random.bits(key, (2,), jnp.uint32)


@Operation
def drop(x: Array, rate: float, seed_2: Array | None) -> Array:
  """Zero each element with probability `rate`, scale the others by 1 / (1 - rate); `seed_2` None returns x."""
  if seed_2 is None or rate == 0.0:
    return x
  return jnp.where(mask_like(x, rate, seed_2), x * jnp.asarray(1.0 / (1.0 - rate), x.dtype), jnp.zeros((), x.dtype))


def mask_like(x: Array, rate: float, seed_2: Array) -> Array:
  """Return `mask` for every element of an array."""
  rows = jax.lax.iota(jnp.uint32, max(x.size // x.shape[-1], 1)).reshape(x.shape[:-1])
  return mask(seed_2, rate, rows, jax.lax.iota(jnp.uint32, x.shape[-1]))


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
  start = mix(rows[..., None] ^ seed_2[0])
  stride = mix(start ^ seed_2[1]) | jnp.uint32(1)
  return mix(start + stride * columns) >= jnp.uint32(min(round(rate * 2**32), 2**32 - 1))


def mix(x: Array) -> Array:
  """Apply lowbias32, a bijection of 32-bit words in which each output bit depends on every input bit."""
  x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
  x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
  return x ^ (x >> 16)
