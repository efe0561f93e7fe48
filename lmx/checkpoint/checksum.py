"""Checksums of arrays, computed on the arrays' devices.

Arrays in this host's memory are summed by NumPy, because XLA would compile a program for every shape. Arrays on an
accelerator or sharded over several hosts are summed by XLA.

A checksum is the sum modulo 2**32 of the array's words. Each word is first mixed with its position by the finalizer of
MurmurHash3 (Appleby 2011), a bijection of 32 bits. So any change within one word is detected, and changes in several
words with probability 1 - 2**-32. The order of summation does not matter, hence neither do the sharding and the number
of devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_GOLDEN, _FIRST, _SECOND = (np.uint32(x) for x in (0x9E3779B9, 0x85EBCA6B, 0xC2B2AE35))
_CHUNK = 1 << 16  # values per chunk, which stays in a core's cache
_HALVED = ('int4', 'uint4', 'int2', 'uint2')  # some devices pack several values into a byte


@jax.jit
def _checksum(x: jax.Array) -> jax.Array:
  """Return the uint32 sum, modulo 2**32, of the array's words mixed with their positions."""
  if jnp.iscomplexobj(x):
    x = jnp.stack([x.real, x.imag], axis=-1)
  if x.dtype == jnp.bool_ or jnp.dtype(x.dtype).name in _HALVED:
    x = x.astype(jnp.int8)
  bits = {1: jnp.uint8, 2: jnp.uint16}.get(x.dtype.itemsize, jnp.uint32)
  words = jax.lax.bitcast_convert_type(x, bits).astype(jnp.uint32)
  position = jnp.zeros(words.shape, jnp.uint32)
  for axis in range(words.ndim):
    stride = math.prod(words.shape[axis + 1 :]) % 2**32
    position += jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis) * np.uint32(stride)
  words ^= position * _GOLDEN  # then MurmurHash3's finalizer, a bijection of 32 bits
  words = (words ^ (words >> 16)) * _FIRST
  words = (words ^ (words >> 13)) * _SECOND
  return jnp.sum(words ^ (words >> 16), dtype=jnp.uint32)


def _on_host(x: np.ndarray, dtype: np.dtype) -> int:
  """Return the same checksum for an array in host memory, with values converted to `dtype`.

  A 64-bit value counts as two 32-bit words. Values of another type are converted chunk by chunk.
  """
  dtype = np.dtype(np.int8) if dtype.name in _HALVED else dtype
  word = np.dtype({1: np.uint8, 2: np.uint16}.get(dtype.itemsize, np.uint32))
  numbers = np.ascontiguousarray(x).reshape(-1)
  total, start = 0, 0  # of the next word
  for first in range(0, numbers.size, _CHUNK):
    part = numbers[first : first + _CHUNK].astype(dtype, copy=False).view(word).astype(np.uint32)
    position = np.arange(start, start + part.size, dtype=np.int64).astype(np.uint32)
    start += part.size
    position *= _GOLDEN
    part ^= position
    for shift, factor in ((16, _FIRST), (13, _SECOND)):
      part ^= part >> np.uint32(shift)
      part *= factor
    part ^= part >> np.uint32(16)
    total += int(part.sum(dtype=np.uint64))
  return total % 2**32


def _in_memory(x: Any) -> bool:
  return not isinstance(x, jax.Array) or x.is_fully_addressable and {d.platform for d in x.devices()} == {'cpu'}


def checksums(leaves: Iterable[Any], dtypes: Iterable[Any] | None = None) -> list[int]:
  """Return each JAX or NumPy array's checksum; all device checksums are computed before the first is fetched.

  Args:
    leaves: the arrays.
    dtypes: type of each array's values in the checksum; by default the array's own.
  """
  leaves = list(leaves)
  types = [leaf.dtype for leaf in leaves] if dtypes is None else dtypes
  sums = [
    _on_host(np.asarray(leaf), np.dtype(dtype)) if _in_memory(leaf) else _checksum(leaf.astype(dtype))
    for leaf, dtype in zip(leaves, types, strict=True)
  ]
  return [int(x) for x in jax.device_get(sums)]
