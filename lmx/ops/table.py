"""Lookup in a table of vectors (V, D), and the product with it.

On many devices the engine may put copies of a table, or the rows that a batch reads, in its place: `types.Copies` and
`types.ReadRows`, which the implementations in lmx/kernels/table.py take.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lmx.ops.dense import einsum
from lmx.ops.operation import Operation
from lmx.types import Array


@Operation
def take(table_VD: Any, ids: Array, dtype: str, axes: str) -> Array:
  """Return the rows of a table at ids, in `dtype`; ids outside are clipped.

  Args:
    table_VD: the table.
    ids: ids whose axes begin with `axes`, one of which is B.
    dtype: compute type.
    axes: letters of axes.
  """
  del axes
  return jnp.take(table_VD, ids, axis=0, mode='clip').astype(dtype)


@Operation
def select(table_VD: Any, ids: Array) -> Any:
  """Return the table of the rows at ids (R,), or the elements of a bias at any ids."""
  return table_VD[ids]


@Operation
def split(table_VD: Any, lengths: Sequence[int]) -> list[Any]:
  """Split the rows of a table; rows after the last part are left out."""
  return list(jax.lax.split(table_VD[: sum(lengths)], lengths))  # the gradient of slices would be a sum


@Operation
def append(table_VD: Any, rows_VD: Array) -> Any:
  """Return the table with more rows."""
  return jnp.concatenate([table_VD, rows_VD])


@Operation
def product(x_BTD: Array, table_VD: Any) -> Array:
  """Return x · table, (B, T, V) float32: a product in the type of x, accumulated in float32."""
  return einsum('...D,VD->...V', x_BTD, table_VD)
