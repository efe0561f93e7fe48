"""Attention by a loop over query chunks, each for all rows and heads, for GPUs and TPUs without a kernel.

The scores of a chunk are (B, H, Q, S), so memory is linear in the number of queries. The backward pass recomputes them
from the saved log-normalisers (Rabe & Staats 2021, arXiv 2112.05682). The dropout mask is the hash of
lmx/ops/dropout.py. It is plain XLA and supports every mask, type, head width, and sharding of rows and heads.

Axes: Q queries of a chunk, C the first keys, to which a chunk may attend.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from lmx import placement
from lmx.kernels import devices, patterns
from lmx.ops import dropout
from lmx.types import Array

SCORES = 2**25  # of a chunk on a device, 128 MiB in float32
LEAST = 128  # queries of a chunk
SEGMENTS = 4  # query segments compiled for different key counts: causal attention computes 5/8 of the scores
SCOPE = 'chunked_attention'  # name of its operations


class Plan(NamedTuple):
  """Compile-time constants.

  Attributes:
    causal: mask keys after the query.
    rate: dropout rate of the probabilities.
    queries: T, without padding.
    size: Q.
  """

  causal: bool
  rate: float
  queries: int
  size: int

  def segments(self, mask: Any, T: int, S: int) -> list[tuple[Array, int]]:
    """Return (first query of each chunk, number of keys) for each segment."""
    chunks = T // self.size
    step = -(-chunks // SEGMENTS)
    ends = [min(i + step, chunks) for i in range(0, chunks, step)]
    reach = [patterns.reach(mask, self.causal, end * self.size, S) for end in ends]
    if reach[0] == S:  # all chunks attend to all keys
      return [(jnp.arange(chunks, dtype=jnp.int32) * self.size, S)]
    starts = [0, *ends[:-1]]
    return [
      (jnp.arange(a, b, dtype=jnp.int32) * self.size, keys) for a, b, keys in zip(starts, ends, reach, strict=True)
    ]


def count(scores: int, length: int, least: int, most: int) -> int:
  """Return the loop's number of chunks.

  Args:
    scores: scores on a device of each element.
    length: number of elements.
    least: minimum elements per chunk, even if they have more scores than `most`.
    most: maximum scores per chunk and device.
  """
  return -(-length // max(least, most // scores))


def attention(
  q_BTHK: Array,
  k_BSHK: Array,
  v_BSHK: Array,
  mask: Any,
  *,
  causal: bool,
  rate: float = 0.0,
  key: Array | None = None,
) -> Array:
  """Return `lmx.ops.attention.attend`; arguments as there."""
  (B, T, H, _), S = q_BTHK.shape, k_BSHK.shape[1]
  size = -(-T // count(B * H * S // devices.shards((B, H), 'BH'), T, LEAST, SCORES))
  more = -T % size
  pad = lambda x: jnp.pad(x, [(0, more if axis == 1 else 0) for axis in range(x.ndim)])
  mask = _of_queries(mask, pad)
  plan = Plan(causal, rate if key is not None else 0.0, T, size)
  seed_2 = dropout.seed(key) if key is not None and rate else None
  with jax.named_scope(SCOPE):
    return _attention(plan, pad(q_BTHK), k_BSHK, v_BSHK, mask, seed_2)[:, :T]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(plan: Plan, q_BTHK: Array, k_BSHK: Array, v_BSHK: Array, mask: Any, seed_2: Array | None) -> Array:
  return _forward(plan, q_BTHK, k_BSHK, v_BSHK, mask, seed_2)[0]


def _of_queries(mask: Any, function: Callable[[Array], Array]) -> Any:
  """Apply a function to an `AttentionMask`'s query arrays, (B, T)."""
  arrays = {name: getattr(mask, name) for name in ('query_position_BT', 'query_group_BT')}
  return dataclasses.replace(mask, **{name: function(x) for name, x in arrays.items() if x is not None})


def _chunk(mask: Any, first: Array, size: int) -> Any:
  """Return the mask of queries `first` .. `first + size - 1`."""
  chunk = _of_queries(mask, lambda x: lax.dynamic_slice_in_dim(x, first, size, 1))
  return dataclasses.replace(chunk, query_position_BT=first + jnp.arange(size)[None]) if mask.aligned() else chunk


def _scores(plan: Plan, q_BQHK: Array, k_BCHK: Array, mask: Any, first: Array) -> Array:
  """Return the masked scores (B, H, Q, C) of a chunk in float32."""
  a_BHQC = jnp.einsum('BQHK,BCHK->BHQC', q_BQHK, k_BCHK, preferred_element_type=jnp.float32)
  blocks = (0, plan.size), (0, k_BCHK.shape[1])
  return _chunk(mask, first, plan.size).mask_scores(a_BHQC * q_BQHK.shape[-1] ** -0.5, plan.causal, *blocks)


def _factor(plan: Plan, a_BHQC: Array, first: Array, seed_2: Array) -> Array:
  """Return a chunk's dropout factors: 0 or 1 / (1 - rate)."""
  # XLA would hoist full-shape indices out of the loop and read them from memory.
  B, H, Q, C = a_BHQC.shape
  head_BH1 = (jnp.arange(B, dtype=jnp.uint32)[:, None] * H + jnp.arange(H, dtype=jnp.uint32))[..., None]
  row_BHQ = head_BH1 * jnp.uint32(plan.queries) + first.astype(jnp.uint32) + jnp.arange(Q, dtype=jnp.uint32)
  keep_BHQC = dropout.mask(seed_2, plan.rate, row_BHQ, jnp.arange(C, dtype=jnp.uint32))
  return jnp.where(keep_BHQC, 1.0 / (1.0 - plan.rate), 0.0)


