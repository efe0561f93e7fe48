"""Visible keys of relative attention (lmx/ops/visible.py): one row, and unique positions per block."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lmx.ops.visible import Visible
from lmx.types import Array


def of_row(visible: Visible, b: Array) -> Visible:
  """Return the keys visible in row `b`, as a batch of one."""
  pick = lambda x: jax.lax.dynamic_slice_in_dim(x, b if len(x) > 1 else 0, 1)
  return Visible(pick(visible.order_BS), pick(visible.first_BT), pick(visible.last_BT))


def at_positions(positions_BP: Array, block: int) -> Array:
  """Return the positions; in each query block, all but the first of several queries at a position are -1."""
  same_BPP = jnp.tril(positions_BP[:, :, None] == positions_BP[:, None], -1)
  number_P = jnp.arange(positions_BP.shape[1]) // block
  same_BPP &= number_P[:, None] == number_P
  return jnp.where(jnp.any(same_BPP, axis=2), -1, positions_BP)
