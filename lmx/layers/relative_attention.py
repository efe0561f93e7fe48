"""Dot products with keys and with distances, softmax and the mean of the values: two backends with the same result.

softmax((a · k + b · r(d)) / sqrt(K)) v, where a and b are the queries plus the two biases (relative_block.py). The
products with all distances are one matrix, whose rows `shift` moves to their places by padding and reshaping (Dai et
al. 2019, arXiv 1901.02860, appendix B), without a gather.

- 'xla': the plain products over all rows and heads; keeps the (B, H, T, S) probabilities for the backward pass.
- 'blocked': one head of one row at a time and a block of queries at a time, in the cache of a CPU; the backward pass
  computes scores again, as in lmx/layers/attention.py. For one device.
- 'auto': 'blocked' on a single CPU device from `BLOCKED_FROM` scores a head on, else 'xla'. One head after another
  leaves cores waiting, so where there are several it pays later, from `BLOCKED_FROM_CORES` on.

Axes: G rows x heads, S = M + T keys, R distances, from S - 1 down.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lmx import host
from lmx.kernels import hash_dropout
from lmx.layers import masks
from lmx.types import Array

BACKENDS = ('auto', 'xla', 'blocked')
BLOCKED_FROM = 2**14  # scores (T x S) of a head from which 'auto' takes 'blocked' on one core of a CPU
BLOCKED_FROM_CORES = 2**18  # and on several


class Mask(NamedTuple):
  """Which keys a query looks at: those not after it, and

  Attributes:
    filled_B: of the memory's places the last ones, so many; None: all.
    farthest: none at a greater distance; None: any.
  """

  filled_B: Array | None = None
  farthest: int | None = None


def shift(x_XTR: Array, S: int | None = None) -> Array:
  """Row t, whose column c is of distance R' - c for some R', moved T - 1 - t to the left; its first S columns.

  So that column s is of the key s. Columns that come in on the right from the next row are of keys after the query,
  unless R is S + T - 1 or more.
  """
  *X, T, R = x_XTR.shape
  padded = jnp.pad(x_XTR, [(0, 0)] * (len(X) + 1) + [(1, 0)])
  return padded.reshape(*X, R + 1, T)[..., 1:, :].reshape(*X, T, R)[..., :S]


def _back(g_TS: Array, R: int) -> Array:
  """What `shift` is to the gradient: (T, S) to (T, R)."""
  T, S = g_TS.shape
  whole = jnp.pad(jnp.pad(g_TS, ((0, 0), (0, R - S))).reshape(R, T), ((1, 0), (0, 0)))
  return whole.reshape(T, R + 1)[:, 1:]


def allowed(mask: Mask, M: int, queries: tuple[int, int], keys: int) -> Array:
  """Which of the first `keys` keys each query of a range looks at: (B or 1, T, S)."""
  distance_TS = M + jnp.arange(*queries)[:, None] - jnp.arange(keys)[None]
  seen_TS = distance_TS >= 0
  if mask.farthest is not None:
    seen_TS &= distance_TS <= mask.farthest
  if mask.filled_B is None:
    return seen_TS[None]
  return seen_TS[None] & (jnp.arange(keys)[None] >= M - mask.filled_B[:, None])[:, None]


def attend(
  a_BTHK: Array,
  b_BTHK: Array,
  k_BSHK: Array,
  v_BSHK: Array,
  r_SHK: Array,
  bias_HS: Array | None,
  mask: Mask,
  *,
  backend: str = 'auto',
  rate: float = 0.0,
  key: Array | None = None,
) -> Array:
  """Attention of T queries, the last positions, to S keys.

  Args:
    a_BTHK: queries for the keys.
    b_BTHK: queries for the distances.
    k_BSHK: keys.
    v_BSHK: values.
    r_SHK: vectors of the distances S - 1 to 0.
    bias_HS: added to the scores of these distances (before sqrt(K)); such scores go through 'xla'.
    mask: which keys are looked at.
    backend: one of BACKENDS.
    rate: dropout of the probabilities.
    key: its randomness, None at evaluation.

  Returns:
    (B, T, H, K) in the type of the values.
  """
  T, S = a_BTHK.shape[1], k_BSHK.shape[1]
  rate = 0.0 if key is None else rate
  seed_2 = hash_dropout.seed(key) if rate and key is not None else None
  if backend == 'auto':
    alone = jax.default_backend() == 'cpu' and jax.device_count() == 1
    least = BLOCKED_FROM if host.cores() == 1 else BLOCKED_FROM_CORES
    backend = 'blocked' if alone and bias_HS is None and T * S >= least else 'xla'
  if backend == 'blocked' and bias_HS is None:
    return _by_heads(a_BTHK, b_BTHK, k_BSHK, v_BSHK, r_SHK, mask, rate, seed_2)
  scale = a_BTHK.shape[3] ** -0.5
  product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
  distance_BHTS = product('BTHK,SHK->BHTS', b_BTHK * scale, r_SHK)
  if bias_HS is not None:
    distance_BHTS += scale * bias_HS.reshape(1, -1, 1, S)
  a_BHTS = product('BTHK,BSHK->BHTS', a_BTHK * scale, k_BSHK) + shift(distance_BHTS)
  a_BHTS = jnp.where(allowed(mask, S - T, (0, T), S)[:, None], a_BHTS, masks.HIDDEN)
  p_BHTS = hash_dropout.drop(jax.nn.softmax(a_BHTS, axis=-1), rate, seed_2)
  return jnp.einsum('BHTS,BSHK->BTHK', p_BHTS.astype(v_BSHK.dtype), v_BSHK)


class _Plan(NamedTuple):
  """What is fixed at compile time."""

  farthest: int | None
  rate: float
  heads: int
  memory: int

  def blocks(self, T: int) -> list[tuple[tuple[int, int], int]]:
    """((first, end) of the queries, keys up to the last of them) of each block."""
    size = max(64, -(-T // 8))  # few blocks, because each is compiled by itself
    ends = [(t, min(t + size, T)) for t in range(0, T, size)]
    return [(queries, self.memory + queries[1]) for queries in ends]


def _by_heads(a_BTHK, b_BTHK, k_BSHK, v_BSHK, r_SHK, mask: Mask, rate, seed_2) -> Array:
  """The 'blocked' backend: heads to the front, and back again."""
  B, T, H, K = a_BTHK.shape
  S = k_BSHK.shape[1]
  to_front = lambda x: x.swapaxes(1, 2).reshape(B * H, x.shape[1], K)
  plan = _Plan(mask.farthest, rate, H, S - T)
  filled_B = jnp.full(B, S - T, jnp.int32) if mask.filled_B is None else mask.filled_B
  o_GTK = _blocked(plan, *map(to_front, (a_BTHK, b_BTHK, k_BSHK, v_BSHK)), r_SHK.swapaxes(0, 1), filled_B, seed_2)
  return o_GTK.reshape(B, H, T, K).swapaxes(1, 2)


def _scores(plan: _Plan, a_QK: Array, b_QK: Array, k_CK: Array, r_CK: Array, filled, queries) -> Array:
  """Scores (Q, C) of a block in float32, hidden keys at `masks.HIDDEN`."""
  product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
  s_QC = product('QK,CK->QC', a_QK, k_CK) + shift(product('QK,CK->QC', b_QK, r_CK))
  seen_1QC = allowed(Mask(filled[None], plan.farthest), plan.memory, queries, len(k_CK))
  return jnp.where(seen_1QC[0], s_QC * a_QK.shape[1] ** -0.5, masks.HIDDEN)


def _factor(plan: _Plan, g: Array, T: int, seed_2, queries, keys: int) -> Array:
  """What dropout multiplies the probabilities of a block by, (Q, C): 0 or 1 / (1 - rate)."""
  rows_Q = g.astype(jnp.uint32) * jnp.uint32(T) + jnp.arange(queries[0], queries[1], dtype=jnp.uint32)
  keep_QC = hash_dropout.kept(seed_2, plan.rate, rows_Q, jnp.arange(keys, dtype=jnp.uint32))
  return jnp.where(keep_QC, 1.0 / (1.0 - plan.rate), 0.0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _blocked(plan: _Plan, a_GTK, b_GTK, k_GSK, v_GSK, r_HRK, filled_B, seed_2: Any) -> Array:
  return _blocked_forward(plan, a_GTK, b_GTK, k_GSK, v_GSK, r_HRK, filled_B, seed_2)[0]


def _blocked_forward(plan, a_GTK, b_GTK, k_GSK, v_GSK, r_HRK, filled_B, seed_2):
  """Returns the output (G, T, K), and as residuals the inputs, the output and log-normalisers (G, T)."""
  T, R = a_GTK.shape[1], r_HRK.shape[1]

  def head(xs):
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


def _blocked_backward(plan, residuals, do_GTK):
  a_GTK, b_GTK, k_GSK, v_GSK, r_HRK, filled_B, seed_2, o_GTK, n_GT = residuals
  T, R = a_GTK.shape[1], r_HRK.shape[1]
  dtype, scale = a_GTK.dtype, a_GTK.shape[2] ** -0.5
  product = functools.partial(jnp.einsum, 'QC,QK->CK', preferred_element_type=jnp.float32)

  def head(dr_HRK, xs):
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
      back_QC = _back(ds_QC, keys)
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
