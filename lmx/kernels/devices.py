"""Queries on the current placement, which select kernels, and arrays with a copy or a part per row shard."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from lmx.placement import Placement, constrain, current


def placed() -> Placement:
  """Return the current placement."""
  here = current()
  if here is None:
    raise RuntimeError('kernel called without a placement; enter one, or call the operation in lmx/ops')
  return here


def is_platform(name: str) -> bool:
  """Return True if the current placement is on this platform."""
  placement = current()
  return placement is not None and placement.platform == name


def is_one_device(name: str) -> bool:
  """Return True if the current placement is a single device of this platform."""
  placement = current()
  return placement is not None and placement.platform == name and placement.devices == 1


def is_sharded() -> bool:
  """Return True if the current placement shards arrays over several devices, which XLA partitions."""
  placement = current()
  return placement is not None and not placement.mapped and placement.devices > 1


def row_shards(rows: int) -> int:
  """Return the number of devices that share these rows evenly; 1 if they do not divide them."""
  placement = current()
  return placement.row_shards if placement is not None and rows % placement.row_shards == 0 else 1


def shards(shape: Sequence[int], axes: str) -> int:
  """Return the number of devices that share an array, see `constrain`."""
  placement = current()
  if placement is None or placement.mapped:
    return 1
  sharding = NamedSharding(placement.mesh, placement.spec(shape, axes))
  return math.prod(shape) // math.prod(sharding.shard_shape(tuple(shape)))


def copies(x: jax.Array, axes: str = '') -> jax.Array | None:
  """Return one copy of an array per row shard, (S, ...); None if rows are not sharded.

  Under fsdp it is gathered. Under tensor it stays sharded by its axis letters; without them there are no copies. The
  gradient is added by `sum_shards`.
  """
  placement = current()
  if placement is None or placement.mapped or placement.row_shards == 1:
    return None
  if not axes and placement.row_shards < placement.devices:
    return None
  return _copies(x, placement.row_shards, axes)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _copies(x: jax.Array, count: int, axes: str) -> jax.Array:
  return constrain(jnp.broadcast_to(x, (count, *x.shape)), f'B{axes}')


_copies.defvjp(
  lambda x, count, axes: (_copies(x, count, axes), None),
  lambda count, axes, _, bar: (sum_shards(bar, axes),),
)


def sum_shards(x: jax.Array, axes: str = '') -> jax.Array:
  """Return the sum of the row shards' arrays (S, ...), added over devices in `reduce_dtype`."""
  x, dtype = constrain(x, f'B{axes}'), reduce_dtype(x.dtype)
  if dtype == x.dtype:
    return jnp.sum(x, axis=0)
  rounded = x.astype(dtype)
  return jax.lax.reduce(rounded, rounded.dtype.type(0), jax.lax.add, (0,)).astype(x.dtype)  # jnp.sum adds in float32


def reduce_dtype(dtype: Any) -> Any:
  """Return the type in which the gradient of a parameter of type `dtype` is added over devices."""
  placement = current()
  return dtype if placement is None or dtype != jnp.float32 else jnp.dtype(placement.reduce_dtype)


def is_tensor_sharded() -> bool:
  """Return True if the current placement shards parameters over 'tensor'."""
  placement = current()
  return placement is not None and placement.mesh.shape['tensor'] > 1


def is_parameter_sharded() -> bool:
  """Return True if the current placement shards parameters over 'fsdp'."""
  placement = current()
  return placement is not None and not placement.mapped and placement.mesh.shape['fsdp'] > 1
