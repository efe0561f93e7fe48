"""The attention mask, as a few small arrays instead of a (T, S) matrix.

A query attends to keys of its own group (a document packed into the row; padding is a group without queries). A causal
model masks keys after the query. Kernels build the matrix block by block and skip blocks that are fully masked.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from lmx.ops.patterns import Pattern
from lmx.types import Array, Batch

MASKED = -1e30  # score of a masked key, set after the cast to float32
PADDING = -1  # group of invalid keys; documents are numbered from 0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class AttentionMask:
  """Positions and groups; None means the index along the axis, or a single group.

  Attributes:
    query_position_BT: position of each query, or None for 0 .. T-1.
    query_group_BT: group of each query, or None if all tokens are in one group.
    key_group_BS: group of each key, or None.
    pattern: keys of a causal query at a position, or None for those up to the position.
  """

  query_position_BT: Array | None = None
  query_group_BT: Array | None = None
  key_group_BS: Array | None = None
  pattern: Pattern | None = dataclasses.field(default=None, metadata={'static': True})

  def allowed(self, causal: bool, queries: tuple[int, int], keys: tuple[int, int]) -> Array | None:
    """Return a block of the mask.

    Args:
      causal: mask keys after the query.
      queries: first and one past the last query of the block.
      keys: first and one past the last key of the block.

    Returns:
      Boolean (B, T, S), or (1, T, S) if all rows have the same mask, or None if nothing is masked.
    """
    allowed_BTS = None
    if causal:
      query_BT = self.query_position_BT
      if query_BT is None:
        query_BT = jnp.arange(queries[1], dtype=jnp.int32)[None]
      query_BT1, key_11S = query_BT[:, slice(*queries), None], jnp.arange(*keys, dtype=jnp.int32)[None, None]
      allowed_BTS = query_BT1 >= key_11S if self.pattern is None else self.pattern(query_BT1, key_11S)
    if self.query_group_BT is not None and self.key_group_BS is not None:
      same_BTS = self.query_group_BT[:, slice(*queries), None] == self.key_group_BS[:, None, slice(*keys)]
      allowed_BTS = same_BTS if allowed_BTS is None else allowed_BTS & same_BTS
    return allowed_BTS

  def mask_scores(self, a_BHTS: Array, causal: bool, queries: tuple[int, int], keys: tuple[int, int]) -> Array:
    """Set the scores of a block to `MASKED` where `allowed` is False."""
    mask_BTS = self.allowed(causal, queries, keys)
    return a_BHTS if mask_BTS is None else jnp.where(mask_BTS[:, None], a_BHTS, MASKED)

  def explicit(self) -> bool:
    """Return True if the mask is more than causal."""
    return self.query_position_BT is not None or self.query_group_BT is not None or self.pattern is not None

  def aligned(self) -> bool:
    """Return True if every query t is at position t."""
    return self.query_position_BT is None


def from_batch(batch: Batch) -> AttentionMask:
  """Return the self-attention mask of a batch, from its `valid_BT` and `documents_BT`."""
  valid_BT, group_BT = batch.get('valid_BT'), batch.get('documents_BT')
  if valid_BT is None:
    return AttentionMask(None, group_BT, group_BT)
  if group_BT is None:
    group_BT = jnp.zeros(valid_BT.shape, jnp.int32)
  return AttentionMask(None, group_BT, jnp.where(valid_BT, group_BT, PADDING))
