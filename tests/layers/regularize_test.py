"""Dropout: its rate, its scale, its gradient and the independence of its bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.layers import regularize


@pytest.mark.parametrize('rate', [0.1, 0.5, 0.9])
def test_drops_at_the_rate_and_rescales_the_rest(rate):
  x = jnp.full((64, 8, 512), 3.0)
  y = np.asarray(regularize.dropout(x, rate, jax.random.key(0)))
  np.testing.assert_allclose(y[y != 0], 3.0 / (1 - rate), rtol=1e-6)
  n = y.size
  assert abs(np.mean(y == 0) - rate) < 5 * np.sqrt(rate * (1 - rate) / n)


def test_without_key_or_rate_nothing_changes():
  x = jnp.arange(6.0).reshape(2, 3)
  assert regularize.dropout(x, 0.5, None) is x
  assert regularize.dropout(x, 0.0, jax.random.key(0)) is x


def test_gradient_passes_where_the_value_passed():
  x = jax.random.normal(jax.random.key(1), (4, 5, 64))
  weight = jax.random.normal(jax.random.key(2), x.shape)
  f = lambda x: jnp.sum(weight * regularize.dropout(x, 0.3, jax.random.key(3)))
  kept = np.asarray(regularize.dropout(jnp.ones_like(x), 0.3, jax.random.key(3)))
  np.testing.assert_allclose(jax.jit(jax.grad(f))(x), weight * kept, rtol=1e-6)


def test_bits_are_independent_along_rows_columns_and_keys():
  """Correlations of 2^20 fair bits with their neighbours stay within five deviations of zero."""
  shape = (16, 64, 1024)
  bits = lambda key: np.asarray(regularize.dropout(jnp.ones(shape), 0.5, jax.random.key(key))) - 1.0
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


def test_bfloat16_keeps_its_type():
  assert regularize.dropout(jnp.ones((2, 8), jnp.bfloat16), 0.5, jax.random.key(0)).dtype == jnp.bfloat16


def test_seed_serves_every_generator():
  for impl in ('threefry2x32', 'rbg'):
    words = regularize.seed(jax.random.key(0, impl=impl))
    assert words.shape == (2,) and words.dtype == jnp.uint32


def test_split_of_none_is_none():
  assert regularize.split(None, 3) == [None] * 3
  assert len(regularize.split(jax.random.key(0), 3)) == 3
