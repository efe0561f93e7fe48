"""Parts of the Pallas kernels of attention, lmx/kernels/row_attention.py, relative_rows.py and triton_attention.py.

Q are the queries of a block, S keys.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.sharding import PartitionSpec

from lmx import placement
from lmx.kernels import dropout
from lmx.types import Array

LANES = 128  # lengths are padded to a multiple of them
PADDED = -2  # group of padded positions; `masks.PADDING` is -1
BRANCHES = 8  # lengths of keys of a kernel, at most
SCHEDULE = 'schedule'  # of a kernel's metadata, for lmx/compilation/bundles.py


def sharded(
  attend: Callable[..., Array],
  arrays: tuple[Array, ...],
  integers: tuple[Array, ...],
  seed_2: Array,
  axes: str = 'BH',
) -> Array:
  """Run `attend(arrays, words, *integers)` on each device's shard of rows and heads.

  Args:
    attend: function of one device.
    arrays: of rows and heads, 4 axes, the first as the output; those of 3 axes of heads, (H, ...).
    integers: of rows, (B, ...).
    seed_2: seed of dropout. `words` are these two, the first row and the first head of the device: (4,) int32.
    axes: letters of the first of the 4 axes.
  """
  where = placement.current()
  if where is None or where.mapped or where.devices == 1:
    return attend(arrays, jnp.concatenate([seed_2, jnp.zeros(2, jnp.int32)]), *integers)
  specs = tuple(where.spec(x.shape, axes if x.ndim == 4 else 'H') for x in arrays)
  spec = specs[0]

  def run(arrays: tuple[Array, ...], integers: tuple[Array, ...], seed_2: Array) -> Array:
    shard = lambda axes: jax.lax.axis_index(axes) if axes else 0
    first = [shard(spec[axis]) * arrays[0].shape[axis] for axis in map(axes.index, 'BH')]
    return attend(arrays, jnp.concatenate([seed_2, jnp.array(first, jnp.int32)]), *integers)

  in_specs = specs, (PartitionSpec(spec[0]),) * len(integers), PartitionSpec()
  run = jax.shard_map(run, mesh=where.mesh, in_specs=in_specs, out_specs=spec, check_vma=False)
  return run(arrays, integers, seed_2)


def pad_group(group_BT: Array, rows: int, more: int) -> Array:
  """Return the groups of all rows, with padding positions as a separate group."""
  return jnp.pad(jnp.broadcast_to(group_BT, (rows, group_BT.shape[1])), ((0, 0), (0, more)), constant_values=PADDED)


def kept(rate: float, words: Any, head: Any, row_Q1: Array, column_QS: Array) -> Array:
  """Return which elements of a block dropout keeps: (Q, S).

  Args:
    rate: dropout rate.
    words: their first two are the seed.
    head: number of the rows before those of the block's head.
    row_Q1: row of each query in its head.
    column_QS: number of each key.
  """
  seed = words[0].astype(jnp.uint32), words[1].astype(jnp.uint32)
  return dropout.mask_of_columns(seed, rate, (head + row_Q1).astype(jnp.uint32), column_QS.astype(jnp.uint32))


def drop(x_QS: Array, keep_QS: Array | None) -> Array:
  """Return an array with 0 for the elements that are not kept, without scaling the others."""
  return x_QS if keep_QS is None else jnp.where(keep_QS, x_QS, 0.0)


def score_gradients(rate: float, p_QS: Array, dp_QS: Array) -> Array:
  """Return the gradients of scores.

  Args:
    rate: dropout rate.
    p_QS: probabilities, divided by 1 - rate.
    dp_QS: gradients of the probabilities after dropout, 0 for those that it drops.
  """
  return p_QS * (dp_QS - jnp.sum(p_QS * dp_QS, axis=1, keepdims=True) * (1.0 - rate))


def schedule(steps: int, shares: Sequence[float] = ()) -> dict[str, str]:
  """Return the metadata of a kernel: steps of its grid, and the share of them in which each of its branches runs."""
  return {SCHEDULE: json.dumps([steps, *shares])}


def shares(of_block: Sequence[int]) -> list[float]:
  """Return the share of the blocks for which each branch of `over_visible` runs; [] without branches."""
  counts = [of_block.count(end) / len(of_block) for end in dict.fromkeys(of_block)]
  return counts if len(counts) > 1 else []


def ends(seen: Sequence[int], keys: int) -> list[int]:
  """Return for each block of queries the number of keys to compute, of BRANCHES values at most.

  Args:
    seen: for each block, the end of the keys that it attends to, in ascending order.
    keys: number of keys, with padding.
  """
  step = step_of(keys)
  return [min(keys, -(-n // step) * step) for n in seen]


def step_of(keys: int) -> int:
  """Return the step between the numbers of keys of a kernel's branches, a multiple of LANES."""
  return -(-keys // (BRANCHES * LANES)) * LANES


def over_visible(of_block: Sequence[int], i: Array, run: Callable[[int], None]) -> None:
  """Call `run` with the number of keys of block `i`, in a branch for each number; later keys are masked."""
  for end in dict.fromkeys(of_block):
    first, count = of_block.index(end), of_block.count(end)
    if count == len(of_block):
      run(end)
    else:
      pl.when((i >= first) & (i < first + count))(functools.partial(run, end))


def dot(a: Array, b: Array, contracted: tuple[int, int]) -> Array:
  """Contract one axis of each operand, accumulated in float32."""
  exact = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else jax.lax.Precision.DEFAULT
  dimensions = ((contracted[0],), (contracted[1],)), ((), ())
  return jax.lax.dot_general(a, b, dimensions, precision=exact, preferred_element_type=jnp.float32)
