"""Implementations of relative attention (lmx/ops/relative_attention.py).

- 'xla': the equation, over all rows and heads. It stores the (B, H, T, S) probabilities for the backward pass.
- 'blocked': a loop over rows, heads and query blocks, so that the scores fit a CPU's cache. The
  backward pass recomputes them from the saved log-normalisers, as in lmx/kernels/attention.py. For one device.
- 'rows': a kernel for TPUs (lmx/kernels/relative_rows.py), within the limits of `obstacle`.
- 'scan': the equation, for one block of queries after another. The backward pass recomputes a block's scores, so memory
  is linear in the number of queries.
- 'auto': on a TPU 'rows' from `KERNEL_FROM` queries on, within limits; on a TPU or GPU 'scan' from `SCAN_FROM` keys on;
  'blocked' on a single CPU device for at least `BLOCKED_FROM` scores a head; else 'xla'. As 'blocked' leaves cores
  idle, it is faster with several cores only from `BLOCKED_FROM_CORES`.

Axes: G rows x heads, S = M + T keys, R distances from S - 1 downwards, Q and C queries and keys of a block. In `scan`
and `by_position` G are the parts of the rows that have distances of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lmx import host
from lmx.errors import InputError
from lmx.kernels import dense, devices
from lmx.kernels.visible import at_positions, of_row
from lmx.ops import dropout, relative_attention
from lmx.ops.relative_attention import shift
from lmx.ops.visible import MASKED, Segments, Visible
from lmx.types import Array, Copies

BLOCKED_FROM = 2**14  # scores (T x S) of a head from which 'auto' selects 'blocked' on one core of a CPU
BLOCKED_FROM_CORES = 2**18  # and on several
KERNEL_FROM = 128  # queries from which 'auto' selects 'rows'
ROWS_TO = 2048  # keys to which 'rows' serves: a block of whole rows of scores fits the chip
SCAN_FROM = ROWS_TO + 1  # keys from which 'auto' selects 'scan'
_SCANNED = 256  # queries of a block of 'scan'


Implementation = Callable[..., Array]  # takes the arguments of `relative_attention.attend` except `backend`


def choose(backend: str, shape: tuple[int, ...], S: int, *, causal: bool = True) -> Implementation:  # noqa: N803
  """Return the implementation that `backend` selects at the current placement.

  Args:
    backend: one of BACKENDS.
    shape: of the queries at the last positions, (B, T, H, K).
    S: number of keys.
    causal: key s is at position s, and query t sees none after it; else 'blocked' cannot run.

  Raises:
    InputError: 'rows' was set outside its limits.
  """
  B, T, *_ = shape
  reason = obstacle(B, S)
  if backend == 'rows' and reason:
    raise InputError(f'model.attention: got "rows", which {reason}; set model.attention to "auto" or "scan"')
  if backend != 'auto':
    return BY_NAME[backend]
  if T >= KERNEL_FROM and not reason:
    return rows
  if T >= KERNEL_FROM and S >= SCAN_FROM and not devices.is_platform('cpu'):
    return scan
  least = BLOCKED_FROM if host.cores() == 1 else BLOCKED_FROM_CORES
  if causal and devices.is_one_device('cpu') and T * S >= least:
    return blocked
  return relative_attention.attend.equation


def obstacle(B: int, S: int) -> str | None:  # noqa: N803
  """Return why the row kernel cannot run, as a clause for the error message; None if it can."""
  here = devices.placed()
  if here.platform != 'tpu':
    return f'needs a TPU, and the device here is {here.platform}'
  if S > ROWS_TO:
    return f'needs at most {ROWS_TO} keys, not {S}'
  if devices.row_shards(B) != here.row_shards:
    return f'needs rows that the devices divide, not {B}'
  return None


def attend(
  q_BTHK: Array,
  k_BSHK: Array,
  value_BSHK: Array,
  r_RHK: Any,
  u_HK: Array,
  v_HK: Array,
  visible: Visible | None = None,
  *,
  segments: Segments | None = None,
  positions_BP: Array | None = None,
  empty_rows: bool = False,
  backend: str = 'auto',
  rate: float = 0.0,
  key: Array | None = None,
) -> Array:
  """Compute `relative_attention.attend` by the implementation that `backend` selects."""
  shape = q_BTHK.shape if positions_BP is None else q_BTHK[:, : -positions_BP.shape[1]].shape
  causal = visible is not None and visible.past is not None
  compute = choose(backend, shape, k_BSHK.shape[1], causal=causal)
  options: dict[str, Any] = {'segments': segments, 'positions_BP': positions_BP, 'rate': rate, 'key': key}
  arrays = q_BTHK, k_BSHK, value_BSHK, r_RHK, u_HK, v_HK, visible
  return compute(*arrays, empty_rows=empty_rows, **options)


def distance_vectors(encoding_RD: Array, kernel_DHK: Array) -> Copies:
  """Compute `relative_attention.distance_vectors`, a copy for each shard of the batch's rows."""
  return Copies(dense.dot_per_shard(encoding_RD, kernel_DHK, 'DHK'))


