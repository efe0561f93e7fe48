"""Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1) with four backends that give the same result.

softmax(q k^T / sqrt(K)) v, with scores, softmax and its gradient in float32.

- 'xla': the plain products over all rows and heads. Keeps the (B, H, T, S) probabilities for the backward pass.
- 'blocked': one head of one row at a time and a block of queries at a time, so that scores stay in the cache of a
  CPU; the backward pass computes them again from the saved log-normalisers (Rabe & Staats 2021, arXiv 2112.05682; Dao
  et al. 2022, arXiv 2205.14135). Blocks of keys that lie wholly after the queries are never computed. Rows are
  worked off one after the other, so this is for one device; a batch divided over devices is better served by 'xla'.
- 'cudnn': `jax.nn.dot_product_attention(implementation='cudnn')`; see `cudnn_obstacle` for when it cannot serve.
- 'auto': 'cudnn' on a GPU where it can serve, 'blocked' on a single CPU device from `BLOCKED_FROM` scores a head on,
  else 'xla'.

Dropout of the probabilities works on 'xla' and 'blocked', and both drop the same ones (lmx/layers/dropout.py).
A query that may look at no key at all gets a finite output that means nothing.

Axes: G rows x heads.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lmx.errors import InputError
from lmx.layers import dropout, masks
from lmx.layers.masks import Look
from lmx.types import Array

BACKENDS = ('auto', 'xla', 'cudnn', 'blocked')
BLOCKED_FROM = 2**16  # scores (T x S) of a head from which 'auto' takes 'blocked' on a CPU
_QUERIES = 64  # least number of queries in a block


def attend(
  q_BTHK: Array,
  k_BSHK: Array,
  v_BSHK: Array,
  look: Look,
  *,
  causal: bool,
  backend: str = 'auto',
  rate: float = 0.0,
  key: Array | None = None,
) -> Array:
  """Attention of every query to the keys it may look at.

  Args:
    q_BTHK: queries.
    k_BSHK: keys, at positions 0 .. S-1.
    v_BSHK: values, which may be of another width.
    look: positions and groups of queries and keys.
    causal: hide keys whose position is after the query's.
    backend: one of `BACKENDS`.
    rate: dropout of the probabilities.
    key: randomness of the dropout; None at evaluation.

  Returns:
    (B, T, H, width of the values) in the type of the queries.

  Raises:
    InputError: 'cudnn' was asked for and cannot serve; the message says why.
  """
  if key is None:
    rate = 0.0
  choice = choose(backend, q_BTHK, k_BSHK, look, rate)
  if choice == 'cudnn':
    try:
      return _cudnn(q_BTHK, k_BSHK, v_BSHK, look, causal)
    except RuntimeError as error:  # a release of cuDNN, or a GPU, that lacks the kernel
      if backend == 'cudnn':
        raise InputError(f'model.attention: got "cudnn", which fails here ({error}); set it to "auto"') from None
      choice = 'xla'
  seed_2 = dropout.seed(key) if key is not None and rate else None
  serve = _xla if choice == 'xla' else _by_heads
  return serve(q_BTHK, k_BSHK, v_BSHK, look, causal, rate, seed_2)


def choose(backend: str, q_BTHK: Array, k_BSHK: Array, look: Look, rate: float) -> str:
  """The backend that `backend` stands for at these shapes on the default device."""
  obstacle = cudnn_obstacle(q_BTHK, k_BSHK, look, rate) if backend in ('auto', 'cudnn') else None
  if backend == 'cudnn' and obstacle:
    raise InputError(f"attention 'cudnn' {obstacle}; choose 'auto' or 'xla'")
  if backend != 'auto':
    return backend
  if not obstacle:
    return 'cudnn'
  alone = jax.default_backend() == 'cpu' and jax.device_count() == 1
  return 'blocked' if alone and q_BTHK.shape[1] * k_BSHK.shape[1] >= BLOCKED_FROM else 'xla'


def cudnn_obstacle(q_BTHK: Array, k_BSHK: Array, look: Look, rate: float) -> str | None:
  """Why cuDNN's fused attention cannot serve, in words that follow its name; None if it can."""
  T, S, K = q_BTHK.shape[1], k_BSHK.shape[1], q_BTHK.shape[3]
  if jax.default_backend() != 'gpu':
    return f'needs a GPU, and the device here is {jax.default_backend()}'
  if q_BTHK.dtype not in (jnp.bfloat16, jnp.float16):
    return f'needs dtype bfloat16 or float16, not {q_BTHK.dtype}'
  if rate:
    return f'has no dropout of the attention probabilities (asked for: {rate})'
  if K % 8 or K > 128:
    return f'needs a head width that is a multiple of 8 and at most 128, not {K}'
  explicit = look.query_position_BT is not None or look.query_group_BT is not None
  if explicit and (T % 2 or S % 2):
    return f'needs even numbers of queries and keys with this mask, not {T} and {S}'
  return None


