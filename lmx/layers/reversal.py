"""Order in which the backward direction reads the rows of a padded batch."""

from __future__ import annotations

import jax.numpy as jnp

from lmx.types import Array


def reversal(valid_BT: Array) -> Array:
  """Return for each row the positions that read its valid ones, which come first, backwards; its own inverse."""
  count_B1 = jnp.sum(valid_BT, axis=1, dtype=jnp.int32)[:, None]
  column_T = jnp.arange(valid_BT.shape[1])
  return jnp.where(valid_BT, count_B1 - 1 - column_T, column_T)
