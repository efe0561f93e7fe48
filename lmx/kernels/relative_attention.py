"""Implementations of relative attention (lmx/layers/relative_attention.py).

- 'xla': the equation, over all rows and heads. It stores the (B, H, T, S) probabilities for the backward pass.
- 'blocked': a loop over rows, heads and blocks of queries, so that the scores fit a CPU's cache. The
  backward pass recomputes them from the saved log-normalisers, as in lmx/kernels/attention.py. For one device.
- 'auto': 'blocked' on a single CPU device for at least `BLOCKED_FROM` scores a head, else 'xla'. Sequential heads
  leave cores idle, so with several cores it is faster only from `BLOCKED_FROM_CORES`.

Axes: G rows x heads, S = M + T keys, R distances from S - 1 downwards, Q and C queries and keys of a block.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lmx import host, placement
from lmx.kernels import hash_dropout
from lmx.types import Array

BACKENDS = ('auto', 'xla', 'blocked')
BLOCKED_FROM = 2**14  # scores (T x S) of a head from which 'auto' selects 'blocked' on one core of a CPU
BLOCKED_FROM_CORES = 2**18  # and on several
MASKED = -1e30  # score of a masked key


def choose(backend: str, T: int, S: int) -> str:  # noqa: N803
  """Return the implementation that `backend` selects, with T queries and S keys at the current placement."""
  if backend != 'auto':
    return backend
  least = BLOCKED_FROM if host.cores() == 1 else BLOCKED_FROM_CORES
  return 'blocked' if placement.is_one_device('cpu') and T * S >= least else 'xla'


def _unshift(g_TS: Array, R: int) -> Array:
  """Return the transpose of the relative shift: (T, S) to (T, R)."""
  T, S = g_TS.shape
  g_RT = jnp.pad(jnp.pad(g_TS, ((0, 0), (0, R - S))).reshape(R, T), ((1, 0), (0, 0)))
  return g_RT.reshape(T, R + 1)[:, 1:]


Block = tuple[int, int]  # first and end of the positions of a block


class _Plan(NamedTuple):
  """Compile-time constants."""

  mask: Callable[..., Array]  # of (queries, keys, M, filled_B, farthest)
  shift: Callable[..., Array]  # of products (T, R)
  farthest: int | None
  rate: float
  heads: int
  memory: int

  def blocks(self, T: int) -> list[tuple[Block, int]]:
    """Return ((first, end) of the queries, number of keys up to the last of them) for each block."""
    size = max(64, -(-T // 8))  # few blocks, because each is compiled separately
    ends = [(t, min(t + size, T)) for t in range(0, T, size)]
    return [(queries, self.memory + queries[1]) for queries in ends]


def blocked(
  content_BTHK: Array,
  position_BTHK: Array,
  k_BSHK: Array,
  value_BSHK: Array,
  r_SHK: Array,
  filled_B: Array | None,
  *,
  mask: Callable[..., Array],
  shift: Callable[..., Array],
  farthest: int | None,
  rate: float,
  key: Array | None,
) -> Array:
  """Compute attention by heads, with the queries q + u for content and q + v for positions.

  `mask` and `shift` are the reference's functions, of (queries, keys, M, filled_B, farthest) and of products (T, R).
  """
  B, T, H, K = content_BTHK.shape
  S = k_BSHK.shape[1]
  to_front = lambda x: x.swapaxes(1, 2).reshape(B * H, x.shape[1], K)
  rate = 0.0 if key is None else rate
  seed_2 = hash_dropout.seed(key) if rate and key is not None else None
  plan = _Plan(mask, shift, farthest, rate, H, S - T)
  filled_B = jnp.full(B, S - T, jnp.int32) if filled_B is None else filled_B
  heads = map(to_front, (content_BTHK, position_BTHK, k_BSHK, value_BSHK))
  o_GTK = _blocked(plan, *heads, r_SHK.swapaxes(0, 1), filled_B, seed_2)
  return o_GTK.reshape(B, H, T, K).swapaxes(1, 2)


def _scores(plan: _Plan, a_QK: Array, b_QK: Array, k_CK: Array, r_CK: Array, filled: Array, queries: Block) -> Array:
  """Return the scores (Q, C) of a block in float32, masked keys at `MASKED`."""
  product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
  s_QC = product('QK,CK->QC', a_QK, k_CK) + plan.shift(product('QK,CK->QC', b_QK, r_CK))
  mask_1QC = plan.mask(queries, len(k_CK), plan.memory, filled[None], plan.farthest)
  return jnp.where(mask_1QC[0], s_QC * a_QK.shape[1] ** -0.5, MASKED)


def _factor(plan: _Plan, g: Array, T: int, seed_2: Any, queries: Block, keys: int) -> Array:
  """Return dropout's factors of the probabilities of a block, (Q, C): 0 or 1 / (1 - rate)."""
  rows_Q = g.astype(jnp.uint32) * jnp.uint32(T) + jnp.arange(queries[0], queries[1], dtype=jnp.uint32)
  keep_QC = hash_dropout.mask(seed_2, plan.rate, rows_Q, jnp.arange(keys, dtype=jnp.uint32))
  return jnp.where(keep_QC, 1.0 / (1.0 - plan.rate), 0.0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _blocked(
  plan: _Plan, a_GTK: Array, b_GTK: Array, k_GSK: Array, v_GSK: Array, r_HRK: Array, filled_B: Array, seed_2: Any
) -> Array:
  return _blocked_forward(plan, a_GTK, b_GTK, k_GSK, v_GSK, r_HRK, filled_B, seed_2)[0]


def _blocked_forward(
  plan: _Plan, a_GTK: Array, b_GTK: Array, k_GSK: Array, v_GSK: Array, r_HRK: Array, filled_B: Array, seed_2: Any
) -> tuple[Array, tuple[Any, ...]]:
  """Return the output (G, T, K), and as residuals the inputs, the output and log-normalisers (G, T)."""
  T, R = a_GTK.shape[1], r_HRK.shape[1]

  def head(xs: tuple[Array, ...]) -> tuple[Array, ...]:
    g, a_TK, b_TK, k_SK, v_SK = xs
    r_RK, filled = r_HRK[g % plan.heads], filled_B[g // plan.heads]
    outputs, norms = [], []
    for queries, keys in plan.blocks(T):
      rows = slice(*queries)
      s_QC = _scores(plan, a_TK[rows], b_TK[rows], k_SK[:keys], r_RK[R - keys :], filled, queries)
      m_Q1 = jnp.max(s_QC, axis=-1, keepdims=True)
      e_QC = jnp.exp(s_QC - m_Q1)
      z_Q1 = jnp.sum(e_QC, axis=-1, keepdims=True)
      if plan.rate:
        e_QC = e_QC * _factor(plan, g, T, seed_2, queries, keys)
      o_QK = jnp.einsum('QC,CK->QK', e_QC.astype(v_SK.dtype), v_SK[:keys], preferred_element_type=jnp.float32)
      outputs.append((o_QK / z_Q1).astype(v_SK.dtype))
      norms.append((m_Q1 + jnp.log(z_Q1))[:, 0])
    return jnp.concatenate(outputs), jnp.concatenate(norms)

  o_GTK, n_GT = jax.lax.map(head, (jnp.arange(len(a_GTK)), a_GTK, b_GTK, k_GSK, v_GSK))
  return o_GTK, (a_GTK, b_GTK, k_GSK, v_GSK, r_HRK, filled_B, seed_2, o_GTK, n_GT)


def _blocked_backward(plan: _Plan, residuals: tuple[Any, ...], do_GTK: Array) -> tuple[Array | None, ...]:
  a_GTK, b_GTK, k_GSK, v_GSK, r_HRK, filled_B, seed_2, o_GTK, n_GT = residuals
  T, R = a_GTK.shape[1], r_HRK.shape[1]
  dtype, scale = a_GTK.dtype, a_GTK.shape[2] ** -0.5
  product = functools.partial(jnp.einsum, 'QC,QK->CK', preferred_element_type=jnp.float32)

  def head(dr_HRK: Array, xs: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
    g, a_TK, b_TK, k_SK, v_SK, o_TK, n_T, do_TK = xs
    r_RK, filled = r_HRK[g % plan.heads], filled_B[g // plan.heads]
    delta_T = jnp.sum(do_TK.astype(jnp.float32) * o_TK.astype(jnp.float32), axis=-1)
    dk_SK = dv_SK = jnp.zeros(k_SK.shape, jnp.float32)
    dr_RK = jnp.zeros(r_RK.shape, jnp.float32)
    das, dbs = [], []
    for queries, keys in plan.blocks(T):
      rows, r_CK = slice(*queries), r_RK[R - keys :]
      s_QC = _scores(plan, a_TK[rows], b_TK[rows], k_SK[:keys], r_CK, filled, queries)
      p_QC = jnp.exp(s_QC - n_T[rows, None])
      dp_QC = jnp.einsum('QK,CK->QC', do_TK[rows], v_SK[:keys], preferred_element_type=jnp.float32)
      dropped_QC = p_QC
      if plan.rate:
        f_QC = _factor(plan, g, T, seed_2, queries, keys)
        dropped_QC, dp_QC = p_QC * f_QC, dp_QC * f_QC
      ds_QC = (p_QC * (dp_QC - delta_T[rows, None]) * scale).astype(dtype)
      back_QC = _unshift(ds_QC, keys)
      das.append(jnp.einsum('QC,CK->QK', ds_QC, k_SK[:keys]))
      dbs.append(jnp.einsum('QC,CK->QK', back_QC, r_CK))
      dk_SK = dk_SK.at[:keys].add(product(ds_QC, a_TK[rows]))
      dr_RK = dr_RK.at[R - keys :].add(product(back_QC, b_TK[rows]))
      dv_SK = dv_SK.at[:keys].add(product(dropped_QC.astype(dtype), do_TK[rows]))
    dr_HRK = dr_HRK.at[g % plan.heads].add(dr_RK)
    return dr_HRK, (jnp.concatenate(das), jnp.concatenate(dbs), dk_SK.astype(dtype), dv_SK.astype(dtype))

  start = jnp.zeros(r_HRK.shape, jnp.float32)
  xs = (jnp.arange(len(a_GTK)), a_GTK, b_GTK, k_GSK, v_GSK, o_GTK, n_GT, do_GTK)
  dr_HRK, (da_GTK, db_GTK, dk_GSK, dv_GSK) = jax.lax.scan(head, start, xs)
  return da_GTK, db_GTK, dk_GSK, dv_GSK, dr_HRK.astype(dtype), None, None


_blocked.defvjp(_blocked_forward, _blocked_backward)
