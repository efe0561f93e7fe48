"""Embedding tables: lookup by token, position or type. Ids outside a table are clipped; check them on the host."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lmx.ops import dense
from lmx.ops import table as table_lib
from lmx.placement import constrain
from lmx.types import Array, Rows, Table


def table(key: Array, rows: int, width: int, std: float, *, truncated: bool = False) -> Array:
  """Return a float32 (rows, width) table, normal or truncated normal (at two deviations), standard deviation `std`."""
  if truncated:
    return std * jax.random.truncated_normal(key, -2.0, 2.0, (rows, width), jnp.float32)
  return std * jax.random.normal(key, (rows, width), jnp.float32)


def lookup(table_VD: Table | Rows, ids_BT: Any, dtype: str, axes: str = 'B') -> Any:
  """Return the rows of a table in `dtype`, with the first `axes`; a tuple of ids gives a tuple.

  A sparse step passes the gathered `Rows` instead of the table.
  """
  if isinstance(table_VD, Rows):
    return jax.tree.map(lambda x: x.astype(dtype), table_VD.values)
  return jax.tree.map(lambda ids: constrain(table_lib.take(table_VD, ids, dtype, axes), axes), ids_BT)


def add_positions(x_BTD: Array, table_TD: Array, position_BT: Array | None) -> Array:
  """Return x plus learned positions, rows 0 .. T-1 of the table or those at `position_BT`, in the type of x."""
  if position_BT is None:
    return dense.add(x_BTD, table_TD[: x_BTD.shape[1]])
  return x_BTD + lookup(table_TD, position_BT, str(x_BTD.dtype))
