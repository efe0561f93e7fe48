"""Checksums of arrays, computed where the arrays are.

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
_CHUNK = 1 << 16  # words; a chunk stays in a core's cache
_HALVED = ('int4', 'uint4', 'int2', 'uint2')  # some devices pack several of these into a byte


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


def _on_host(x: np.ndarray) -> int:
  """Return the same checksum for an array in host memory; a 64-bit number counts as two 32-bit words."""
  if x.dtype.name in _HALVED:
    x = x.astype(np.int8)
  word = {1: np.uint8, 2: np.uint16}.get(x.dtype.itemsize, np.uint32)
  words = np.ascontiguousarray(x).reshape(-1).view(word)
  total = 0
  for start in range(0, words.size, _CHUNK):
    part = words[start : start + _CHUNK].astype(np.uint32)
    position = np.arange(start, start + part.size, dtype=np.int64).astype(np.uint32)
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


def checksums(leaves: Iterable[Any]) -> list[int]:
  """Return the checksum of each JAX or NumPy array; all those on devices are computed before the first is fetched."""
  sums = [_on_host(np.asarray(leaf)) if _in_memory(leaf) else _checksum(leaf) for leaf in leaves]
  return [int(x) for x in jax.device_get(sums)]
