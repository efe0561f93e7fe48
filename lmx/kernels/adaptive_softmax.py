"""Adaptive softmax tails: compute a loss only at selected positions, block by block.

The selected positions are sorted to the front and processed in blocks of fixed size. A loop, in both passes, runs as
many blocks as are needed. Shapes are static, no position is dropped, and the cost is linear in the selected positions.

Axes: L positions of a group (the rows on one device), G groups, M positions of a block.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lmx import placement
from lmx.kernels import devices
from lmx.types import Array, Copies

CPU_LOGITS, LOGITS = 2**24, 2**28  # maximum number of logits in a block, on a CPU and elsewhere
EXPECTED = 'expected_trips_'  # of a loop of unknown length, in its name
LEAST = 128  # minimum block size in positions: below it, reading the table dominates

Loss = Callable[
  [Any, Array, Array, Array], Array
]  # of (table, x_GMD, target_GM, selected_GM): (G, M), 0 if not selected


class Plan(NamedTuple):
  """Compile-time constants.

  Attributes:
    size: positions of a block.
    blocks: expected number of blocks.
  """

  size: int
  blocks: int

  def scope(self) -> Any:
    """Return the scope of the loop, whose name tells `lmx compile` how often it is expected to run."""
    return jax.named_scope(f'{EXPECTED}{self.blocks}')


def zipf_share(first: int, end: int, V: int) -> float:  # noqa: N803
  """Return the share of tokens with the ids first .. end - 1 of V under Zipf's law: id n has frequency 1 / (n + 1)."""
  return math.log((end + 0.5) / (first + 0.5)) / math.log((V + 0.5) / 0.5)


def block_size(positions: int, classes: int, block: int = 0) -> int:
  """Return the block size, in positions, for a group of this many positions.

  `block` is the size; 0: a 16th of the positions, at least `LEAST`, within `CPU_LOGITS` or `LOGITS`.
  """
  most = (CPU_LOGITS if devices.is_platform('cpu') else LOGITS) // classes
  return min(max(1, block or min(most, max(LEAST, positions // 16))), positions)


def selected_losses(
  loss: Loss,
  table: Any,
  x_BTD: Array,
  targets_BT: Array,
  selected_BT: Array,
  *,
  words: Sequence[int],
  block: int = 0,
) -> Array:
  """Compute `adaptive_softmax.selected_losses` only at the selected positions; `block` as in `block_size`."""
  B, T = targets_BT.shape
  groups = devices.row_shards(B)
  loss, table = _by_group(loss, table, groups)
  flat = lambda x: placement.constrain(x.reshape(groups, -1, *x.shape[2:]), 'B')
  positions, (first, end, _) = B * T // groups, words
  size = block_size(positions, end - first, block)
  plan = Plan(size, math.ceil(zipf_share(*words) * positions / size))
  return _selected_loss(loss, plan, table, flat(x_BTD), flat(targets_BT), flat(selected_BT)).reshape(B, T)


def _by_group(loss: Loss, table: Any, groups: int) -> tuple[Loss, Any]:
  """Return the loss with per-group parameters, so that the block loop reduces no gradient over devices."""
  is_copies = lambda x: isinstance(x, Copies)
  if groups == 1 or devices.copies(jnp.zeros(())) is None:
    return loss, jax.tree.map(lambda x: x.values_SVD[0] if is_copies(x) else x, table, is_leaf=is_copies)
  copy = lambda x: x.values_SVD if is_copies(x) else devices.copies(x)
  return _mapped(loss), jax.tree.map(copy, table, is_leaf=is_copies)


@functools.cache
def _mapped(loss: Loss) -> Loss:
  return jax.vmap(lambda table, *arrays: loss(table, *(x[None] for x in arrays))[0])


def _queue(selected_GL: Array, size: int) -> tuple[Array, Array, Array]:
  """Return (positions of a group, selected first, padded to whole blocks; number of selected; number of blocks)."""
  order_GL = jnp.argsort(~selected_GL, axis=1, stable=True)
  count_G = jnp.sum(selected_GL, axis=1)
  padded_GL = jnp.pad(order_GL, ((0, 0), (0, -order_GL.shape[1] % size)))
  return padded_GL, count_G, -(-jnp.max(count_G) // size)


def _block(
  size: int, p: Array, order_GL: Array, count_G: Array, x_GLD: Array, target_GL: Array
) -> tuple[Array, Array, Array, Array]:
  """Return (positions, x, targets, live) of block p; positions that are not live are out of range."""
  position_GM = jax.lax.dynamic_slice_in_dim(order_GL, p * size, size, axis=1)
  live_GM = p * size + jnp.arange(size)[None] < count_G[:, None]
  x_GMD = jnp.take_along_axis(x_GLD, position_GM[..., None], axis=1)
  target_GM = jnp.where(live_GM, jnp.take_along_axis(target_GL, position_GM, axis=1), 0)
  return jnp.where(live_GM, position_GM, x_GLD.shape[1]), x_GMD, target_GM, live_GM


def _put(array: Array, position_GM: Array, values: Array) -> Array:
  put = lambda array, position_M, values: array.at[position_M].set(values, mode='drop')
  return placement.constrain(jax.vmap(put)(array, position_GM, values), 'B')


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _selected_loss(loss: Loss, plan: Plan, table: Any, x_GLD: Array, target_GL: Array, selected_GL: Array) -> Array:
  order_GL, count_G, blocks = _queue(selected_GL, plan.size)

  def body(p: Array, loss_GL: Array) -> Array:
    position_GM, *inputs = _block(plan.size, p, order_GL, count_G, x_GLD, target_GL)
    return _put(loss_GL, position_GM, loss(table, *inputs))

  with plan.scope():
    return jax.lax.fori_loop(0, blocks, body, jnp.zeros(target_GL.shape, jnp.float32))


def _selected_loss_forward(
  loss: Loss, plan: Plan, table: Any, x_GLD: Array, target_GL: Array, selected_GL: Array
) -> tuple[Array, tuple[Any, ...]]:
  return _selected_loss(loss, plan, table, x_GLD, target_GL, selected_GL), (table, x_GLD, target_GL, selected_GL)


def _selected_loss_backward(
  loss: Loss, plan: Plan, residuals: tuple[Any, ...], g_GL: Array
) -> tuple[Any, Array, None, None]:
  table, x_GLD, target_GL, selected_GL = residuals
  order_GL, count_G, blocks = _queue(selected_GL, plan.size)

  def body(p: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
    d_table, dx_GLD = carry
    position_GM, x_GMD, target_GM, live_GM = _block(plan.size, p, order_GL, count_G, x_GLD, target_GL)
    _, back = jax.vjp(lambda table, x_GMD: loss(table, x_GMD, target_GM, live_GM), table, x_GMD)
    more, dx_GMD = back(jnp.take_along_axis(g_GL, jnp.minimum(position_GM, g_GL.shape[1] - 1), axis=1))
    return jax.tree.map(jnp.add, d_table, more), _put(dx_GLD, position_GM, dx_GMD)

  start = jax.tree.map(jnp.zeros_like, (table, x_GLD))
  with plan.scope():
    d_table, dx_GLD = jax.lax.fori_loop(0, blocks, body, start)
  return d_table, dx_GLD, None, None


_selected_loss.defvjp(_selected_loss_forward, _selected_loss_backward)