def _by_parts(r_RHK: Any) -> Array:
  """Return vectors of distances for each of G parts of the rows, (G, R, H, K)."""
  if isinstance(r_RHK, Copies):
    return r_RHK.values_SVD
  return r_RHK[None] if r_RHK.ndim == 3 else r_RHK


def _for_rows(r_RHK: Any, B: int) -> Array:  # noqa: N803
  """Return `_by_parts`, or only the first part if the number of parts does not divide the rows."""
  r_GRHK = _by_parts(r_RHK)
  return r_GRHK[:1] if B % len(r_GRHK) else r_GRHK


def choose_vectors(condition_B: Array, r_RHK: Any, other_RHK: Any) -> Array:
  """Compute `relative_attention.choose_vectors`."""
  B = len(condition_B)
  parts = _for_rows(r_RHK, B), _for_rows(other_RHK, B)
  r_BRHK, other_BRHK = (jnp.repeat(x, B // len(x), axis=0) for x in parts)
  return jnp.where(condition_B[:, None, None, None], r_BRHK, other_BRHK)


def distance_products(q_BTHK: Array, r_RHK: Any) -> Array:
  """Compute `relative_attention.distance_products` by the parts of the rows."""
  r_GRHK = _for_rows(r_RHK, len(q_BTHK))
  by_parts = q_BTHK.reshape(len(r_GRHK), -1, *q_BTHK.shape[1:])
  scores = dense.einsum('GBTHK,GRHK->GBHTR', by_parts, r_GRHK)
  return scores.reshape(len(q_BTHK), *scores.shape[2:])


def rows(*arrays: Any, interpret: bool = False, **options: Any) -> Array:
  """Compute attention by a kernel for TPUs; `interpret` runs it slowly on any platform."""
  from lmx.kernels import relative_rows  # imports Pallas, which takes a second

  return relative_rows.attention(*_to_block_inputs(*arrays, **options), interpret=interpret)


def scan(*arrays: Any, **options: Any) -> Array:
  """Compute attention query block by query block."""
  return _scan(*_to_block_inputs(*arrays, **options))


def _to_block_inputs(
  q_BXHK: Array,
  k_BSHK: Array,
  value_BSHK: Array,
  r_RHK: Any,
  u_HK: Array,
  v_HK: Array,
  visible: Visible | None,
  *,
  segments: Segments | None = None,
  positions_BP: Array | None = None,
  empty_rows: bool = True,
  rate: float = 0.0,
  key: Array | None = None,
) -> tuple[Any, ...]:
  """Return the arguments of `relative_rows.attention`, whose output is 0 for a query that sees no key.

  Queries at `positions_BP` are put at their positions among T others, a second stream, so that they are shifted like
  the first T. Of several at one position the first is computed ('rows': the first of each block).
  """
  del empty_rows  # their output is 0 in any case
  X = q_BXHK.shape[1]
  if visible is None:
    bound_1X = jnp.zeros((1, X), jnp.int32)
    visible = Visible(jnp.zeros((1, k_BSHK.shape[1]), jnp.int32), bound_1X, bound_1X)
  biases = (u_HK, v_HK) if segments is None else (u_HK, v_HK, segments.s_HK)
  arrays = q_BXHK, k_BSHK, value_BSHK, _for_rows(r_RHK, len(q_BXHK)), biases
  return *arrays, visible, segments, positions_BP, 0.0 if key is None else rate, key


def _scan(
  q_BXHK: Array,
  k_BSHK: Array,
  value_BSHK: Array,
  r_GRHK: Array,
  biases: tuple[Array, ...],
  visible: Visible,
  segments: Segments | None,
  positions_BP: Array | None,
  rate: float,
  key: Array | None,
) -> Array:
  """Compute attention query block by query block; arguments as in `relative_rows.attention`."""
  (B, X, H, K), S = q_BXHK.shape, k_BSHK.shape[1]
  T = X - (0 if positions_BP is None else positions_BP.shape[1])
  row_1X = jnp.arange(X, dtype=jnp.int32)[None]
  segment_BX = jnp.zeros_like(row_1X) if segments is None else segments.query_BT
  queries: list[Array] = [q_BXHK, visible.first_BT, visible.last_BT, segment_BX, row_1X]
  if positions_BP is not None:
    at_BTP = jnp.arange(T)[:, None] == at_positions(positions_BP, X)[:, None]
    place = lambda x_BP: jnp.einsum('BTP,BP...->BT...', at_BTP.astype(x_BP.dtype), x_BP)
    whole = [jnp.broadcast_to(x, (B, *x.shape[1:])) for x in queries]
    queries = [jnp.concatenate([x[:, :T], place(x[:, T:])], axis=1) for x in whole]
  streams, Q = queries[0].shape[1] // T, min(_SCANNED, T)
  more = -T % Q
  queries = [_pad_streams(x, streams, more) for x in queries]
  r_GRHK = jnp.pad(r_GRHK, ((0, 0), (more, T + S - r_GRHK.shape[1]), (0, 0), (0, 0)))
  seed_2 = dropout.seed(key) if rate and key is not None else None

  def block(i: Array) -> Array:
    q_BQHK, first_BQ, last_BQ, segment_BQ, row_BQ = (jax.lax.dynamic_slice_in_dim(x, i * Q, Q, axis=1) for x in queries)
    content, position, *segment = (relative_attention.scale_queries(q_BQHK, bias_HK) for bias_HK in biases)
    start = T + more - (i % ((T + more) // Q) + 1) * Q
    window = jax.lax.dynamic_slice_in_dim(r_GRHK, start, S + Q, axis=1)
    by_parts = position.reshape(len(window), -1, Q, H, K)
    scores_BHQR = dense.einsum('GBQHK,GRHK->GBHQR', by_parts, window).reshape(B, H, Q, -1)
    scores_BHQS = dense.einsum('BQHK,BSHK->BHQS', content, k_BSHK) + shift(scores_BHQR, S)
    if segments is not None:
      scores_BHQ2 = dense.einsum('BQHK,CHK->BHQC', segment[0], segments.e_2HK)
      other_BQS = segment_BQ[:, :, None] != segments.key_BS[:, None]
      scores_BHQS += jnp.where(other_BQS[:, None], scores_BHQ2[..., 1:], scores_BHQ2[..., :1])
    mask_B1QS = Visible(visible.order_BS, first_BQ, last_BQ).mask()[:, None]
    p_BHQS = jnp.where(mask_B1QS, jax.nn.softmax(jnp.where(mask_B1QS, scores_BHQS, MASKED), axis=-1), 0.0)
    if seed_2 is not None:
      heads_BH = jnp.arange(B * H, dtype=jnp.uint32).reshape(B, H)
      row_BHQ = heads_BH[..., None] * jnp.uint32(X) + row_BQ[:, None].astype(jnp.uint32)
      keep_BHQS = dropout.mask(seed_2, rate, row_BHQ, jnp.arange(S, dtype=jnp.uint32))
      p_BHQS = jnp.where(keep_BHQS, p_BHQS * (1.0 / (1.0 - rate)), 0.0)
    return jnp.einsum('BHQS,BSHK->BQHK', p_BHQS.astype(value_BSHK.dtype), value_BSHK)

  o_NBQHK = jax.lax.map(jax.checkpoint(block), jnp.arange(queries[0].shape[1] // Q))
  o_BXHK = jnp.moveaxis(o_NBQHK, 0, 1).reshape(B, streams, T + more, H, K)[:, :, :T]
  if positions_BP is None:
    return o_BXHK[:, 0]
  o_BPHK = jnp.take_along_axis(o_BXHK[:, 1], positions_BP[:, :, None, None], axis=1)
  return jnp.concatenate([o_BXHK[:, 0], o_BPHK], axis=1)


def _pad_streams(x_BX: Array, streams: int, more: int) -> Array:
  """Pad each stream's queries by `more` positions."""
  x_BNT = x_BX.reshape(x_BX.shape[0], streams, -1, *x_BX.shape[2:])
  x_BNT = jnp.pad(x_BNT, [(0, more) if axis == 2 else (0, 0) for axis in range(x_BNT.ndim)])
  return x_BNT.reshape(x_BX.shape[0], -1, *x_BX.shape[2:])


def _unshift(g_TS: Array, R: int) -> Array:
  """Return the transpose of the relative shift: (T, S) to (T, R)."""
  T, S = g_TS.shape
  g_RT = jnp.pad(jnp.pad(g_TS, ((0, 0), (0, R - S))).reshape(R, T), ((1, 0), (0, 0)))
  return g_RT.reshape(T, R + 1)[:, 1:]


Block = tuple[int, int]  # first and end position of a block


class _Plan(NamedTuple):
  """Compile-time constants."""

  rate: float
  heads: int
  memory: int

  def blocks(self, T: int) -> list[tuple[Block, int]]:
    """Return ((first, end) of the queries, number of keys up to the last of them) for each block."""
    size = max(64, -(-T // 8))  # few blocks, because each one is compiled separately
    ends = [(t, min(t + size, T)) for t in range(0, T, size)]
    return [(queries, self.memory + queries[1]) for queries in ends]


def blocked(
  q_BTHK: Array,
  k_BSHK: Array,
  value_BSHK: Array,
  r_RHK: Any,
  u_HK: Array,
  v_HK: Array,
  visible: Visible,
  *,
  rate: float = 0.0,
  key: Array | None = None,
  **_: Any,
) -> Array:
  """Compute attention head by head; no query sees a key after it."""
  B, T, H, K = q_BTHK.shape
  S = k_BSHK.shape[1]
  to_front = lambda x: x.swapaxes(1, 2).reshape(B * H, x.shape[1], K)
  rate = 0.0 if key is None else rate
  seed_2 = dropout.seed(key) if rate and key is not None else None
  plan = _Plan(rate, H, S - T)
  biased = q_BTHK + u_HK.astype(q_BTHK.dtype), q_BTHK + v_HK.astype(q_BTHK.dtype)
  heads = map(to_front, (*biased, k_BSHK, value_BSHK))
  o_GTK = _blocked(plan, *heads, _by_parts(r_RHK)[0].swapaxes(0, 1), visible, seed_2)
  return o_GTK.reshape(B, H, T, K).swapaxes(1, 2)


def _scores(plan: _Plan, a_QK: Array, b_QK: Array, k_CK: Array, r_CK: Array, visible: Visible, queries: Block) -> Array:
  """Return the scores (Q, C) of a block in float32, masked keys at `MASKED`."""
  product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
  s_QC = product('QK,CK->QC', a_QK, k_CK) + shift(product('QK,CK->QC', b_QK, r_CK))
  key_C = jnp.arange(len(k_CK))
  mask_QC = key_C <= plan.memory + jnp.arange(*queries)[:, None]  # no array of the batch, so XLA folds it
  mask_QC &= visible.first_BT[0, slice(*queries), None] <= key_C
  return jnp.where(mask_QC, s_QC * a_QK.shape[1] ** -0.5, MASKED)


def _factor(plan: _Plan, g: Array, T: int, seed_2: Any, queries: Block, keys: int) -> Array:
  """Return a block's dropout factors, (Q, C): 0 or 1 / (1 - rate)."""
  rows_Q = g.astype(jnp.uint32) * jnp.uint32(T) + jnp.arange(queries[0], queries[1], dtype=jnp.uint32)
  keep_QC = dropout.mask(seed_2, plan.rate, rows_Q, jnp.arange(keys, dtype=jnp.uint32))
  return jnp.where(keep_QC, 1.0 / (1.0 - plan.rate), 0.0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _blocked(
  plan: _Plan, a_GTK: Array, b_GTK: Array, k_GSK: Array, v_GSK: Array, r_HRK: Array, visible: Visible, seed_2: Any
) -> Array:
  return _blocked_forward(plan, a_GTK, b_GTK, k_GSK, v_GSK, r_HRK, visible, seed_2)[0]


def _blocked_forward(
  plan: _Plan, a_GTK: Array, b_GTK: Array, k_GSK: Array, v_GSK: Array, r_HRK: Array, visible: Visible, seed_2: Any
) -> tuple[Array, tuple[Any, ...]]:
  """Return the output (G, T, K), and as residuals the inputs, the output and log-normalisers (G, T)."""
  T, R = a_GTK.shape[1], r_HRK.shape[1]

  def head(xs: tuple[Array, ...]) -> tuple[Array, ...]:
    g, a_TK, b_TK, k_SK, v_SK = xs
    r_RK, seen = r_HRK[g % plan.heads], of_row(visible, g // plan.heads)
    outputs, norms = [], []
    for queries, keys in plan.blocks(T):
      rows = slice(*queries)
      s_QC = _scores(plan, a_TK[rows], b_TK[rows], k_SK[:keys], r_RK[R - keys :], seen, queries)
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
  return o_GTK, (a_GTK, b_GTK, k_GSK, v_GSK, r_HRK, visible, seed_2, o_GTK, n_GT)


def _blocked_backward(plan: _Plan, residuals: tuple[Any, ...], do_GTK: Array) -> tuple[Array | None, ...]:
  a_GTK, b_GTK, k_GSK, v_GSK, r_HRK, visible, seed_2, o_GTK, n_GT = residuals
  T, R = a_GTK.shape[1], r_HRK.shape[1]
  dtype, scale = a_GTK.dtype, a_GTK.shape[2] ** -0.5
  product = functools.partial(jnp.einsum, 'QC,QK->CK', preferred_element_type=jnp.float32)

  def head(dr_HRK: Array, xs: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
    g, a_TK, b_TK, k_SK, v_SK, o_TK, n_T, do_TK = xs
    r_RK, seen = r_HRK[g % plan.heads], of_row(visible, g // plan.heads)
    delta_T = jnp.sum(do_TK.astype(jnp.float32) * o_TK.astype(jnp.float32), axis=-1)
    dk_SK = dv_SK = jnp.zeros(k_SK.shape, jnp.float32)
    dr_RK = jnp.zeros(r_RK.shape, jnp.float32)
    das, dbs = [], []
    for queries, keys in plan.blocks(T):
      rows, r_CK = slice(*queries), r_RK[R - keys :]
      s_QC = _scores(plan, a_TK[rows], b_TK[rows], k_SK[:keys], r_CK, seen, queries)
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

BY_NAME: dict[str, Implementation] = {  # values of model.attention that leave no choice
  'xla': relative_attention.attend.equation,
  'blocked': blocked,
  'rows': rows,
  'scan': scan,
}
