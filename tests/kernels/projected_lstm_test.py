"""The derivative of the projected LSTM against that of the reference loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.layers import projected_lstm
from tests import placed
from tests.layers.projected_lstm_test import T, setting


@pytest.mark.parametrize('clips', [(0.8, 0.5), (0.0, 0.0)])
def test_derivatives_agree_where_values_are_clipped_and_rows_are_short(clips):
  params, x_TBE, carry = setting(1)
  valid_TB = np.arange(T)[:, None] < np.array([T, 3, 0])

  def loss(params, x_TBE, carry, backend):
    with placed.on():
      h_TBP, (h_BP, c_BH) = projected_lstm.layer(
        params, x_TBE, carry, valid_TB, cell_clip=clips[0], proj_clip=clips[1], backend=backend
      )
    return jnp.sum(jnp.sin(h_TBP) * jnp.arange(h_TBP.size).reshape(h_TBP.shape)) + jnp.sum(h_BP**2) + jnp.sum(c_BH**3)

  both = lambda *args: [jax.grad(loss, (0, 1, 2))(*args, backend) for backend in ('custom', 'scan')]
  found, wanted = jax.jit(both)(params, x_TBE, carry)
  for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
    assert np.abs(b).max() > 1e-3
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
