"""Embedding tables."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lmx.layers import embedding


def test_lookup_gathers_rows_and_sums_gradients():
  table = jnp.arange(12.0).reshape(4, 3)
  ids = jnp.array([[1, 3], [1, 0]])
  np.testing.assert_array_equal(embedding.lookup(table, ids, 'float32'), np.asarray(table)[np.asarray(ids)])
  assert embedding.lookup(table, ids, 'bfloat16').dtype == jnp.bfloat16
  gradient = jax.grad(lambda t: embedding.lookup(t, ids, 'float32').sum())(table)
  np.testing.assert_array_equal(gradient[:, 0], [1, 2, 0, 1])


def test_positions_are_the_first_rows_or_those_requested():
  table = jnp.arange(12.0).reshape(4, 3)
  x = jnp.ones((1, 2, 3))
  np.testing.assert_array_equal(embedding.add_positions(x, table, None), 1 + table[None, :2])
  np.testing.assert_array_equal(embedding.add_positions(x, table, jnp.array([[3, 0]])), 1 + np.asarray(table)[[[3, 0]]])


def test_table_has_its_deviation_and_truncation():
  normal = np.asarray(embedding.table(jax.random.key(0), 400, 50, 0.02))
  cut = np.asarray(embedding.table(jax.random.key(0), 400, 50, 0.02, truncated=True))
  assert abs(normal.std() - 0.02) < 5e-4 and abs(normal).max() > 0.05
  assert abs(cut).max() <= 0.04 and abs(cut.std() - 0.02 * 0.8796) < 5e-4  # deviation of a normal cut at two
