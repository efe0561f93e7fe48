"""Dropout: its rate, its scale and its gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.ops import dropout


@pytest.mark.parametrize('rate', [0.1, 0.5, 0.9])
def test_drops_at_the_rate_and_rescales_the_rest(rate):
  x = np.full((64, 8, 512), 3.0, np.float32)
  y = np.asarray(jax.jit(dropout.dropout, static_argnums=1)(x, rate, jax.random.key(0)))
  np.testing.assert_allclose(y[y != 0], 3.0 / (1 - rate), rtol=1e-6)
  n = y.size
  assert abs(np.mean(y == 0) - rate) < 5 * np.sqrt(rate * (1 - rate) / n)


def test_without_key_or_rate_nothing_changes():
  x = jnp.arange(6.0).reshape(2, 3)
  assert dropout.dropout(x, 0.5, None) is x
  assert dropout.dropout(x, 0.0, jax.random.key(0)) is x


def test_gradient_passes_where_the_value_passed():
  x, weight = np.random.default_rng(0).standard_normal((2, 4, 5, 64), np.float32)

  @jax.jit
  def run(x):
    drop = lambda x: dropout.dropout(x, 0.3, jax.random.key(3))
    return jax.grad(lambda x: jnp.sum(weight * drop(x)))(x), drop(jnp.ones_like(x))

  gradient, kept = jax.device_get(run(x))
  np.testing.assert_allclose(gradient, weight * kept, rtol=1e-6)


def test_bfloat16_keeps_its_type():
  dropped = jax.eval_shape(lambda: dropout.dropout(jnp.ones((2, 8), jnp.bfloat16), 0.5, jax.random.key(0)))
  assert dropped.dtype == jnp.bfloat16


def test_split_of_none_is_none():
  assert dropout.split(None, 3) == [None] * 3
  assert len(dropout.split(jax.random.key(0), 3)) == 3
