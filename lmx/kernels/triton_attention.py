"""Attention on an NVIDIA GPU, with dropout, by Pallas kernels that Triton compiles.

The online softmax of FlashAttention-2 (Dao 2023, arXiv 2307.08691): nothing of size (T, S) is stored, and the backward
pass recomputes scores from the saved log-normalisers, once for the gradients of keys and values and once for the
queries', without atomic sums. The dropout mask is the hash of lmx/ops/dropout.py, computed in place, so a resumed or
rematerialised step drops the same probabilities. JAX gives cuDNN's dropout a seed at compile time only.

Axes: Q and C are the queries and keys of a block. Blocks after all keys that its queries may attend to are skipped.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from lmx.kernels import triton
from lmx.kernels.dropout import mask_of_columns
from lmx.kernels.score_rows import pad_group, sharded
from lmx.ops import dropout
from lmx.ops.visible import MASKED
from lmx.types import Array

BLOCK = 64  # queries and keys of a block; the smaller registers of the backward pass hold no more
FORWARD, KEYS, QUERIES = 'triton_attention_forward', 'triton_attention_keys', 'triton_attention_queries'
WARPS, STAGES = 4, 2


class Plan(NamedTuple):
  """Compile-time constants.

  Attributes:
    causal: mask keys after the query.
    rate: dropout rate of the probabilities.
    heads: number of heads on all devices.
    length: number of queries without padding.
    block: queries and keys of a block.
    interpret: run on any platform, slowly.
  """

  causal: bool
  rate: float
  heads: int
  length: int
  block: int
  interpret: bool


class Inputs(NamedTuple):
  """Integer operands.

  Attributes:
    words_4: two words of the seed, the first row and the first head of this device, int32.
    query_group_BT: group of each query.
    key_group_BS: group of each key.
  """

  words_4: Array
  query_group_BT: Array
  key_group_BS: Array


def attention(
  q_BTHK: Array,
  k_BSHK: Array,
  v_BSHK: Array,
  mask: Any,
  *,
  causal: bool,
  rate: float = 0.0,
  key: Array | None = None,
  interpret: bool = False,
) -> Array:
  """Return `lmx.ops.attention.attend`; arguments as there and in `splash_attention.attention`."""
  (B, T, H, _), S = q_BTHK.shape, k_BSHK.shape[1]
  block = min(BLOCK, max(16, pl.next_power_of_2(max(T, S))))
  query_group_BT, key_group_BS = mask.query_group_BT, mask.key_group_BS
  if query_group_BT is None or key_group_BS is None:
    query_group_BT, key_group_BS = jnp.zeros((1, T), jnp.int32), jnp.zeros((1, S), jnp.int32)
  groups = pad_group(query_group_BT, B, -T % block), pad_group(key_group_BS, B, -S % block)
  width = v_BSHK.shape[-1]
  wider = max(16, pl.next_power_of_2(width)) - width
  pad = lambda x, more=0: jnp.pad(x, ((0, 0), (0, -x.shape[1] % block), (0, 0), (0, more)))
  seed_2 = jnp.zeros(2, jnp.uint32) if key is None or not rate else dropout.seed(key)
  plan = Plan(causal, rate if key is not None else 0.0, H, T, block, interpret)
  words_2 = jax.lax.bitcast_convert_type(seed_2, jnp.int32)
  arrays = pad(q_BTHK), pad(k_BSHK), pad(v_BSHK, wider)
  attend = lambda arrays, words, *groups: _attention(plan, *arrays, Inputs(words, *groups))
  return sharded(attend, arrays, groups, words_2, 'BTHK')[:, :T, :, :width]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(plan: Plan, q_BTHK: Array, k_BSHK: Array, v_BSHK: Array, inputs: Inputs) -> Array:
  return _attention_forward(plan, q_BTHK, k_BSHK, v_BSHK, inputs)[0]


def _attention_forward(plan: Plan, q_BTHK: Array, k_BSHK: Array, v_BSHK: Array, inputs: Inputs) -> tuple[Array, Any]:
  """Return the output, and as residuals the arguments, the output and log-normalisers (B, H, T)."""
  B, T, H, _ = q_BTHK.shape
  norms_BHT = jax.ShapeDtypeStruct((B, H, T), jnp.float32)
  output_BTHK = jax.ShapeDtypeStruct((B, T, H, v_BSHK.shape[-1]), v_BSHK.dtype)
  o_BTHK, n_BHT = _call(FORWARD, plan, inputs, (q_BTHK, k_BSHK, v_BSHK), (output_BTHK, norms_BHT))
  return o_BTHK, (q_BTHK, k_BSHK, v_BSHK, inputs, o_BTHK, n_BHT)


def _attention_backward(plan: Plan, residuals: Any, do_BTHK: Array) -> tuple[Any, ...]:
  q_BTHK, k_BSHK, v_BSHK, inputs, o_BTHK, n_BHT = residuals
  delta_BHT = jnp.einsum('BTHK,BTHK->BHT', o_BTHK.astype(jnp.float32), do_BTHK.astype(jnp.float32))
  arrays = q_BTHK, k_BSHK, v_BSHK, do_BTHK, n_BHT, delta_BHT
  dk_BSHK, dv_BSHK = _call(KEYS, plan, inputs, arrays, (k_BSHK, v_BSHK))
  (dq_BTHK,) = _call(QUERIES, plan, inputs, arrays, (q_BTHK,))
  return dq_BTHK, dk_BSHK, dv_BSHK, None


_attention.defvjp(_attention_forward, _attention_backward)


def _call(name: str, plan: Plan, inputs: Inputs, arrays: Sequence[Array], outputs: Sequence[Any]) -> list[Array]:
  """Run a kernel over blocks of queries or, for their gradients, of keys, and over rows and heads.

  Args:
    name: its name.
    plan: constants.
    inputs: integer operands.
    arrays: q, k, v; in the backward pass also the gradient of the output, log-normalisers and `delta`.
    outputs: shapes and types of the results.
  """
  body, products = _KERNELS[name]
  (B, T, H, K), S = arrays[0].shape, arrays[1].shape[1]
  of_keys, blocks = name == KEYS, (S if name == KEYS else T) // plan.block
  of = functools.partial(_part, plan)
  sides = False, True, True, False, False, False  # of keys
  pairs = blocks * (blocks + 1) // 2 if plan.causal and T == S else (T // plan.block) * (S // plan.block)
  operations = products * B * H * pairs * plan.block**2 * (K + arrays[2].shape[3])  # half of them are of values
  moved = sum(math.prod(x.shape) * x.dtype.itemsize for x in (*inputs, *arrays, *outputs))
  return triton.call(
    functools.partial(body, plan),
    triton.Cost(operations, moved),
    name=name,
    warps=WARPS,
    stages=STAGES,
    grid=(blocks, B, H),
    in_specs=[
      pl.BlockSpec((4,), lambda i, b, h: (0,)),
      *(of(x, is_key == of_keys) for x, is_key in zip(inputs[1:], sides, strict=False)),
      *(of(x, is_key == of_keys) for x, is_key in zip(arrays, sides, strict=False)),
    ],
    out_specs=[of(x, True) for x in outputs],
    out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outputs],
    interpret=plan.interpret,
  )(*inputs, *arrays)


def _part(plan: Plan, x: Any, is_block: bool) -> pl.BlockSpec:
  """Return the part of an array that a program reads: its block of positions, or all of them.

  These are groups (B, T), normalisers (B, H, T) and arrays of heads (B, T, H, K), of one row and head.
  """
  at = lambda i: i if is_block else 0
  size = lambda axis: plan.block if is_block else x.shape[axis]
  if x.ndim == 2:
    return pl.BlockSpec((None, size(1)), lambda i, b, h: (b, at(i)))
  if x.ndim == 3:
    return pl.BlockSpec((None, None, size(2)), lambda i, b, h: (b, h, at(i)))
  return pl.BlockSpec((None, size(1), None, x.shape[3]), lambda i, b, h: (b, at(i), h, 0))


def _dot(a: Array, b: Array) -> Array:
  return jnp.dot(a, b, preferred_element_type=jnp.float32)


class Head(NamedTuple):
  """Dropout of a program's head.

  Attributes:
    seed: two words.
    row: row of the first query.
  """

  seed: tuple[Array, Array]
  row: Array


def _head(plan: Plan, words: Any) -> Head:
  number = (words[2] + pl.program_id(1)) * plan.heads + words[3] + pl.program_id(2)
  return Head((words[0].astype(jnp.uint32), words[1].astype(jnp.uint32)), number * plan.length)


def _scores(
  plan: Plan, head: Head, blocks: tuple[Any, Any], groups: tuple[Array, Array], q_QK: Array, k_CK: Array
) -> Any:
  """Return the scores (Q, C) of a pair of blocks, and their factors of dropout or None."""
  a_QC = _dot(q_QK, k_CK.T) * q_QK.shape[1] ** -0.5
  index = jnp.arange(plan.block, dtype=jnp.int32)
  query_Q1, key_1C = (blocks[0] * plan.block + index)[:, None], (blocks[1] * plan.block + index)[None]
  allowed_QC = groups[0][:, None] == groups[1][None]
  if plan.causal:
    allowed_QC &= key_1C <= query_Q1
  a_QC = jnp.where(allowed_QC, a_QC, MASKED)
  if not plan.rate:
    return a_QC, None
  row_Q1, column_QC = head.row + query_Q1, jnp.broadcast_to(key_1C, a_QC.shape)
  keep_QC = mask_of_columns(head.seed, plan.rate, row_Q1.astype(jnp.uint32), column_QC.astype(jnp.uint32))
  return a_QC, jnp.where(keep_QC, 1.0 / (1.0 - plan.rate), 0.0)


def _drop(p_QC: Array, factor_QC: Array | None) -> Array:
  return p_QC if factor_QC is None else p_QC * factor_QC


def _key_blocks(plan: Plan, i: Array, keys: int) -> Any:
  """Return the number of key blocks that query block i attends to."""
  return jnp.minimum(i + 1, keys // plan.block) if plan.causal else keys // plan.block


def _forward(plan: Plan, words: Any, query_group: Any, key_group: Any, q: Any, k: Any, v: Any, o: Any, n: Any) -> None:
  i, head, q_QK, group_Q = pl.program_id(0), _head(plan, words), q[...], query_group[...]

  def step(j: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
    o_QK, m_Q, z_Q = carry
    columns = pl.ds(j * plan.block, plan.block)
    v_CK = v[columns, :]
    a_QC, factor_QC = _scores(plan, head, (i, j), (group_Q, key_group[columns]), q_QK, k[columns, :])
    most_Q = jnp.maximum(m_Q, jnp.max(a_QC, axis=1))
    p_QC, scale_Q = jnp.exp(a_QC - most_Q[:, None]), jnp.exp(m_Q - most_Q)
    o_QK = o_QK * scale_Q[:, None] + _dot(_drop(p_QC, factor_QC).astype(v_CK.dtype), v_CK)
    return o_QK, most_Q, z_Q * scale_Q + jnp.sum(p_QC, axis=1)

  start = jnp.zeros(o.shape, jnp.float32), jnp.full(plan.block, -jnp.inf), jnp.zeros(plan.block, jnp.float32)
  o_QK, m_Q, z_Q = jax.lax.fori_loop(0, _key_blocks(plan, i, k.shape[0]), step, start)
  o[...] = (o_QK / z_Q[:, None]).astype(o.dtype)
  n[...] = m_Q + jnp.log(z_Q)


def _gradient(
  plan: Plan, head: Head, blocks: tuple[Any, Any], groups: tuple[Array, Array], arrays: tuple[Array, ...]
) -> tuple[Array, Array]:
  """Return the dropped probabilities and the gradient of the scores of a pair of blocks, (Q, C)."""
  q_QK, k_CK, v_CK, do_QK, n_Q, delta_Q = arrays
  a_QC, factor_QC = _scores(plan, head, blocks, groups, q_QK, k_CK)
  p_QC = jnp.exp(a_QC - n_Q[:, None])
  da_QC = p_QC * (_drop(_dot(do_QK, v_CK.T), factor_QC) - delta_Q[:, None]) * q_QK.shape[1] ** -0.5
  return _drop(p_QC, factor_QC).astype(do_QK.dtype), da_QC.astype(q_QK.dtype)


def _keys(plan: Plan, words: Any, query_group: Any, key_group: Any, *refs: Any) -> None:
  q, k, v, do, n, delta, dk, dv = refs
  j, head, k_CK, v_CK, group_C = pl.program_id(0), _head(plan, words), k[...], v[...], key_group[...]

  def step(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
    rows = pl.ds(i * plan.block, plan.block)
    q_QK, do_QK = q[rows, :], do[rows, :]
    arrays = q_QK, k_CK, v_CK, do_QK, n[rows], delta[rows]
    dropped_QC, da_QC = _gradient(plan, head, (i, j), (query_group[rows], group_C), arrays)
    return carry[0] + _dot(da_QC.T, q_QK), carry[1] + _dot(dropped_QC.T, do_QK)

  start = jnp.zeros(k_CK.shape, jnp.float32), jnp.zeros(v_CK.shape, jnp.float32)
  dk_CK, dv_CK = jax.lax.fori_loop(j if plan.causal else 0, q.shape[0] // plan.block, step, start)
  dk[...], dv[...] = dk_CK.astype(dk.dtype), dv_CK.astype(dv.dtype)


def _queries(plan: Plan, words: Any, query_group: Any, key_group: Any, *refs: Any) -> None:
  q, k, v, do, n, delta, dq = refs
  i, head, group_Q = pl.program_id(0), _head(plan, words), query_group[...]
  q_QK, do_QK, n_Q, delta_Q = (x[...] for x in (q, do, n, delta))

  def step(j: Array, dq_QK: Array) -> Array:
    columns = pl.ds(j * plan.block, plan.block)
    k_CK, v_CK = k[columns, :], v[columns, :]
    arrays = q_QK, k_CK, v_CK, do_QK, n_Q, delta_Q
    _, da_QC = _gradient(plan, head, (i, j), (group_Q, key_group[columns]), arrays)
    return dq_QK + _dot(da_QC, k_CK)

  start = jnp.zeros(q_QK.shape, jnp.float32)
  dq[...] = jax.lax.fori_loop(0, _key_blocks(plan, i, k.shape[0]), step, start).astype(dq.dtype)


_KERNELS = {FORWARD: (_forward, 2), KEYS: (_keys, 4), QUERIES: (_queries, 3)}  # and their products of a pair of blocks