def _cudnn(q_BTHK: Array, k_BSHK: Array, v_BSHK: Array, look: Look, causal: bool) -> Array:
  mask_B1TS = None
  if look.query_position_BT is not None or look.query_group_BT is not None:
    mask_BTS = masks.allowed(look, causal, (0, q_BTHK.shape[1]), (0, k_BSHK.shape[1]))
    mask_B1TS, causal = None if mask_BTS is None else mask_BTS[:, None], False
  width = v_BSHK.shape[-1]
  v_BSHK = jnp.pad(v_BSHK, ((0, 0),) * 3 + ((0, k_BSHK.shape[-1] - width),))  # cuDNN wants values as wide as keys
  o_BTHK = jax.nn.dot_product_attention(
    q_BTHK, k_BSHK, v_BSHK, mask=mask_B1TS, is_causal=causal, implementation='cudnn'
  )
  return o_BTHK[..., :width]


def _xla(q_BTHK, k_BSHK, v_BSHK, look, causal, rate, seed_2) -> Array:
  (B, T, H, K), S = q_BTHK.shape, k_BSHK.shape[1]
  a_BHTS = jnp.einsum('BTHK,BSHK->BHTS', q_BTHK * K**-0.5, k_BSHK, preferred_element_type=jnp.float32)
  mask_BTS = masks.allowed(look, causal, (0, T), (0, S))
  if mask_BTS is not None:
    a_BHTS = jnp.where(mask_BTS[:, None], a_BHTS, masks.HIDDEN)
  p_BHTS = jax.nn.softmax(a_BHTS, axis=-1)
  if rate:
    rows_BHT = jax.lax.iota(jnp.uint32, B * H * T).reshape(B, H, T)
    keep_BHTS = dropout.kept(seed_2, rate, rows_BHT, jax.lax.iota(jnp.uint32, S))
    p_BHTS = jnp.where(keep_BHTS, p_BHTS / (1.0 - rate), 0.0)
  return jnp.einsum('BHTS,BSHK->BTHK', p_BHTS.astype(v_BSHK.dtype), v_BSHK)


