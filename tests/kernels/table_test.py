"""The lookup in a table that is sharded over fsdp equals the plain one, in values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.layers import embedding
from tests import placed


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_lookup_and_gradient_are_those_of_the_plain_one(dtype):
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
