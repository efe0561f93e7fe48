"""The lookup in a table that is sharded over fsdp equals the plain one, in values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.kernels import table
from lmx.layers import embedding
from lmx.ops import table as equations
from tests import placed


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_lookup_and_gradient_match_indexing(dtype):
  rng = np.random.default_rng(0)
  table_VD = rng.standard_normal((11, 8), np.float32)
  ids_BT = np.asarray([[0, 3, 3, 12], [10, -1, 3, 5]] * 2)  # ids outside the table are clipped
  bar_BTD = rng.standard_normal((4, 4, 8), np.float32)

  def run(table_VD):
    rows = lambda table_VD: jnp.sum(embedding.lookup(table_VD, ids_BT, dtype).astype(jnp.float32) * bar_BTD)
    return embedding.lookup(table_VD, ids_BT, dtype), jax.grad(rows)(table_VD)

  plain = jax.jit(run)(table_VD)
  with placed.on(fsdp=4):
    found = jax.jit(lambda table_VD: run(table_VD))(table_VD)
  assert found[0].sharding.num_devices == 4
  np.testing.assert_array_equal(found[0], plain[0])
  assert found[1].dtype == jnp.float32
  tolerance = 1e-6
  np.testing.assert_allclose(found[1], plain[1], rtol=tolerance, atol=tolerance)


def test_product_of_few_rows_matches_einsum():
  rng = np.random.default_rng(0)
  x_B1D, table_VD = rng.standard_normal((3, 1, 64), np.float32), rng.standard_normal((table.LEAST_TABLE // 64, 64))
  table_VD = jnp.asarray(table_VD, jnp.float32)
  with placed.on('cpu'):
    _check_product_of_few_rows(x_B1D, table_VD)


def _check_product_of_few_rows(x_B1D, table_VD):
  run = lambda x_BTD: jax.jit(table.product)(x_BTD, table_VD)
  np.testing.assert_allclose(run(x_B1D), np.einsum('BTD,VD->BTV', x_B1D, table_VD), atol=1e-4)
  gradient = jax.grad(lambda x_BTD: jnp.sum(jnp.sin(table.product(x_BTD, table_VD))))(x_B1D)
  expected = jax.grad(lambda x_BTD: jnp.sum(jnp.sin(equations.product.equation(x_BTD, table_VD))))(x_B1D)
  np.testing.assert_allclose(gradient, expected, atol=2e-3)
  is_used = lambda x_BTD: 'optimization_barrier' in str(jax.make_jaxpr(table.product)(x_BTD, table_VD))
  assert is_used(x_B1D) and not is_used(x_B1D[:1]) and not is_used(np.repeat(x_B1D, 2, axis=1))