class _Plan(NamedTuple):
  """What is fixed at compile time of the blocked backend."""

  causal: bool
  rate: float
  heads: int
  aligned: bool  # query t is at position t, so that blocks above the diagonal are empty

  def blocks(self, T: int, S: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """(first, end) of the queries of each block and of the keys that it may look at."""
    size = max(_QUERIES, -(-T // 8))  # few blocks, because each is compiled by itself
    spans = [(t, min(t + size, T)) for t in range(0, T, size)]
    skip = self.causal and self.aligned
    return [(span, (0, min(span[1], S) if skip else S)) for span in spans]


def _by_heads(q_BTHK, k_BSHK, v_BSHK, look, causal, rate, seed_2) -> Array:
  """The 'blocked' backend: heads to the front, and back again."""
  B, T, H, _ = q_BTHK.shape
  to_front = lambda x: x.swapaxes(1, 2).reshape(B * H, x.shape[1], -1)
  plan = _Plan(causal, rate, H, look.query_position_BT is None)
  o_GTK = _blocked(plan, to_front(q_BTHK), to_front(k_BSHK), to_front(v_BSHK), look, seed_2)
  return o_GTK.reshape(B, H, T, -1).swapaxes(1, 2)


def _scores(plan: _Plan, g: Array, q_QK: Array, k_CK: Array, look: Look, queries, keys) -> Array:
  """Scores (Q, C) of a block in float32, hidden keys at `masks.HIDDEN`."""
  a_QC = jnp.einsum('QK,CK->QC', q_QK, k_CK, preferred_element_type=jnp.float32) * q_QK.shape[-1] ** -0.5
  mask_1QC = masks.allowed(masks.row(look, g // plan.heads), plan.causal, queries, keys)
  return a_QC if mask_1QC is None else jnp.where(mask_1QC[0], a_QC, masks.HIDDEN)


def _factor(plan: _Plan, g: Array, T: int, seed_2, queries, keys) -> Array:
  """What dropout multiplies the probabilities of a block by, (Q, C): 0 or 1 / (1 - rate)."""
  rows_Q = g.astype(jnp.uint32) * jnp.uint32(T) + jnp.arange(queries[0], queries[1], dtype=jnp.uint32)
  keep_QC = dropout.kept(seed_2, plan.rate, rows_Q, jnp.arange(keys[0], keys[1], dtype=jnp.uint32))
  return jnp.where(keep_QC, 1.0 / (1.0 - plan.rate), 0.0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _blocked(plan: _Plan, q_GTK: Array, k_GSK: Array, v_GSK: Array, look: Look, seed_2: Any) -> Array:
  return _blocked_forward(plan, q_GTK, k_GSK, v_GSK, look, seed_2)[0]


def _blocked_forward(plan, q_GTK, k_GSK, v_GSK, look, seed_2):
  """Returns the output (G, T, K), and as residuals the inputs, the output and log-normalisers (G, T)."""
  T, S = q_GTK.shape[1], k_GSK.shape[1]

  def head(xs):
    g, q_TK, k_SK, v_SK = xs
    outputs, norms = [], []
    for queries, keys in plan.blocks(T, S):
      v_CK = v_SK[slice(*keys)]
      a_QC = _scores(plan, g, q_TK[slice(*queries)], k_SK[slice(*keys)], look, queries, keys)
      m_Q1 = jnp.max(a_QC, axis=-1, keepdims=True)
      e_QC = jnp.exp(a_QC - m_Q1)
      z_Q1 = jnp.sum(e_QC, axis=-1, keepdims=True)
      if plan.rate:
        e_QC = e_QC * _factor(plan, g, T, seed_2, queries, keys)
      o_QK = jnp.einsum('QC,CK->QK', e_QC.astype(v_CK.dtype), v_CK, preferred_element_type=jnp.float32)
      outputs.append((o_QK / z_Q1).astype(v_CK.dtype))
      norms.append((m_Q1 + jnp.log(z_Q1))[:, 0])
    return jnp.concatenate(outputs), jnp.concatenate(norms)

  o_GTK, n_GT = jax.lax.map(head, (jnp.arange(len(q_GTK)), q_GTK, k_GSK, v_GSK))
  return o_GTK, (q_GTK, k_GSK, v_GSK, look, seed_2, o_GTK, n_GT)


def _blocked_backward(plan, residuals, do_GTK):
  q_GTK, k_GSK, v_GSK, look, seed_2, o_GTK, n_GT = residuals
  T, S = q_GTK.shape[1], k_GSK.shape[1]
  dtype, scale = q_GTK.dtype, q_GTK.shape[-1] ** -0.5

  def head(xs):
    g, q_TK, k_SK, v_SK, o_TK, n_T, do_TK = xs
    delta_T = jnp.sum(do_TK.astype(jnp.float32) * o_TK.astype(jnp.float32), axis=-1)
    dk_SK, dv_SK = jnp.zeros(k_SK.shape, jnp.float32), jnp.zeros(v_SK.shape, jnp.float32)
    dqs = []
    for queries, keys in plan.blocks(T, S):
      q_QK, do_QK, k_CK, v_CK = q_TK[slice(*queries)], do_TK[slice(*queries)], k_SK[slice(*keys)], v_SK[slice(*keys)]
      a_QC = _scores(plan, g, q_QK, k_CK, look, queries, keys)
      p_QC = jnp.exp(a_QC - n_T[slice(*queries), None])
      dp_QC = jnp.einsum('QK,CK->QC', do_QK, v_CK, preferred_element_type=jnp.float32)
      dropped_QC = p_QC
      if plan.rate:
        f_QC = _factor(plan, g, T, seed_2, queries, keys)
        dropped_QC, dp_QC = p_QC * f_QC, dp_QC * f_QC
      ds_QC = (p_QC * (dp_QC - delta_T[slice(*queries), None]) * scale).astype(dtype)
      dqs.append(jnp.einsum('QC,CK->QK', ds_QC, k_CK))
      product = functools.partial(jnp.einsum, 'QC,QK->CK', preferred_element_type=jnp.float32)
      dk_SK = dk_SK.at[slice(*keys)].add(product(ds_QC, q_QK))
      dv_SK = dv_SK.at[slice(*keys)].add(product(dropped_QC.astype(dtype), do_QK))
    return jnp.concatenate(dqs), dk_SK.astype(dtype), dv_SK.astype(dtype)

  dq_GTK, dk_GSK, dv_GSK = jax.lax.map(head, (jnp.arange(len(q_GTK)), q_GTK, k_GSK, v_GSK, o_GTK, n_GT, do_GTK))
  return dq_GTK, dk_GSK, dv_GSK, None, None


_blocked.defvjp(_blocked_forward, _blocked_backward)
