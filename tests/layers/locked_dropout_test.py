"""Dropout with one mask for all positions of an axis."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.layers.locked_dropout import locked_dropout


@pytest.mark.parametrize('axis', [0, 1])
def test_locked_dropout_has_one_mask_for_all_steps(axis):
  x_TBD = np.random.default_rng(1).standard_normal((7, 5, 400)).astype(np.float32)
  given = x_TBD if axis == 0 else x_TBD.swapaxes(0, 1)

  @jax.jit
  @functools.partial(jax.value_and_grad, has_aux=True)
  def locked(x, key):
    y = locked_dropout(x, 0.4, key, axis)
    return jnp.sum(y), y

  (_, y), gradient = jax.device_get(locked(given, jax.random.key(0)))
  y_TBD, gradient = (x if axis == 0 else x.swapaxes(0, 1) for x in (y, gradient))
  mask_TBD = y_TBD / x_TBD
  np.testing.assert_allclose(mask_TBD, np.broadcast_to(mask_TBD[:1], mask_TBD.shape), rtol=1e-5)
  assert set(np.round(np.unique(mask_TBD), 4)) == {0.0, np.round(np.float32(1 / 0.6), 4)}
  assert abs((mask_TBD[0] == 0).mean() - 0.4) < 0.05
  assert len({tuple(row) for row in mask_TBD[0] == 0}) == 5  # every row its own
  np.testing.assert_allclose(gradient, mask_TBD, rtol=1e-5)
  assert locked_dropout(x_TBD, 0.4, None, axis) is x_TBD
  half = lambda key: locked_dropout(jnp.zeros((7, 5, 4), jnp.bfloat16), 0.4, key, axis)
  assert jax.eval_shape(half, jax.random.key(0)).dtype == jnp.bfloat16
