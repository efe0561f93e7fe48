"""Factorized causal attention of Sparse Transformers (Child, Gray, Radford & Sutskever 2019, arXiv 1904.10509).

lmx/ops/sparse_attention.py has the patterns and the equation. With a cache the keys of all positions are available, and
the sets are a mask on at most l queries at a time.

Axes: S keys of a query; l is the stride.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lmx.layers.kv_cache import Cache, write
from lmx.layers.transformer import SelfAttention
from lmx.ops import sparse_attention
from lmx.ops.masks import AttentionMask
from lmx.ops.sparse_attention import Part, Plan
from lmx.types import Array, record_attention


class SparseAttention(SelfAttention):
  """`SelfAttention` over the sets of a `Plan`, with the same parameters and the same cache."""

  plan: Plan = Plan('strided', 'merged', 128, 1, 'paper')

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask: AttentionMask, cache: Cache | None, position_BT: Array | None, key: Array | None
  ) -> tuple[Array, Cache | None]:
    del key  # no dropout of probabilities
    D = x_BTD.shape[-1]
    H, K = self.heads, D // self.heads
    q_BTHK, k_BTHK, v_BTHK = self.project_qkv(x_BTD)
    if cache is not None and position_BT is not None:
      cache = write(cache, k_BTHK, v_BTHK, position_BT)
      o_BTHK = attend_cached(q_BTHK, *cache, position_BT, self.plan)
    else:
      o_BTHK = sparse_attention.attend(q_BTHK, k_BTHK, v_BTHK, mask, self.plan, self.backend)
      record_attention('self', lambda: weights(q_BTHK, k_BTHK, mask, self.plan))
    return self.project((H, K), (D,), residual=True, name='out')(o_BTHK), cache


def weights(q_BTHK: Array, k_BTHK: Array, mask: AttentionMask, plan: Plan) -> Array:
  """Return the weights of all keys for each query, (B, H, T, T) float32: the attention of one-hot values."""
  one_hot_BTHT = jnp.broadcast_to(jnp.eye(q_BTHK.shape[1])[:, None], (*q_BTHK.shape[:3], q_BTHK.shape[1]))
  return sparse_attention.attend(q_BTHK, k_BTHK, one_hot_BTHT, mask, plan).transpose(0, 2, 1, 3)


def attend_cached(q_BTHK: Array, k_BSHK: Array, v_BSHK: Array, position_BT: Array, plan: Plan) -> Array:
  """Return attention of queries at any positions to their sets of keys at positions 0 .. S-1, l queries at a time.

  Returns:
    (B, T, H, K) in the type of the queries.
  """
  (B, T, H, K), l = q_BTHK.shape, plan.stride

  def attend_chunk(xs: tuple[Array, Array]) -> Array:
    q_BQHK, position_BQ = xs
    mask_BHQS = allowed(position_BQ[:, None, :, None], jnp.arange(k_BSHK.shape[1]), H, plan)
    return sparse_attention.softmax(q_BQHK[:, None], [Part('BSHK', k_BSHK, v_BSHK, mask_BHQS[:, :, None])])[:, 0]

  if T <= l:
    return attend_chunk((q_BTHK, position_BT))
  chunks = -(-T // l)

  def split(x: Array) -> Array:
    """Reshape (B, T, ...) to (chunks, B, l, ...)."""
    x = jnp.pad(x, ((0, 0), (0, chunks * l - T), *((0, 0),) * (x.ndim - 2)))
    return x.reshape(B, chunks, l, *x.shape[2:]).swapaxes(0, 1)

  o_NBQHK = jax.lax.map(attend_chunk, (split(q_BTHK), split(position_BT)))
  return o_NBQHK.swapaxes(0, 1).reshape(B, chunks * l, H, K)[:, :T]


def allowed(i: Array, j: Array, heads: int, plan: Plan) -> Array:
  """Return True where position i attends to j for each head, (B, H, T, S); i and j broadcast to (B, 1, T, S)."""
  l, head_H11 = plan.stride, np.arange(heads)[:, None, None]
  if plan.pattern == 'strided':
    first, second = i - j < plan.window, (i - j) % l == 0
  else:
    start = plan.columns(head_H11)
    first, second = i // l == j // l, (j % l >= start) & (j % l < start + plan.summary)
  if plan.sets == 'heads':
    mask = jnp.where(head_H11 < heads // 2, first, second)
  else:
    mask = {'first': first, 'second': second, 'merged': first | second}[plan.sets]
  return mask & (j <= i)
