"""Keys that each query of relative attention attends to, and segments of queries and keys."""

from __future__ import annotations

from typing import NamedTuple

from lmx.types import Array

MASKED = -1e30  # score of a masked key
HIDDEN = 2**31 - 1  # order of a key that no query sees


class Visible(NamedTuple):
  """Keys that each query attends to: those whose order is between two bounds.

  Attributes:
    order_BS: order of each key; `HIDDEN` is after all queries.
    first_BT: least order that each query sees.
    last_BT: greatest order that each query sees.
    past: `filled_B` and `farthest` of `relative_attention.causal`, if that made it.
  """

  order_BS: Array
  first_BT: Array
  last_BT: Array
  past: tuple[Array | None, int | None] | None = None

  def mask(self) -> Array:
    """Return the attention mask (B, T, S); rows are 1 where they are alike."""
    order_B1S = self.order_BS[:, None]
    return (self.first_BT[:, :, None] <= order_B1S) & (order_B1S <= self.last_BT[:, :, None])


class Segments(NamedTuple):
  """Segments of queries and keys, and vectors of their scores.

  Attributes:
    s_HK: bias of the queries.
    e_2HK: vector of a key in the same and in another segment.
    query_BT: segment of each query.
    key_BS: segment of each key.
  """

  s_HK: Array
  e_2HK: Array
  query_BT: Array
  key_BS: Array
