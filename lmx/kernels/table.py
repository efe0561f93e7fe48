"""Lookup in a table and product with it, also where a table that both share is passed as `types.Copies`.

The copies are sharded as the rows. Rows that the copies do not divide evenly use the first one.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from lmx.kernels.mixed_product import einsum
from lmx.types import Array, Copies, Table


def take(table_VD: Table, ids: Array, axes: str) -> Array:
  """Return the rows of a table at ids whose axes begin with `axes`, one of which is B; ids outside are clipped."""
  take = functools.partial(jnp.take, axis=0, mode='clip')
  if not isinstance(table_VD, Copies):
    return take(table_VD, ids)
  values_SVD, axis = table_VD.values_SVD, axes.index('B')
  if ids.shape[axis] % len(values_SVD):
    return take(values_SVD[0], ids)
  ids_SB = ids.reshape(*ids.shape[:axis], len(values_SVD), -1, *ids.shape[axis + 1 :])
  return jax.vmap(take, (0, axis), axis)(values_SVD, ids_SB).reshape(*ids.shape, -1)


def product(x_BTD: Array, table_VD: Table) -> Array:
  """Return x · table, (B, T, V) float32: a product in the type of x, accumulated in float32."""
  if not isinstance(table_VD, Copies):
    return einsum('...D,VD->...V', x_BTD, table_VD)
  values_SVD = table_VD.values_SVD
  if len(x_BTD) % len(values_SVD):
    return einsum('...D,VD->...V', x_BTD, values_SVD[0])
  y = einsum('S...D,SVD->S...V', x_BTD.reshape(len(values_SVD), -1, *x_BTD.shape[1:]), values_SVD)
  return y.reshape(*x_BTD.shape[:-1], -1)
