"""Dropout: its rate, its scale and its gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.layers import dropout


@pytest.mark.parametrize('rate', [0.1, 0.5, 0.9])
def test_drops_at_the_rate_and_rescales_the_rest(rate):
  x = jnp.full((64, 8, 512), 3.0)
  y = np.asarray(dropout.dropout(x, rate, jax.random.key(0)))
  np.testing.assert_allclose(y[y != 0], 3.0 / (1 - rate), rtol=1e-6)
  n = y.size
  assert abs(np.mean(y == 0) - rate) < 5 * np.sqrt(rate * (1 - rate) / n)


def test_without_key_or_rate_nothing_changes():
  x = jnp.arange(6.0).reshape(2, 3)
  assert dropout.dropout(x, 0.5, None) is x
  assert dropout.dropout(x, 0.0, jax.random.key(0)) is x


def test_gradient_passes_where_the_value_passed():
  x = jax.random.normal(jax.random.key(1), (4, 5, 64))
  weight = jax.random.normal(jax.random.key(2), x.shape)
  f = lambda x: jnp.sum(weight * dropout.dropout(x, 0.3, jax.random.key(3)))
  kept = np.asarray(dropout.dropout(jnp.ones_like(x), 0.3, jax.random.key(3)))
  np.testing.assert_allclose(jax.jit(jax.grad(f))(x), weight * kept, rtol=1e-6)


def test_bfloat16_keeps_its_type():
  assert dropout.dropout(jnp.ones((2, 8), jnp.bfloat16), 0.5, jax.random.key(0)).dtype == jnp.bfloat16


def test_split_of_none_is_none():
  assert dropout.split(None, 3) == [None] * 3
  assert len(dropout.split(jax.random.key(0), 3)) == 3


def test_locked_dropout_has_one_mask_for_all_steps():
  x_TBD = jax.random.normal(jax.random.key(1), (7, 5, 400))
  y_TBD = np.asarray(jax.jit(dropout.locked_dropout, static_argnums=1)(x_TBD, 0.4, jax.random.key(0)))
  mask_TBD = y_TBD / np.asarray(x_TBD)
  np.testing.assert_allclose(mask_TBD, np.broadcast_to(mask_TBD[:1], mask_TBD.shape), rtol=1e-5)
  assert set(np.round(np.unique(mask_TBD), 4)) == {0.0, np.round(np.float32(1 / 0.6), 4)}
  assert abs((mask_TBD[0] == 0).mean() - 0.4) < 0.05
  assert len({tuple(row) for row in mask_TBD[0] == 0}) == 5  # every row its own
  gradient = jax.grad(lambda x: jnp.sum(dropout.locked_dropout(x, 0.4, jax.random.key(0))))(x_TBD)
  np.testing.assert_allclose(gradient, mask_TBD, rtol=1e-5)
  assert dropout.locked_dropout(x_TBD, 0.4, None) is x_TBD
  assert dropout.locked_dropout(x_TBD.astype(jnp.bfloat16), 0.4, jax.random.key(0)).dtype == jnp.bfloat16


def test_word_dropout_is_that_of_rows_of_the_table():
  V, key = 50, jax.random.key(2)
  tokens_BT = jax.random.randint(jax.random.key(1), (4, 30), 0, V)
  table_VD = jax.random.normal(key, (V, 8))
  whole_VD = dropout.word_dropout(table_VD, jnp.arange(V), V, 0.3, key)  # every word once: the table itself
  found = dropout.word_dropout(table_VD[tokens_BT], tokens_BT, V, 0.3, key)
  np.testing.assert_allclose(found, whole_VD[tokens_BT], rtol=1e-6)
  kept_V = np.any(np.asarray(whole_VD) != 0, -1)
  np.testing.assert_allclose(whole_VD[kept_V], table_VD[kept_V] / 0.7, rtol=1e-6)
  assert 0.5 < kept_V.mean() < 0.9
  assert dropout.word_dropout(table_VD, jnp.arange(V), V, 0.3, None) is table_VD
