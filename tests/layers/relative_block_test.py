"""What is remembered."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lmx.layers import relative_block


def test_the_last_real_places_are_remembered():
  memory = jnp.arange(8.0).reshape(2, 4, 1)
  new = 100 + jnp.arange(6.0).reshape(2, 3, 1)
  assert relative_block.remember(memory, new, None)[..., 0].tolist() == [[3, 100, 101, 102], [7, 103, 104, 105]]
  found = relative_block.remember(memory, new, jnp.array([0, 2]))[..., 0]
  assert found.tolist() == [[0, 1, 2, 3], [6, 7, 103, 104]]


def test_no_gradient_goes_into_what_is_remembered():
  back = jax.grad(lambda m, x: jnp.sum(relative_block.remember(m, x, None)), argnums=(0, 1))
  for gradient in back(jnp.ones((1, 4, 2)), jnp.ones((1, 3, 2))):
    assert not gradient.any()
