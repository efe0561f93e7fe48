"""Lookup in a table and product with it, where devices share the table or each has a copy (`types.Copies`).

The copies are sharded as the rows. Rows that the copies do not divide evenly use the first one. A table that is sharded
over 'fsdp' is gathered once before the lookup; otherwise XLA looks up the rows of the whole batch in every device's
columns, and exchanges the results.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lmx.kernels.mixed_product import einsum, of_few_rows
from lmx.placement import constrain, is_parameter_sharded
from lmx.types import Array, Copies, ReadRows, Table

MOST_ROWS, LEAST_TABLE = 64, 2**22  # of `_product_of_few`: rows, and elements of the table


def take(table_VD: Table | ReadRows, ids: Array, dtype: str, axes: str) -> Array:
  """Return the rows of a table at ids, in `dtype`; ids outside are clipped.

  Args:
    table_VD: the table.
    ids: ids whose axes begin with `axes`, one of which is B.
    dtype: compute type.
    axes: letters of axes.
  """
  if isinstance(table_VD, ReadRows):
    return take(table_VD.values_RD, table_VD.place_V[ids], dtype, axes)
  if isinstance(table_VD, Copies):
    return _take_from_copies(table_VD.values_SVD, ids, axes.index('B')).astype(dtype)
  if is_parameter_sharded():
    return _take_gathered(table_VD, ids, dtype)
  return jnp.take(table_VD, ids, axis=0, mode='clip').astype(dtype)


def select(table_VD: Table | ReadRows, ids: Array) -> Any:
  """Return the table of the rows at ids (R,), or the elements of a bias at any ids."""
  if isinstance(table_VD, ReadRows):
    return select(table_VD.values_RD, table_VD.place_V[ids])
  return Copies(table_VD.values_SVD[:, ids]) if isinstance(table_VD, Copies) else table_VD[ids]


def split(table_VD: Table, lengths: Sequence[int]) -> list[Table]:
  """Split the rows of a table; rows after the last part are left out."""
  if isinstance(table_VD, Copies):
    values_SVD = table_VD.values_SVD[:, : sum(lengths)]
    return [Copies(part_SVD) for part_SVD in jax.lax.split(values_SVD, lengths, axis=1)]
  return list(jax.lax.split(table_VD[: sum(lengths)], lengths))  # the gradient of slices would be a sum


def append(table_VD: Table, rows_VD: Array) -> Table:
  """Return the table with more rows."""
  if not isinstance(table_VD, Copies):
    return jnp.concatenate([table_VD, rows_VD])
  rows_SVD = jnp.broadcast_to(rows_VD, (len(table_VD.values_SVD), *rows_VD.shape))
  return Copies(constrain(jnp.concatenate([table_VD.values_SVD, rows_SVD], axis=1), 'B'))


def _take_from_copies(values_SVD: Array, ids: Array, axis: int) -> Array:
  take = functools.partial(jnp.take, axis=0, mode='clip')
  if ids.shape[axis] % len(values_SVD):
    return take(values_SVD[0], ids)
  ids_SB = ids.reshape(*ids.shape[:axis], len(values_SVD), -1, *ids.shape[axis + 1 :])
  return jax.vmap(take, (0, axis), axis)(values_SVD, ids_SB).reshape(*ids.shape, -1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _take_gathered(table_VD: Array, ids: Array, dtype: str) -> Array:
  """Gather the table in `dtype`; its gradient is summed in the table's own type."""
  return jnp.take(constrain(table_VD.astype(dtype), 'VD'), ids, axis=0, mode='clip')


def _forward(table_VD: Array, ids: Array, dtype: str) -> tuple[Array, Any]:
  return _take_gathered(table_VD, ids, dtype), (ids, jnp.zeros((len(table_VD), 0), table_VD.dtype))


def _backward(dtype: str, residuals: Any, bar: Array) -> tuple[Array, None]:
  del dtype
  ids, rows = residuals
  zeros_VD = jnp.zeros((len(rows), bar.shape[-1]), rows.dtype)
  return constrain(zeros_VD.at[jnp.clip(ids, 0, len(rows) - 1)].add(bar.astype(rows.dtype)), 'VD'), None


_take_gathered.defvjp(_forward, _backward)


def _product(x_BTD: Array, table_VD: Array) -> Array:
  return einsum('...D,VD->...V', x_BTD, table_VD)


def _product_of_few(x_B1D: Array, table_VD: Array) -> Array:
  """Return the product for one position of a few rows, as in decoding."""
  return of_few_rows(x_B1D[:, 0], table_VD)[:, None]


def product(x_BTD: Array, table_VD: Table) -> Array:
  """Return x · table, (B, T, V) float32: a product in the type of x, accumulated in float32."""
  if not isinstance(table_VD, Copies):
    if x_BTD.ndim == 3 and x_BTD.shape[1] == 1 and 2 <= len(x_BTD) <= MOST_ROWS and table_VD.size >= LEAST_TABLE:
      return jax.lax.platform_dependent(x_BTD, table_VD, cpu=_product_of_few, default=_product)
    return _product(x_BTD, table_VD)
  values_SVD = table_VD.values_SVD
  if len(x_BTD) % len(values_SVD):
    return einsum('...D,VD->...V', x_BTD, values_SVD[0])
  y = einsum('S...D,SVD->S...V', x_BTD.reshape(len(values_SVD), -1, *x_BTD.shape[1:]), values_SVD)
  return y.reshape(*x_BTD.shape[:-1], -1)