def _forward(
  plan: Plan, q_BTHK: Array, k_BSHK: Array, v_BSHK: Array, mask: Any, seed_2: Array | None
) -> tuple[Array, tuple[Any, ...]]:
  """Return the output (B, T, H, K), and as residuals the inputs, the output and log-normalisers (B, H, T)."""
  T, S = q_BTHK.shape[1], k_BSHK.shape[1]
  outputs, normalisers = [], []
  for firsts, keys in plan.segments(mask, T, S):
    k_BCHK, v_BCHK = k_BSHK[:, :keys], v_BSHK[:, :keys]

    def chunk(first: Array, k_BCHK: Array = k_BCHK, v_BCHK: Array = v_BCHK) -> tuple[Array, Array]:
      a_BHQC = _scores(plan, lax.dynamic_slice_in_dim(q_BTHK, first, plan.size, 1), k_BCHK, mask, first)
      top_BHQ = jnp.max(a_BHQC, axis=-1)
      e_BHQC = jnp.exp(a_BHQC - top_BHQ[..., None])
      total_BHQ = jnp.sum(e_BHQC, axis=-1)
      if seed_2 is not None:
        e_BHQC = e_BHQC * _factor(plan, a_BHQC, first, seed_2)
      o_BHQK = jnp.einsum('BHQC,BCHK->BHQK', e_BHQC.astype(v_BCHK.dtype), v_BCHK, preferred_element_type=jnp.float32)
      return (o_BHQK / total_BHQ[..., None]).astype(v_BCHK.dtype), top_BHQ + jnp.log(total_BHQ)

    o_nBHQK, n_nBHQ = lax.map(chunk, firsts)
    outputs.append(o_nBHQK)
    normalisers.append(n_nBHQ)
  o_nBHQK, n_nBHQ = jnp.concatenate(outputs), jnp.concatenate(normalisers)
  (_, B, H, _, width), name = o_nBHQK.shape, lambda x: checkpoint_name(x, 'BTHK')
  o_BTHK = name(placement.constrain(o_nBHQK.transpose(1, 0, 3, 2, 4).reshape(B, T, H, width), 'BTHK'))
  n_BHT = name(n_nBHQ.transpose(1, 2, 0, 3).reshape(B, H, T))
  return o_BTHK, (q_BTHK, k_BSHK, v_BSHK, mask, seed_2, o_BTHK, n_BHT)


def _backward(plan: Plan, residuals: tuple[Any, ...], do_BTHK: Array) -> tuple[Array | None, ...]:
  q_BTHK, k_BSHK, v_BSHK, mask, seed_2, o_BTHK, n_BHT = residuals
  (B, T, H, K), S = q_BTHK.shape, k_BSHK.shape[1]
  dtype, product = q_BTHK.dtype, functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
  delta_BHT = product('BTHK,BTHK->BHT', do_BTHK.astype(jnp.float32), o_BTHK.astype(jnp.float32))
  zeros = lambda x: placement.constrain(jnp.zeros(x.shape, jnp.float32), 'BSHK')
  gradients: tuple[Array, ...] = zeros(k_BSHK), zeros(v_BSHK)
  dqs = []
  for firsts, keys in plan.segments(mask, T, S):
    k_BCHK, v_BCHK = k_BSHK[:, :keys], v_BSHK[:, :keys]

    def chunk(
      carry: tuple[Array, ...], first: Array, k_BCHK: Array = k_BCHK, v_BCHK: Array = v_BCHK
    ) -> tuple[tuple[Array, ...], Array]:
      part = functools.partial(lax.dynamic_slice_in_dim, start_index=first, slice_size=plan.size)
      q_BQHK, do_BQHK = part(q_BTHK, axis=1), part(do_BTHK, axis=1)
      n_BHQ, delta_BHQ = part(n_BHT, axis=2), part(delta_BHT, axis=2)
      p_BHQC = jnp.exp(_scores(plan, q_BQHK, k_BCHK, mask, first) - n_BHQ[..., None])
      dp_BHQC, dropped_BHQC = product('BQHK,BCHK->BHQC', do_BQHK, v_BCHK), p_BHQC
      if seed_2 is not None:
        factor_BHQC = _factor(plan, p_BHQC, first, seed_2)
        dp_BHQC, dropped_BHQC = dp_BHQC * factor_BHQC, p_BHQC * factor_BHQC
      da_BHQC = (p_BHQC * (dp_BHQC - delta_BHQ[..., None]) * K**-0.5).astype(dtype)
      dk_BCHK, dv_BCHK = carry
      dk_BCHK += product('BHQC,BQHK->BCHK', da_BHQC, q_BQHK)
      dv_BCHK += product('BHQC,BQHK->BCHK', dropped_BHQC.astype(dtype), do_BQHK)
      return (dk_BCHK, dv_BCHK), jnp.einsum('BHQC,BCHK->BQHK', da_BHQC, k_BCHK)

    first_keys, dq_nBQHK = lax.scan(chunk, tuple(x[:, :keys] for x in gradients), firsts)
    gradients = tuple(x.at[:, :keys].set(new) for x, new in zip(gradients, first_keys, strict=True))
    dqs.append(dq_nBQHK)
  dq_BTHK = jnp.concatenate(dqs).swapaxes(0, 1).reshape(B, T, H, K)
  return dq_BTHK, gradients[0].astype(k_BSHK.dtype), gradients[1].astype(v_BSHK.dtype), None, None


_attention.defvjp(_forward, _backward)
