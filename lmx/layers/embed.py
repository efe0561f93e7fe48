"""Embedding tables: lookup by token, by position, by type.

Ids must be checked on the host: an id outside the table is clipped here without a word.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lmx.types import Array


def table(key: Array, rows: int, width: int, std: float, *, truncated: bool = False) -> Array:
  """A float32 (rows, width) table, normal or truncated normal (at two deviations) with deviation `std`."""
  if truncated:
    return std * jax.random.truncated_normal(key, -2.0, 2.0, (rows, width), jnp.float32)
  return std * jax.random.normal(key, (rows, width), jnp.float32)


def lookup(table_VD: Array, ids_BT: Array, dtype: str) -> Array:
  """Rows of a table, (B, T, D) in `dtype`."""
  return jnp.take(table_VD, ids_BT, axis=0, mode='clip').astype(dtype)


def positions(table_TD: Array, position_BT: Array | None, length: int, dtype: str) -> Array:
  """Learned positions: rows 0 .. length-1 as (1, T, D), or the rows at `position_BT` as (B, T, D)."""
  if position_BT is None:
    return table_TD[None, :length].astype(dtype)
  return lookup(table_TD, position_BT, dtype)
