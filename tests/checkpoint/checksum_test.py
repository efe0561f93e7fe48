"""Checksums: against a plain re-statement, and what they must and must not see."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from lmx.checkpoint import checksum


def test_equals_a_plain_reference():
  def plain(words: np.ndarray) -> int:
    total = 0
    for position, word in enumerate(words.tolist()):
      h = word ^ (position * 0x9E3779B9 % 2**32)
      h = ((h ^ h >> 16) * 0x85EBCA6B) % 2**32
      h = ((h ^ h >> 13) * 0xC2B2AE35) % 2**32
      total += h ^ h >> 16
    return total % 2**32

  x = np.random.default_rng(0).normal(size=(3, 5, 7)).astype(np.float32)
  half = jnp.asarray(x, jnp.bfloat16)
  counts = np.array([1, -(2**40)], np.int64)
  assert checksum.checksums([x, jnp.asarray(x), half, x > 0, counts, x[:0]]) == [
    plain(x.reshape(-1).view(np.uint32)),
    plain(x.reshape(-1).view(np.uint32)),
    plain(np.asarray(half).reshape(-1).view(np.uint16)),
    plain((x > 0).reshape(-1).astype(np.uint8)),
    plain(counts.view(np.uint32)),
    0,
  ]


def test_checksum_depends_on_values_not_sharding():
  x = np.random.default_rng(0).normal(size=(16, 24)).astype(np.float32)
  changed = [x]
  for bit in (0, 13, 31):
    y = x.copy()
    y.view(np.uint32)[3, 4] ^= 1 << bit
    changed.append(y)
  both = x.copy()  # two signs: a sum weighted by position alone would not see it
  both.view(np.uint32)[0, :2] ^= 1 << 31
  changed += [both, x[::-1].copy(), np.roll(x, 1)]
  assert len(set(checksum.checksums(changed))) == len(changed)
  mesh = jax.make_mesh((2, 4), ('a', 'b'))
  placed = [jax.device_put(x, NamedSharding(mesh, PartitionSpec(*s))) for s in ((), ('a',), ('a', 'b'), (None, 'b'))]
  assert set(checksum.checksums(placed)) == set(checksum.checksums([x])) == {int(checksum._checksum(y)) for y in placed}


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16', 'int8', 'int4', 'bool', 'uint16', 'int32', 'complex64'])
def test_xla_and_numpy_agree(dtype):
  """What was saved on an accelerator is read on a host, also where it is longer than NumPy's chunks."""
  x = jnp.asarray(4 * np.random.default_rng(1).normal(size=(3, 50_001))).astype(dtype)
  assert checksum.checksums([x, np.asarray(x)]) == [int(checksum._checksum(x))] * 2
