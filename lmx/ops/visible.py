"""Keys that each query of relative attention attends to, and segments of queries and keys."""

from __future__ import annotations

from typing import NamedTuple

from lmx.types import Array

MASKED = -1e30  # score of a masked key
HIDDEN = 2**31 - 1  # order of a key that no query sees


class Past(NamedTuple):
  """Keys up to the query's own.

  Attributes:
    filled_B: number of the last positions of the memory that are filled, or None for all.
    farthest: maximum distance of a key, or None for any.
  """

  filled_B: Array | None
  farthest: int | None


class Visible(NamedTuple):
  """Keys that each query attends to: those whose order is between two bounds.

  Attributes:
    order_BS: order of each key; `HIDDEN` is after all queries.
    first_BT: least order that each query sees.
    last_BT: greatest order that each query sees.
    past: the same as a memory and a distance, if key s is at position s and no query sees a key after its own.
  """

  order_BS: Array
  first_BT: Array
  last_BT: Array
  past: Past | None = None

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
