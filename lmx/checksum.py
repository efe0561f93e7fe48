"""Checksums of arrays, computed where the arrays are.

A checksum is the sum modulo 2**32 of the array's words, each first mixed with its position by the
finalizer of MurmurHash3 (Appleby 2011), which is a bijection of 32 bits. So any change within one
word is seen, changes in several words with probability 1 - 2**-32, and the order of summation,
hence the sharding and the number of devices, does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def _checksum(x: jax.Array) -> jax.Array:
  """Returns the uint32 sum, modulo 2**32, of the array's words mixed with their positions."""
  if jnp.iscomplexobj(x):
    x = jnp.stack([x.real, x.imag], axis=-1)
  if x.dtype == jnp.bool_ or jnp.dtype(x.dtype).name in ('int4', 'uint4', 'int2', 'uint2'):
    x = x.astype(jnp.int8)
  bits = {1: jnp.uint8, 2: jnp.uint16}.get(x.dtype.itemsize, jnp.uint32)
  words = jax.lax.bitcast_convert_type(x, bits).astype(jnp.uint32)
  position = jnp.zeros(words.shape, jnp.uint32)
  for axis in range(words.ndim):
    stride = math.prod(words.shape[axis + 1 :]) % 2**32
    position += jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis) * np.uint32(stride)
  words ^= position * np.uint32(0x9E3779B9)  # then MurmurHash3's finalizer, a bijection of 32 bits
  words = (words ^ (words >> 16)) * np.uint32(0x85EBCA6B)
  words = (words ^ (words >> 13)) * np.uint32(0xC2B2AE35)
  return jnp.sum(words ^ (words >> 16), dtype=jnp.uint32)


def checksums(leaves: Iterable[Any]) -> list[int]:
  """Returns each jax or NumPy array's checksum; all are computed before the first is fetched."""
  sums = []
  for leaf in leaves:
    if isinstance(leaf, np.ndarray) and leaf.dtype.itemsize == 8:
      leaf = np.ascontiguousarray(leaf).reshape(-1).view(np.uint32)  # jnp would round 64 bits to 32
    sums.append(_checksum(leaf))
  return [int(x) for x in jax.device_get(sums)]
