"""Hashed dropout against its mask applied by itself; the independence of its bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.kernels import dropout as kernels
from lmx.ops import dropout


def lowbias32(x: np.ndarray) -> np.ndarray:
  x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
  x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
  return x ^ (x >> 16)


def hashes(words: np.ndarray, row: np.ndarray, columns: int) -> np.ndarray:
  start = lowbias32(row ^ words[0])[..., None]
  stride = lowbias32(start ^ words[1]) | np.uint32(1)
  return lowbias32(start + stride * np.arange(columns, dtype=np.uint32))


def test_value_and_gradient_matches_reference():
  x, weight = np.random.default_rng(0).standard_normal((2, 4, 5, 64), np.float32)
  rate = 0.3

  @jax.jit
  def run(x, key):
    seed_2 = dropout.seed(key)
    y, back = jax.vjp(lambda x: kernels.drop(x, rate, seed_2), x)
    return seed_2, y, back(jnp.asarray(weight))[0]

  words, y, gradient = map(np.asarray, run(x, jax.random.key(3)))
  kept = hashes(words, np.arange(20, dtype=np.uint32).reshape(4, 5), 64) >= np.uint32(round(rate * 2**32))
  factor = np.where(kept, 1 / (1 - rate), 0.0)
  np.testing.assert_allclose(y, x * factor, rtol=1e-6)
  np.testing.assert_allclose(gradient, weight * factor, rtol=1e-6)


@pytest.mark.parametrize('rate', [0.1, 0.5, 0.9])
def test_mask_where_upper_half_of_the_hash_is_that_of_the_limit(rate):
  """One of 2^16 elements, which only the lower half decides."""
  words, row = np.array([7, 2**31 + 5], np.uint32), np.arange(2**11, dtype=np.uint32)
  limit = round(rate * 2**32)
  expected = hashes(words, row, 2**10)
  assert np.sum(expected >> 16 == limit >> 16) > 10
  mask = dropout.mask(jnp.asarray(words), rate, jnp.asarray(row), jnp.arange(2**10, dtype=jnp.uint32))
  np.testing.assert_array_equal(mask, expected >= np.uint32(limit))


def test_seed_serves_every_generator():
  for impl in ('threefry2x32', 'rbg'):
    words = dropout.seed(jax.random.key(0, impl=impl))
    assert words.shape == (2,) and words.dtype == jnp.uint32


def test_bits_are_independent_along_rows_columns_and_keys():
  """Correlations of 2^20 fair bits with their neighbours stay within five deviations of zero."""
  shape = (16, 64, 1024)
  drop = jax.jit(lambda key: kernels.drop(jnp.ones(shape), 0.5, dropout.seed(key)))
  bits = lambda seed: np.asarray(drop(jax.random.key(seed))) - 1.0
  x = bits(0)
  limit = 5 / np.sqrt(x.size)
  for lag in (1, 2, 3, 8, 64, 512):
    assert abs(np.mean(x[..., lag:] * x[..., :-lag])) < limit * 2, f'columns {lag} apart'
  for lag in (1, 2, 3, 8, 32):
    assert abs(np.mean(x[:, lag:] * x[:, :-lag])) < limit * 2, f'rows {lag} apart'
  for lag in (1, 4):
    assert abs(np.mean(x[lag:] * x[:-lag])) < limit * 2, f'batch rows {lag} apart'
  assert abs(np.mean(x * bits(1))) < limit, 'keys'
  # Row and column means of independent bits have the deviation of independent bits.
  assert 0.8 < x.mean(-1).std() * np.sqrt(shape[-1]) < 1.2
  assert 0.8 < x.reshape(-1, shape[-1]).mean(0).std() * np.sqrt(shape[0] * shape[1]) < 1.2


def test_padding_rows_change_no_mask():
  """The rows of a batch, its leading axis, keep their mask whatever follows them."""
  seed_2 = dropout.seed(jax.random.key(0))
  whole = dropout.mask_like(jnp.zeros((8, 3, 16)), 0.5, seed_2)
  np.testing.assert_array_equal(dropout.mask_like(jnp.zeros((6, 3, 16)), 0.5, seed_2), whole[:6])
