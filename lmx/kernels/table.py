"""Table lookup and product, for a table that is sharded over devices or copied to each (`types.Copies`).

Copies are sharded like the rows. Rows that they do not divide evenly use the first copy. A table sharded over 'fsdp' is
gathered once before the lookup; otherwise XLA would look up the whole batch in every device's columns and exchange the
results.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lmx.kernels.dense import einsum, of_few_rows
from lmx.kernels.devices import is_parameter_sharded, is_platform, placed, row_shards, sum_shards
from lmx.ops import table
from lmx.placement import constrain
from lmx.types import Array, Copies, ReadRows, Table

MOST_ROWS, LEAST_TABLE = 64, 2**22  # limits of a one-position product: rows and table elements


def take(table_VD: Table | ReadRows, ids: Array, dtype: str, axes: str) -> Array:
  """Compute `table.take`."""
  if isinstance(table_VD, ReadRows):
    return take(table_VD.values_RD, table_VD.place_V[ids], dtype, axes)
  if isinstance(table_VD, Copies):
    return _take_from_copies(table_VD.values_SVD, ids, axes.index('B'), dtype)
  if is_parameter_sharded():
    return _take_gathered(table_VD, ids, dtype, axes.index('B'))
  return table.take.equation(table_VD, ids, dtype, axes)


def select(table_VD: Table | ReadRows, ids: Array) -> Any:
  """Compute `table.select`."""
  if isinstance(table_VD, ReadRows):
    return select(table_VD.values_RD, table_VD.place_V[ids])
  return Copies(table_VD.values_SVD[:, ids]) if isinstance(table_VD, Copies) else table.select.equation(table_VD, ids)


def split(table_VD: Table, lengths: Sequence[int]) -> list[Table]:
  """Compute `table.split`."""
  if isinstance(table_VD, Copies):
    values_SVD = table_VD.values_SVD[:, : sum(lengths)]
    return [Copies(part_SVD) for part_SVD in jax.lax.split(values_SVD, lengths, axis=1)]
  return table.split.equation(table_VD, lengths)


def append(table_VD: Table, rows_VD: Array) -> Table:
  """Compute `table.append`."""
  if not isinstance(table_VD, Copies):
    return table.append.equation(table_VD, rows_VD)
  rows_SVD = jnp.broadcast_to(rows_VD, (len(table_VD.values_SVD), *rows_VD.shape))
  return Copies(constrain(jnp.concatenate([table_VD.values_SVD, rows_SVD], axis=1), 'B'))


def _take_from_copies(values_SVD: Array, ids: Array, axis: int, dtype: str) -> Array:
  take = lambda values_VD, ids: _take_in(values_VD, ids, dtype)
  if ids.shape[axis] % len(values_SVD):
    return take(values_SVD[0], ids)
  ids_SB = ids.reshape(*ids.shape[:axis], len(values_SVD), -1, *ids.shape[axis + 1 :])
  return jax.vmap(take, (0, axis), axis)(values_SVD, ids_SB).reshape(*ids.shape, -1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _take_in(table_VD: Array, ids: Array, dtype: str) -> Array:
  """Look up rows of the table in `dtype`, in which shards over 'tensor' are added; its gradient is in its own type."""
  return jnp.take(table_VD.astype(dtype), ids, axis=0, mode='clip')


def _added(rows: Array, ids: Array, bar: Array) -> Array:
  """Return the gradient of a lookup in a table of the length and type of `rows`."""
  zeros_VD = jnp.zeros((len(rows), bar.shape[-1]), rows.dtype)
  return zeros_VD.at[jnp.clip(ids, 0, len(rows) - 1)].add(bar.astype(rows.dtype))


_take_in.defvjp(
  lambda table_VD, ids, dtype: (_take_in(table_VD, ids, dtype), (jnp.zeros((len(table_VD), 0), table_VD.dtype), ids)),
  lambda _, residuals, bar: (_added(residuals[0], residuals[1], bar), None),
)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _take_gathered(table_VD: Array, ids: Array, dtype: str, axis: int) -> Array:
  """Gather the table in `dtype`; its gradient is summed in the table's own type per shard of the ids' `axis`."""
  return jnp.take(constrain(table_VD.astype(dtype), 'VD'), ids, axis=0, mode='clip')


def _forward(table_VD: Array, ids: Array, dtype: str, axis: int) -> tuple[Array, Any]:
  return _take_gathered(table_VD, ids, dtype, axis), (jnp.zeros((len(table_VD), 0), table_VD.dtype), ids)


def _backward(dtype: str, axis: int, residuals: Any, bar: Array) -> tuple[Array, None]:
  del dtype
  rows, ids = residuals
  shards = row_shards(ids.shape[axis])
  split = lambda x: x.reshape(*x.shape[:axis], shards, -1, *x.shape[axis + 1 :])
  sum_SVD = jax.vmap(functools.partial(_added, rows), axis)(split(ids), split(bar))
  return constrain(sum_shards(sum_SVD, 'VD'), 'VD'), None


_take_gathered.defvjp(_forward, _backward)


def product(x_BTD: Array, table_VD: Table) -> Array:
  """Compute `table.product`, rounded to the placement's type of logits.

  On a CPU, decoding a few rows uses `of_few_rows`.
  """
  product_ = _rounded if placed().logits == x_BTD.dtype == jnp.bfloat16 else einsum
  if not isinstance(table_VD, Copies):
    is_one_position = x_BTD.ndim == 3 and x_BTD.shape[1] == 1 and 2 <= len(x_BTD) <= MOST_ROWS
    if is_one_position and table_VD.size >= LEAST_TABLE and is_platform('cpu'):
      return of_few_rows(x_BTD[:, 0], table_VD)[:, None]
    return product_('...D,VD->...V', x_BTD, table_VD)
  values_SVD = table_VD.values_SVD
  if len(x_BTD) % len(values_SVD):
    return product_('...D,VD->...V', x_BTD, values_SVD[0])
  y = product_('S...D,SVD->S...V', x_BTD.reshape(len(values_SVD), -1, *x_BTD.shape[1:]), values_SVD)
  return y.reshape(*x_BTD.shape[:-1], -1)


def _rounded(axes: str, x: Array, y: Array) -> Array:
  """Return the `einsum` in float32 of a product that is stored in the type of x."""
  return einsum(axes, x, y, dtype=x.dtype).astype(jnp.float32)
