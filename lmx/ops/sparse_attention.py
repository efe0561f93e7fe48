"""Attention to the sets of a factorized pattern (Child et al. 2019, arXiv 1904.10509, section 4.3).

Position i attends to a set S_i of positions up to i (equation 2). Two patterns factorize it into two sets, where l is
the stride and positions start at 0:

- 'strided': A1 = {max(0, i - l) .. i}, A2 = {j <= i: (i - j) mod l = 0}.
- 'fixed': A1 = {j <= i: j and i in one block of l}, A2 = {j <= i: j mod l >= l - c}, the last c of every block.

`sets` selects how a layer uses them (section 5.1): 'first' or 'second' is one of the two, for alternating layers;
'merged' is one softmax over their union; 'heads' gives A1 to the first half of the heads and A2 to the others.

Where equations and released code (openai/sparse_attention, attention.py) differ, `fidelity` selects:
- 'paper': the equations above.
- 'released': A1 of 'strided' is the last l positions, i included. In 'fixed' heads have different summary
  columns: head h has the (h mod l / c)-th run of c from the end of a block, as section 4.3 also recommends.

No T x T matrix is formed. Queries are arranged in J = ceil(T / l) blocks of l, and a set is a `Part`: keys arranged so
that batched products with a block, or a column, of queries give every score: own and previous block for A1, the same
offset of every block for A2 of 'strided', c offsets of every block for A2 of 'fixed'. A head has T (2 l + T / l) and
T (l + c T / l) scores. Keys of a part outside its set are masked, and in 'merged' so are keys that both sets have. A
position with an empty set, as A2 of the first ones in 'fixed', gets 0.

Axes: J blocks, Q offsets in a block, S keys of a query.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lmx.ops import masks
from lmx.ops.dense import einsum
from lmx.ops.masks import AttentionMask
from lmx.ops.operation import Operation
from lmx.types import Array

PATTERNS = ('strided', 'fixed')
SETS = ('first', 'second', 'merged', 'heads')
FIDELITIES = ('paper', 'released')


class Plan(NamedTuple):
  """Sparsity pattern of attention.

  Attributes:
    pattern: one of PATTERNS.
    sets: one of SETS.
    stride: l.
    summary: c of 'fixed'; with fidelity 'released' it divides l.
    fidelity: one of FIDELITIES.
  """

  pattern: str
  sets: str
  stride: int
  summary: int
  fidelity: str

  @property
  def window(self) -> int:
    """Number of positions in A1 of 'strided'."""
    return self.stride + (self.fidelity == 'paper')

  def columns(self, head: np.ndarray) -> np.ndarray:
    """Return the first offset in a block that A2 of 'fixed' has for each head; it has c consecutive ones."""
    l, c = self.stride, self.summary
    run = 0 * head if self.fidelity == 'paper' else head % (l // c)
    return l - c - c * run


class Part(NamedTuple):
  """Keys of all queries, arranged for one batched product.

  Attributes:
    axes: axes of the keys: 'BJSHK' per block, 'BSQHK' per offset in a block, 'BSHK' shared by all queries.
    k, v: keys and values.
    mask: True where a key is in the query's set, broadcast to (B, H, J, Q, S).
  """

  axes: str
  k: Array
  v: Array
  mask: Array


def attend(
  q_BTHK: Array, k_BTHK: Array, v_BTHK: Array, mask: AttentionMask, plan: Plan, backend: str = 'auto'
) -> Array:
  """Return the attention of every position to its set.

  Args:
    q_BTHK: queries of positions 0 .. T-1.
    k_BTHK: keys of these.
    v_BTHK: values of these.
    mask: groups of queries and keys; keys of other groups are masked.
    plan: the sparsity pattern.
    backend: one of `attention.BACKENDS`.

  Returns:
    (B, T, H, K) in the type of the queries.
  """
  H = q_BTHK.shape[2]
  groups = [(0, H // 2, 'first'), (H // 2, H, 'second')] if plan.sets == 'heads' else [(0, H, plan.sets)]
  outputs = []
  for first, end, sets in groups:
    q, k, v = (x[:, :, first:end] for x in (q_BTHK, k_BTHK, v_BTHK))
    outputs.append(attend_heads(q, k, v, mask, plan._replace(sets=sets), np.arange(first, end), backend))
  return outputs[0] if len(outputs) == 1 else jnp.concatenate(outputs, axis=2)


@Operation
def attend_heads(
  q_BTHK: Array, k_BTHK: Array, v_BTHK: Array, mask: AttentionMask, plan: Plan, heads: np.ndarray, backend: str
) -> Array:
  """Compute `attend` of the given heads, whose sets are not 'heads'."""
  del backend
  B, T, H, _ = q_BTHK.shape
  q, k, v = (to_blocks(x, plan.stride) for x in (q_BTHK, k_BTHK, v_BTHK))
  groups = None
  if mask.query_group_BT is not None and mask.key_group_BS is not None:
    groups = to_blocks(mask.query_group_BT, plan.stride), to_blocks(mask.key_group_BS, plan.stride, masks.PADDING)
  o_BJQHK = softmax(q, _parts(k, v, groups, plan, heads))
  return o_BJQHK.reshape(B, -1, H, v_BTHK.shape[-1])[:, :T]


def to_blocks(x: Array, l: int, fill: int = 0) -> Array:
  """Reshape (B, T, ...) to (B, J, Q, ...); the padding at the end comes after every real query."""
  B, T, *rest = x.shape
  x = jnp.pad(x, ((0, 0), (0, -T % l), *((0, 0),) * (x.ndim - 2)), constant_values=fill)
  return x.reshape(B, -(-T // l), l, *rest)


def summary_columns(x: Array, start_H: np.ndarray, c: int) -> Array:
  """Return the summary columns of (B, J, Q, H, ...) as (B, S, H, ...), S = J c."""
  if len(set(start_H.tolist())) == 1:
    columns = x[:, :, start_H[0] : start_H[0] + c]
  else:
    columns = jnp.stack([x[:, :, start : start + c, h] for h, start in enumerate(start_H)], axis=3)
  return columns.reshape(x.shape[0], -1, *x.shape[3:])


def _parts(k: Array, v: Array, groups: tuple[Array, Array] | None, plan: Plan, heads: np.ndarray) -> list[Part]:
  """Return the parts of a layer, from keys and values (B, J, Q, H, K) of the given heads."""
  first, second = {'strided': (_recent, _same_offset), 'fixed': (_own_block, _summaries)}[plan.pattern]
  makers = {'first': (first,), 'second': (second,), 'merged': (first, second)}[plan.sets]
  return [make(k, v, groups, plan, heads) for make in makers]


def _recent(k: Array, v: Array, groups: Any, plan: Plan, heads: np.ndarray) -> Part:
  """Return A1 of 'strided': the keys of the previous and the own block that are in the window."""
  del heads
  l, blocks = plan.stride, k.shape[1]
  previous = lambda x: jnp.pad(x, ((0, 0), (1, 0), *((0, 0),) * (x.ndim - 2)))[:, :-1]
  joined = lambda x: jnp.concatenate([previous(x), x], axis=2)
  distance_QS = np.arange(l)[:, None] + l - np.arange(2 * l)
  there_JS = (np.arange(blocks)[:, None] > 0) | (np.arange(2 * l) >= l)
  mask = ((distance_QS >= 0) & (distance_QS < plan.window))[None] & there_JS[:, None]
  return Part('BJSHK', joined(k), joined(v), _in_group(mask, groups, lambda x: joined(x)[:, :, None]))


def _same_offset(k: Array, v: Array, groups: Any, plan: Plan, heads: np.ndarray) -> Part:
  """Return A2 of 'strided': the same offset of this block and earlier ones; if merged, without keys of `_recent`."""
  del heads
  blocks_J = np.arange(k.shape[1])
  back_JS = blocks_J[:, None] - blocks_J  # blocks from key to query
  least = -(-plan.window // plan.stride) if plan.sets == 'merged' else 0
  return Part('BSQHK', k, v, _in_group((back_JS >= least)[:, None], groups, lambda x: x.swapaxes(1, 2)[:, None]))


def _own_block(k: Array, v: Array, groups: Any, plan: Plan, heads: np.ndarray) -> Part:
  """Return A1 of 'fixed': the own block up to the query."""
  del heads
  mask_1QS = np.tril(np.ones((1, plan.stride, plan.stride), bool))
  return Part('BJSHK', k, v, _in_group(mask_1QS, groups, lambda x: x[:, :, None]))


def _summaries(k: Array, v: Array, groups: Any, plan: Plan, heads: np.ndarray) -> Part:
  """Return A2 of 'fixed': summary columns of earlier blocks and, unless merged, of the own block up to the query."""
  blocks, c = k.shape[1], plan.summary
  start_H = plan.columns(heads)
  alike = len(set(start_H.tolist())) == 1
  start_G = start_H[:1] if alike else start_H  # G heads, or one for all
  block_J, block_S = np.arange(blocks), np.arange(blocks * c) // c
  mask = jnp.asarray(block_J[:, None] > block_S)[None, None, :, None]  # (1, 1, J, 1, S)
  if plan.sets != 'merged':
    place_GS = start_G[:, None] + np.arange(blocks * c) % c
    reached_GQS = np.arange(plan.stride)[:, None] >= place_GS[:, None]
    own_JS = block_J[:, None] == block_S
    mask = mask | (jnp.asarray(own_JS)[None, :, None] & jnp.asarray(reached_GQS)[:, None])[None]
  if groups is not None:
    group_BSG = summary_columns(jnp.broadcast_to(groups[1][..., None], (*groups[1].shape, len(start_G))), start_G, c)
    mask = mask & (groups[0][:, None, :, :, None] == group_BSG.swapaxes(1, 2)[:, :, None, None])
  return Part('BSHK', summary_columns(k, start_H, c), summary_columns(v, start_H, c), mask)


def _in_group(mask_JQS: np.ndarray, groups: Any, arrange: Any) -> Array:
  """Return a mask, restricted to equal groups: `arrange` arranges the keys' groups like the queries', (B, J, Q, S)."""
  mask = jnp.asarray(mask_JQS)[None, None]
  return mask if groups is None else mask & (groups[0][..., None] == arrange(groups[1]))[:, None]


@Operation
def softmax(q_BJQHK: Array, parts: list[Part]) -> Array:
  """Return the values' mean under one softmax over all parts, in float32, (B, J, Q, H, K)."""
  scaled = q_BJQHK * q_BJQHK.shape[-1] ** -0.5
  # For 'BSQHK' scores have the offset before the block; only their sums over S are transposed back.
  rows = ['BHQJ' if part.axes == 'BSQHK' else 'BHJQ' for part in parts]
  turn = lambda x, rows: x.swapaxes(2, 3) if rows == 'BHQJ' else x
  scores, hidden = [], []
  for part, axes in zip(parts, rows, strict=True):
    a = einsum(f'BJQHK,{part.axes}->{axes}S', scaled, part.k)
    mask = turn(part.mask, axes)
    scores.append(jnp.where(mask, a, masks.MASKED))
    hidden.append(mask)
  tops = [turn(jnp.max(a, axis=-1), axes) for a, axes in zip(scores, rows, strict=True)]
  top_BHJQ = jax.lax.stop_gradient(jnp.max(jnp.stack(tops), axis=0))
  total_BHJQ, o_BJQHK = jnp.zeros_like(top_BHJQ), jnp.float32(0)
  for part, axes, a, mask in zip(parts, rows, scores, hidden, strict=True):
    e = jnp.where(mask, jnp.exp(a - turn(top_BHJQ, axes)[..., None]), 0.0)
    total_BHJQ = total_BHJQ + turn(jnp.sum(e, axis=-1), axes)
    o_BJQHK = o_BJQHK + einsum(f'{axes}S,{part.axes}->BJQHK', e.astype(part.v.dtype), part.v)
  total_BJQH1 = total_BHJQ.transpose(0, 2, 3, 1)[..., None]
  return (o_BJQHK / jnp.where(total_BJQH1 > 0, total_BJQH1, 1.0)).astype(q_BJQHK.dtype)
