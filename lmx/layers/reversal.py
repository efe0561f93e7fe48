"""Reading order of the backward direction in a padded batch."""

from __future__ import annotations

import jax.numpy as jnp

from lmx.types import Array


def reversal(valid_BT: Array) -> Array:
  """Return the index that reverses each row's valid positions, which come first; it is its own inverse."""
  count_B1 = jnp.sum(valid_BT, axis=1, dtype=jnp.int32)[:, None]
  column_T = jnp.arange(valid_BT.shape[1])
  return jnp.where(valid_BT, count_B1 - 1 - column_T, column_T)
