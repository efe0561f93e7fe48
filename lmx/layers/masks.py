"""Which keys a query may look at, as a few small arrays instead of a (T, S) matrix.

A query looks at a key when both have the same group (documents packed into one row; padding is a group that no query
has) and, in a causal model, when the key's position is not after the query's. Backends build from this as
much of the matrix as they work on at a time, and skip blocks that it empties.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lmx.types import Array, Batch

HIDDEN = -1e30  # score of a key that may not be looked at, set after the cast to float32
PADDING = -1  # group of invalid keys; documents are numbered from 0


class Look(NamedTuple):
  """Positions and groups; None stands for the index along the axis, and for one group.

  Attributes:
    query_position_BT: position of each query, or None for 0 .. T-1.
    query_group_BT: group of each query, or None if all tokens are in one.
    key_group_BS: group of each key, or None.
  """

  query_position_BT: Array | None = None
  query_group_BT: Array | None = None
  key_group_BS: Array | None = None


def from_batch(batch: Batch) -> Look:
  """Reads `valid_BT` and `documents_BT` of a batch that attends to itself."""
  valid_BT, group_BT = batch.get('valid_BT'), batch.get('documents_BT')
  if valid_BT is None:
    return Look(None, group_BT, group_BT)
  if group_BT is None:
    group_BT = jnp.zeros(valid_BT.shape, jnp.int32)
  return Look(None, group_BT, jnp.where(valid_BT, group_BT, PADDING))


def row(look: Look, b: Array) -> Look:
  """The masks of batch row `b` alone, as a batch of one."""
  return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, b, 1), look)


def allowed(look: Look, causal: bool, queries: tuple[int, int], keys: tuple[int, int]) -> Array | None:
  """Builds a block of the mask.

  Args:
    look: positions and groups.
    causal: keys after the query are hidden.
    queries: first and one past the last query of the block.
    keys: likewise for keys.

  Returns:
    Boolean (B, T, S), or (1, T, S) if all rows have the same mask, or None if nothing is hidden.
  """
  allowed_BTS = None
  if causal:
    query_BT = look.query_position_BT
    if query_BT is None:
      query_BT = jnp.arange(queries[1], dtype=jnp.int32)[None]
    allowed_BTS = query_BT[:, slice(*queries), None] >= jnp.arange(*keys, dtype=jnp.int32)[None, None]
  if look.query_group_BT is not None and look.key_group_BS is not None:
    same_BTS = look.query_group_BT[:, slice(*queries), None] == look.key_group_BS[:, None, slice(*keys)]
    allowed_BTS = same_BTS if allowed_BTS is None else allowed_BTS & same_BTS
  return allowed_BTS
