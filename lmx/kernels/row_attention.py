"""Attention on a TPU, with dropout, by a Pallas kernel that holds whole rows of scores on the chip.

Each program computes all scores of a block of queries of one head, so the softmax is the equation's. The backward pass
recomputes them from queries and keys. Nothing of size (T, S) is stored, and the dropout mask is the hash of
lmx/ops/dropout.py, computed in place. Scores are computed from the first to the last key that the block's queries
attend to, those of their documents and of their past: the program has a branch for each number of such keys. Rows that
do not fit on chip need splash attention (lmx/kernels/splash_attention.py), which skips masked blocks, without dropout.

Axes: positions are the minor axis of all operands, (B, H, K, T), so that heads narrower than the 128 lanes are not
padded. Q are the queries of a block, C the components of the arrays below.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from lmx.kernels.score_rows import (
  LANES,
  dot,
  drop,
  ends,
  kept,
  over_visible,
  pad_group,
  schedule,
  score_gradients,
  sharded,
  shares,
  step_of,
)
from lmx.ops import dropout
from lmx.ops.patterns import Pattern
from lmx.ops.visible import MASKED
from lmx.types import Array

SCORES = 2**18  # of a block: a few such float32 arrays fit on chip


class Plan(NamedTuple):
  """Compile-time constants.

  Attributes:
    causal: mask keys after the query.
    pattern: see `lmx.ops.masks.AttentionMask`.
    rate: dropout rate of the probabilities.
    heads: number of heads on all devices.
    length: number of queries without padding.
    grouped: there are groups, such as packed documents.
    interpret: run on any platform, slowly.
  """

  causal: bool
  pattern: Pattern | None
  rate: float
  heads: int
  length: int
  grouped: bool
  interpret: bool


class Inputs(NamedTuple):
  """Integer operands.

  Attributes:
    words: two words of the seed, the first row and the first head of this device: (4,) int32; if there are groups, then
      `group_range` of the rows.
    groups: of each query, (B, T, 1), and of each key, (B, 1, S); () if there are none.
  """

  words: Array
  groups: tuple[Array, ...]


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
  more = lambda n: -n % LANES
  query_group_BT, key_group_BS = mask.query_group_BT, mask.key_group_BS
  grouped = query_group_BT is not None and key_group_BS is not None
  groups: tuple[Array, ...] = ()
  if grouped or (more(S) and not (causal and mask.pattern is None and T <= S)):  # else the past has no padding
    if not grouped:
      query_group_BT, key_group_BS = jnp.zeros((1, T), jnp.int32), jnp.zeros((1, S), jnp.int32)
    groups = pad_group(query_group_BT, B, more(T))[:, :, None], pad_group(key_group_BS, B, more(S))[:, None]
  positions_last = lambda x: jnp.pad(x.transpose(0, 2, 3, 1), ((0, 0),) * 3 + ((0, more(x.shape[1])),))
  arrays = positions_last(q_BTHK), positions_last(k_BSHK), positions_last(v_BSHK)
  seed_2 = jnp.zeros(2, jnp.uint32) if key is None or not rate else dropout.seed(key)
  plan = Plan(causal, mask.pattern, rate if key is not None else 0.0, H, T, bool(groups), interpret)

  def attend(arrays: tuple[Array, ...], words: Array, *groups: Array) -> Array:
    if plan.grouped:
      range_B2N = group_range(groups[0][..., 0], groups[1][:, 0], _queries(arrays[0].shape[3], arrays[1].shape[3]))
      words = jnp.concatenate([words, range_B2N.reshape(-1)])
    return _attention(plan, *arrays, Inputs(words, groups))

  o_BHKT = sharded(attend, arrays, groups, jax.lax.bitcast_convert_type(seed_2, jnp.int32))
  return o_BHKT[..., :T].transpose(0, 3, 1, 2)


def group_range(query_group_BT: Array, key_group_BS: Array, block: int) -> Array:
  """Return the first key that the queries of each block share a group with, and one past the last: (B, 2, N) int32.

  Groups between those of a block's queries count as theirs. A block of padding only has all keys.
  """
  group_BNQ = query_group_BT.reshape(query_group_BT.shape[0], -1, block)
  low_BN1 = jnp.min(jnp.where(group_BNQ < 0, jnp.iinfo(jnp.int32).max, group_BNQ), axis=2, keepdims=True)
  seen_BNS = (key_group_BS[:, None] >= low_BN1) & (key_group_BS[:, None] <= jnp.max(group_BNQ, axis=2, keepdims=True))
  first_BN, after_BN = jnp.argmax(seen_BNS, axis=2), jnp.argmax(seen_BNS[:, :, ::-1], axis=2)
  return jnp.stack([first_BN, key_group_BS.shape[1] - after_BN], axis=1).astype(jnp.int32)


def operations(op_name: str, shapes: Any) -> float:
  """Return the operations of one kernel call, see `splash_attention.operations`."""
  (*heads, K, T), (*_, S) = shapes[:2]
  return 2.0 * (2 if FORWARD in op_name else 5) * math.prod(heads) * K * T * S


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(plan: Plan, q_BHKT: Array, k_BHKS: Array, v_BHKS: Array, inputs: Inputs) -> Array:
  return _call(_forward, FORWARD, plan, (q_BHKT, k_BHKS, v_BHKS), inputs, [q_BHKT])[0]


def _attention_forward(plan: Plan, *args: Any) -> tuple[Array, Any]:
  return _attention(plan, *args), args


def _attention_backward(plan: Plan, args: Any, do_BHKT: Array) -> tuple[Any, ...]:
  *arrays, inputs = args
  gradients = _call(_backward, BACKWARD, plan, (*arrays, do_BHKT), inputs, arrays)
  return *(g.astype(x.dtype) for g, x in zip(gradients, arrays, strict=True)), None


_attention.defvjp(_attention_forward, _attention_backward)
FORWARD, BACKWARD = 'row_attention_forward', 'row_attention_backward'


def _queries(T: int, S: int) -> int:  # noqa: N803
  """Return the number of queries of a block."""
  return max(n for n in range(LANES, T + 1, LANES) if T % n == 0 and (n * S <= SCORES or n == LANES))


def _call(
  body: Any, name: str, plan: Plan, arrays: tuple[Array, ...], inputs: Inputs, outputs: list[Array]
) -> list[Array]:
  """Run a kernel over rows, heads and query blocks; key gradients are summed over the query blocks."""
  (B, H, K, T), S = arrays[0].shape, arrays[1].shape[3]
  block = _queries(T, S)
  of_block = _ends(plan, block, S)
  begins = [1 / len(of_block)] if name == BACKWARD else []  # key gradients begin at 0
  queries = pl.BlockSpec((1, 1, K, block), lambda b, h, i: (b, h, 0, i))
  keys = pl.BlockSpec((1, 1, K, S), lambda b, h, i: (b, h, 0, 0))
  specs = [queries, keys, keys, queries]
  groups = [
    pl.BlockSpec((1, block, 1), lambda b, h, i: (b, i, 0)),
    pl.BlockSpec((1, 1, S), lambda b, h, i: (b, 0, 0)),
  ]
  return pl.pallas_call(
    functools.partial(body, plan),
    grid=(B, H, T // block),
    in_specs=[
      pl.BlockSpec(memory_space=pltpu.SMEM),
      *groups[: len(inputs.groups)],
      *specs[: len(arrays)],
    ],
    out_specs=specs[: len(outputs)],
    out_shape=[
      jax.ShapeDtypeStruct(x.shape, x.dtype if i == 0 else jnp.promote_types(x.dtype, jnp.float32))
      for i, x in enumerate(outputs)
    ],
    compiler_params=pltpu.CompilerParams(dimension_semantics=('parallel', 'parallel', 'arbitrary')),
    interpret=plan.interpret,
    name=name,
    metadata=schedule(B * H * len(of_block), [*begins, *_shares(plan, of_block, S)]),
  )(inputs.words, *inputs.groups, *arrays)


def _ends(plan: Plan, block: int, keys: int) -> list[int]:
  """Return `ends` of the blocks of queries."""
  last = range(block, plan.length + block, block)
  if not plan.causal:
    return [keys] * len(last)
  return ends(last if plan.pattern is None else [plan.pattern.keys(end) for end in last], keys)


def _counts(keys: int) -> list[int]:
  """Return the numbers of keys that blocks of queries see if there are groups."""
  step = step_of(keys)
  return [*range(step, keys, step), keys]


def _shares(plan: Plan, of_block: Sequence[int], keys: int) -> list[float]:
  """Return `shares`; if there are groups, those of rows of one group."""
  if not plan.grouped or len(of_block) == 1:
    return shares(of_block)
  return [of_block.count(n) / len(of_block) for n in _counts(keys)]


def _over_keys(
  plan: Plan, program: tuple[Array, ...], words: Any, block: int, keys: int, run: Callable[[Any], None]
) -> None:
  """Call `run` with the slice of the keys of a block; the others are masked."""
  b, _, i = program
  of_block = _ends(plan, block, keys)
  if not plan.grouped or len(of_block) == 1:
    over_visible(of_block, i, lambda end: run(slice(0, end)))
    return
  causal_end = jnp.int32(keys)
  for n, end in enumerate(of_block):
    causal_end = jnp.where(i == n, end, causal_end)
  below = lambda x, n: jax.lax.div(x, n) * n  # of a positive integer
  at, step = 4 + b * 2 * len(of_block) + i, step_of(keys)  # in `words`
  first = below(words[at], LANES)
  needed = jnp.maximum(jnp.minimum(words[at + len(of_block)], causal_end) - first, 1)
  count = jnp.minimum(below(needed + step - 1, step), keys)
  first = pl.multiple_of(jnp.minimum(first, keys - count), LANES)
  for n in _counts(keys):
    pl.when(count == n)(functools.partial(run, pl.ds(first, n)))


def _probabilities(
  plan: Plan, program: tuple[Array, ...], words: Any, groups: Sequence[Any], q_KQ: Array, k: Any, keys: Any
) -> Any:
  """Return the probabilities (Q, S), divided by the share that dropout keeps, and which ones it keeps or None."""
  b, h, i = program
  a_QS = dot(q_KQ, k[0, 0, :, keys], (0, 0)) * (q_KQ.shape[0] ** -0.5 * math.log2(math.e))
  Q, _ = a_QS.shape
  query_Q1 = i * Q + jax.lax.broadcasted_iota(jnp.int32, (Q, 1), 0)
  key_QS = keys.start + jax.lax.broadcasted_iota(jnp.int32, a_QS.shape, 1)
  allowed_QS = [groups[0][0] == groups[1][0, :, keys]] if groups else []
  if plan.causal:
    allowed_QS += [key_QS <= query_Q1 if plan.pattern is None else plan.pattern(query_Q1, key_QS)]
  if allowed_QS:
    a_QS = jnp.where(functools.reduce(jnp.logical_and, allowed_QS), a_QS, MASKED)
  p_QS = jnp.exp2(a_QS - jnp.max(a_QS, axis=1, keepdims=True))  # exp would multiply each element by log2(e)
  p_QS /= jnp.sum(p_QS, axis=1, keepdims=True) * (1.0 - plan.rate)
  if not plan.rate:
    return p_QS, None
  head = (words[2] + b) * plan.heads + words[3] + h
  return p_QS, kept(plan.rate, words, head * plan.length, query_Q1, key_QS)


def _forward(plan: Plan, words: Any, *refs: Any) -> None:
  *groups, q, k, v, o = refs
  program = tuple(pl.program_id(axis) for axis in range(3))

  def run(keys: Any) -> None:
    p_QS, keep_QS = _probabilities(plan, program, words, groups, q[0, 0], k, keys)
    o[0, 0] = dot(v[0, 0, :, keys], drop(p_QS, keep_QS).astype(v.dtype), (1, 1)).astype(o.dtype)

  _over_keys(plan, program, words, q.shape[3], k.shape[3], run)


def _backward(plan: Plan, words: Any, *refs: Any) -> None:
  *groups, q, k, v, do, dq, dk, dv = refs
  program = tuple(pl.program_id(axis) for axis in range(3))

  @pl.when(program[2] == 0)
  def _() -> None:
    dk[...], dv[...] = jnp.zeros_like(dk), jnp.zeros_like(dv)

  def run(keys: Any) -> None:
    k_KS, v_KS = (x[0, 0, :, keys] for x in (k, v))
    p_QS, keep_QS = _probabilities(plan, program, words, groups, q[0, 0], k, keys)
    dropped_QS = drop(p_QS, keep_QS)
    da_QS = score_gradients(plan.rate, p_QS, drop(dot(do[0, 0], v_KS, (0, 0)), keep_QS))
    da_QS = (da_QS * q.shape[2] ** -0.5).astype(q.dtype)
    dq[0, 0] = dot(k_KS, da_QS, (1, 1)).astype(dq.dtype)
    dk[0, 0, :, keys] += dot(q[0, 0], da_QS, (1, 0))
    dv[0, 0, :, keys] += dot(do[0, 0], dropped_QS.astype(do.dtype), (1, 0))

  _over_keys(plan, program, words, q.shape[3], k.shape[3], run)
