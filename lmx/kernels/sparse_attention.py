"""Factorized attention (lmx/ops/sparse_attention.py) on a GPU or TPU.

A loop over blocks computes the scores of long texts and recomputes them in the backward pass. On a TPU a kernel
computes attention to summary columns; its keys are these columns and, in 'merged', all positions after them
(lmx/kernels/patterns.py).

Axes: J blocks, Q offsets in a block, S keys of a query.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lmx.kernels import attention as kernels
from lmx.kernels import chunked_attention, devices
from lmx.kernels.patterns import BlockAndSummaries, Summaries
from lmx.ops import attention, masks, sparse_attention
from lmx.ops.masks import AttentionMask
from lmx.ops.patterns import Pattern
from lmx.ops.sparse_attention import Part, Plan, summary_columns, to_blocks
from lmx.types import Array

SCORES = 2**24  # of a chunk of blocks on a device, 64 MiB in float32


def attend_heads(
  q_BTHK: Array, k_BTHK: Array, v_BTHK: Array, mask: AttentionMask, plan: Plan, heads: np.ndarray, backend: str
) -> Array:
  """Compute `sparse_attention.attend_heads`."""
  has_kernel = _has_kernel(plan, q_BTHK, mask, backend)
  compute = _by_kernel if has_kernel else sparse_attention.attend_heads.equation
  return compute(q_BTHK, k_BTHK, v_BTHK, mask, plan, heads, backend)


def _has_kernel(plan: Plan, q_BTHK: Array, mask: AttentionMask, backend: str) -> bool:
  """Return True if a kernel for TPUs computes attention to summary columns."""
  if plan.pattern != 'fixed' or plan.sets == 'first' or backend not in (*kernels.AUTOMATIC, 'rows', 'splash'):
    return False
  B, T, H, K = q_BTHK.shape
  S = -(-T // plan.stride) * plan.summary + (T if plan.sets == 'merged' else 0)
  keys = jax.ShapeDtypeStruct((B, S, H, K), q_BTHK.dtype)
  return kernels.choose(backend, q_BTHK, keys, mask, 0.0) in (kernels.rows, kernels.splash)


def _by_kernel(
  q_BTHK: Array, k_BTHK: Array, v_BTHK: Array, mask: AttentionMask, plan: Plan, heads: np.ndarray, backend: str
) -> Array:
  """Attend to summary columns, and in 'merged' to the query's block, by a softmax over a `Pattern` of keys."""
  start_H = plan.columns(heads)
  is_alike = plan.sets == 'merged' and mask.query_group_BT is None or len(set(start_H.tolist())) == 1
  if is_alike:
    return _to_columns(q_BTHK, k_BTHK, v_BTHK, mask, plan, start_H, backend)
  # The mask depends on the columns, so heads with equal columns share a call.
  outputs = [
    _to_columns(q_BTHK[:, :, h], k_BTHK[:, :, h], v_BTHK[:, :, h], mask, plan, start_H[h], backend)
    for h in (np.flatnonzero(start_H == start) for start in np.unique(start_H))
  ]
  return jnp.concatenate(outputs, axis=2)[:, :, np.argsort(np.argsort(start_H, kind='stable'))]


def _to_columns(
  q_BTHK: Array, k_BTHK: Array, v_BTHK: Array, mask: AttentionMask, plan: Plan, start_H: np.ndarray, backend: str
) -> Array:
  """Return `_by_kernel` of heads that share a mask."""
  T, l, c, is_alone = q_BTHK.shape[1], plan.stride, plan.summary, plan.sets == 'second'
  blocks, start = -(-T // l), int(start_H[0])
  join = lambda columns, x: columns if is_alone else jnp.concatenate([columns, x], axis=1)
  k_BSHK, v_BSHK = (join(summary_columns(to_blocks(x, l), start_H, c), x) for x in (k_BTHK, v_BTHK))
  query_group_BT, key_group_BS = mask.query_group_BT, mask.key_group_BS
  place_S = (np.arange(blocks)[:, None] * l + start + np.arange(c)).ravel()
  has_key_BTS = jnp.asarray(place_S <= np.arange(T)[:, None])[None]
  if query_group_BT is not None and key_group_BS is not None:
    column_group_BS = jnp.pad(key_group_BS, ((0, 0), (0, -T % l)), constant_values=masks.PADDING)[:, place_S]
    has_key_BTS = has_key_BTS & (query_group_BT[:, :, None] == column_group_BS[:, None])
    key_group_BS = join(column_group_BS, key_group_BS)
  pattern: Pattern = Summaries(l, c, start) if is_alone else BlockAndSummaries(l, c, blocks)
  mask = AttentionMask(None, query_group_BT, key_group_BS, pattern)
  o_BTHK = attention.attend(q_BTHK, k_BSHK, v_BSHK, mask, causal=True, backend=backend)
  return jnp.where(jnp.any(has_key_BTS, axis=-1)[..., None, None], o_BTHK, 0) if is_alone else o_BTHK


def softmax(q_BJQHK: Array, parts: list[Part]) -> Array:
  """Compute `sparse_attention.softmax`; on a GPU or TPU by a loop over blocks that recomputes scores in the backward
  pass."""
  B, J, Q, H, _ = q_BJQHK.shape
  keys = sum(part.k.shape[part.axes.index('S')] for part in parts)
  chunks = chunked_attention.count(B * H * Q * keys // devices.shards((B, H), 'BH'), J, 1, SCORES)
  if devices.is_platform('cpu') or chunks == 1:
    return sparse_attention.softmax.equation(q_BJQHK, parts)
  size = -(-J // chunks)

  def split(x: Array, axis: int) -> Array:
    """Return the chunks of the blocks along an axis, as the first axis."""
    x = jnp.pad(x, [(0, chunks * size - J if i == axis else 0) for i in range(x.ndim)])
    return jnp.moveaxis(x.reshape(*x.shape[:axis], chunks, size, *x.shape[axis + 1 :]), axis, 0)

  split_keys = [(split(part.k, 1), split(part.v, 1)) if part.axes == 'BJSHK' else None for part in parts]
  split_masks = [split(part.mask, 2) if part.mask.shape[2] > 1 else None for part in parts]

  def chunk(xs: tuple[Any, ...]) -> Array:
    q, *of_parts = xs
    now = []
    for part, keys, mask in zip(parts, *of_parts, strict=True):
      k, v = keys or (part.k, part.v)
      now.append(Part(part.axes, k, v, part.mask if mask is None else mask))
    return sparse_attention.softmax.equation(q, now)

  with jax.named_scope(chunked_attention.SCOPE):
    o = jax.lax.map(jax.checkpoint(chunk, prevent_cse=False), (split(q_BJQHK, 1), split_keys, split_masks))
  return jnp.moveaxis(o, 0, 1).reshape(B, chunks * size, *q_BJQHK.shape[2:])[:, :J]
