"""Relative attention on a TPU by a Pallas kernel that holds whole rows of scores on the chip.

As lmx/kernels/row_attention.py, with the scores of lmx/layers/relative_attention.py. Position scores of a block of Q
queries are one product with the vectors of W = S + Q distances, of which row j is then rotated by Q - 1 - j columns;
the chip does that in one operation. The gradient needs the inverse rotation. As the chip rotates later rows further to
the right only, a product with a permutation puts the gradient's rows in reverse order first.

Axes: positions are the minor axis of all operands, (B, H, K, T). R = T + S are the distances that the blocks of queries
meet, of padded lengths, from the farthest downwards.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec

from lmx import placement
from lmx.kernels import hash_dropout
from lmx.kernels.relative_attention import HIDDEN, MASKED, Segments, Visible
from lmx.kernels.row_attention import LANES, dot
from lmx.types import Array


class Plan(NamedTuple):
  """Compile-time constants.

  Attributes:
    segments: whether there are segment scores.
    rate: dropout rate of the probabilities.
    heads: number of heads on all devices.
    rows: number of rows of a head in dropout's mask.
    interpret: run on any platform, slowly.
  """

  segments: bool
  rate: float
  heads: int
  rows: int
  interpret: bool


class Integers(NamedTuple):
  """Integer operands.

  Attributes:
    words: two words of the seed, the first row and the first head of this device: (4,) int32.
    queries_BT4: bounds of the visible keys, segment, and row in dropout's mask of each query.
    keys_B2S: order and segment of each key.
  """

  words: Array
  queries_BT4: Array
  keys_B2S: Array


def attention(
  queries: tuple[Array, ...],
  k_BSHK: Array,
  value_BSHK: Array,
  r_GRHK: Array,
  visible: Visible,
  *,
  segments: Segments | None = None,
  rate: float = 0.0,
  key: Array | None = None,
  rows: tuple[int, Array],
  interpret: bool = False,
) -> Array:
  """Return softmax(scores) · values, (B, T, H, K), 0 for a query that sees no key.

  Args:
    queries: of content and of position scores, and with `segments` of segment scores, each scaled: (B, T, H, K).
    k_BSHK: keys; the last query is at the last key.
    value_BSHK: values.
    r_GRHK: vectors of the distances S - 1 downwards, as in `lmx.layers.relative_attention.position_scores`.
    visible: keys that each query attends to.
    segments: segments of queries and keys, and their vectors, or None.
    rate: dropout rate of the probabilities.
    key: PRNG key of dropout, or None.
    rows: number of rows of a head in dropout's mask and the row of each query, (1 or B, T).
    interpret: run on any platform, slowly.
  """
  (B, T, H, _), S = queries[0].shape, k_BSHK.shape[1]
  t_more, s_more, (n_rows, row_BT) = -T % LANES, -S % LANES, rows
  minor = lambda x, before, after: jnp.pad(x.transpose(0, 2, 3, 1), ((0, 0),) * 3 + ((before, after),))
  r_GRHK = r_GRHK[:1] if B % len(r_GRHK) else r_GRHK
  arrays = (
    *(minor(q_BTHK, 0, t_more) for q_BTHK in queries),
    minor(k_BSHK, 0, s_more),
    minor(value_BSHK, 0, s_more),
    minor(r_GRHK, t_more, T + S + s_more - r_GRHK.shape[1]),
  )
  query_segment_BT, key_segment_BS = jnp.zeros((1, T), jnp.int32), jnp.zeros((1, S), jnp.int32)
  if segments is not None:
    query_segment_BT, key_segment_BS = segments.query_BT, segments.key_BS
    arrays += (segments.e_2HK.transpose(1, 2, 0),)

  def integers(x_BT: Array, more: int, padding: int = 0) -> Array:
    rows_BT = jnp.broadcast_to(x_BT, (B, x_BT.shape[1]))
    return jnp.pad(rows_BT, ((0, 0), (0, more)), constant_values=padding)

  bounds = integers(visible.first_BT, t_more), integers(visible.last_BT, t_more, -1)
  queries_BT4 = jnp.stack([*bounds, integers(query_segment_BT, t_more), integers(row_BT, t_more)], axis=2)
  keys_B2S = jnp.stack([integers(visible.order_BS, s_more, HIDDEN), integers(key_segment_BS, s_more)], axis=1)
  seed_2 = jnp.zeros(2, jnp.uint32) if key is None or not rate else hash_dropout.seed(key)
  plan = Plan(segments is not None, rate if key is not None else 0.0, H, n_rows, interpret)
  o_BHKT = _sharded(plan, arrays, (queries_BT4, keys_B2S), jax.lax.bitcast_convert_type(seed_2, jnp.int32))
  return o_BHKT[..., :T].transpose(0, 3, 1, 2)


def operations(op_name: str, shapes: Any) -> float:
  """Return the operations of one call of a kernel, see `splash_attention.operations`."""
  backward = BACKWARD in op_name
  (*heads, K, T), (*_, S) = shapes[0], shapes[2 + (len(shapes) - backward > 5)]
  of_keys, of_distances = (5 + LANES / K, 3) if backward else (2, 1)
  return 2.0 * math.prod(heads) * K * T * (of_keys * S + of_distances * (S + LANES))


def _sharded(plan: Plan, arrays: tuple[Array, ...], integers: tuple[Array, ...], seed_2: Array) -> Array:
  """Return the output, each device of its shard of rows and heads."""
  where = placement.current()
  if where is None or where.mapped or where.devices == 1:
    return _attention(plan, arrays, Integers(jnp.concatenate([seed_2, jnp.zeros(2, jnp.int32)]), *integers))
  specs = tuple(where.spec(x.shape, 'BH' if x.ndim == 4 else 'H') for x in arrays)
  spec = specs[0]

  def run(arrays: tuple[Array, ...], integers: tuple[Array, ...], seed_2: Array) -> Array:
    shard = lambda axes: jax.lax.axis_index(axes) if axes else 0
    first = [shard(spec[axis]) * arrays[0].shape[axis] for axis in (0, 1)]
    return _attention(plan, arrays, Integers(jnp.concatenate([seed_2, jnp.array(first, jnp.int32)]), *integers))

  in_specs = specs, (PartitionSpec(spec[0]),) * 2, PartitionSpec()
  run = jax.shard_map(run, mesh=where.mesh, in_specs=in_specs, out_specs=spec, check_vma=False)
  return run(arrays, integers, seed_2)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(plan: Plan, arrays: tuple[Array, ...], integers: Integers) -> Array:
  return _call(_forward, FORWARD, plan, arrays, integers, arrays[:1])[0]


def _attention_forward(plan: Plan, *args: Any) -> tuple[Array, Any]:
  return _attention(plan, *args), args


def _attention_backward(plan: Plan, args: Any, do_BHKT: Array) -> tuple[Any, ...]:
  arrays, integers = args
  gradients = _call(_backward, BACKWARD, plan, (*arrays, do_BHKT), integers, arrays)
  return tuple(g.astype(x.dtype) for g, x in zip(gradients, arrays, strict=True)), None


_attention.defvjp(_attention_forward, _attention_backward)
FORWARD, BACKWARD = 'relative_rows_forward', 'relative_rows_backward'


def _call(
  body: Any, name: str, plan: Plan, arrays: tuple[Array, ...], integers: Integers, outputs: tuple[Array, ...]
) -> list[Array]:
  """Run a kernel over heads, rows and blocks of queries; gradients that these share are added up."""
  n = 2 + plan.segments
  (B, H, K, T), S, (G, _, _, R) = arrays[0].shape, arrays[n].shape[3], arrays[n + 2].shape
  queries = pl.BlockSpec((1, 1, K, LANES), lambda h, b, i: (b, h, 0, i))
  keys = pl.BlockSpec((1, 1, K, S), lambda h, b, i: (b, h, 0, 0))
  distances = pl.BlockSpec((1, 1, K, R), lambda h, b, i: (jax.lax.div(b, B // G), h, 0, 0))
  segments = pl.BlockSpec((1, K, 2), lambda h, b, i: (h, 0, 0))
  specs = [queries] * n + [keys, keys, distances] + [segments] * plan.segments + [queries]
  return pl.pallas_call(
    functools.partial(body, plan, B // G),
    grid=(H, B, T // LANES),
    in_specs=[
      pl.BlockSpec(memory_space=pltpu.SMEM),
      pl.BlockSpec((1, LANES, 4), lambda h, b, i: (b, i, 0)),
      pl.BlockSpec((1, 2, S), lambda h, b, i: (b, 0, 0)),
      *specs[: len(arrays)],
    ],
    out_specs=specs[: len(outputs)],
    out_shape=[
      jax.ShapeDtypeStruct(x.shape, x.dtype if i < n else jnp.promote_types(x.dtype, jnp.float32))
      for i, x in enumerate(outputs)
    ],
    compiler_params=pltpu.CompilerParams(dimension_semantics=('parallel', 'arbitrary', 'arbitrary')),
    interpret=plan.interpret,
    name=name,
  )(*integers, *arrays)


class _Block(NamedTuple):
  """What the forward and the backward pass compute of a block of queries.

  Attributes:
    p_QS: probabilities.
    factor_QS: their factors of dropout, or None.
    distances: slice of the distances that the block meets.
    other_QS: whether the key is in another segment.
  """

  p_QS: Array
  factor_QS: Array | None
  distances: Any
  other_QS: Array


def _block(plan: Plan, words: Any, queries: Any, keys: Any, arrays: Any) -> _Block:
  a, b, *c, k, _, r = arrays[: 5 + plan.segments]
  Q, S, R = a.shape[3], k.shape[3], r.shape[3]
  distances = pl.ds(pl.multiple_of(R - S - Q * (pl.program_id(2) + 1), LANES), S + Q)
  b_QW = dot(b[0, 0], r[0, 0, :, distances], (0, 0))
  a_QS = dot(a[0, 0], k[0, 0], (0, 0)) + pltpu.roll(b_QW, S + 1, 1, stride=1, stride_axis=0)[:, :S]
  bounds = queries[0]
  first_Q1, last_Q1, segment_Q1, row_Q1 = (bounds[:, n : n + 1] for n in range(4))
  order_1S, segment_1S = keys[0, :1], keys[0, 1:]
  other_QS = segment_Q1 != segment_1S
  if plan.segments:
    c_Q2 = dot(c[0][0, 0], arrays[-1][0].astype(a.dtype), (0, 0))
    a_QS += jnp.where(other_QS, c_Q2[:, 1:], c_Q2[:, :1])
  a_QS = jnp.where((first_Q1 <= order_1S) & (order_1S <= last_Q1), a_QS, MASKED)
  m_Q1 = jnp.max(a_QS, axis=1, keepdims=True)
  p_QS = jnp.exp(a_QS - m_Q1)
  p_QS *= jnp.where(m_Q1 == MASKED, 0.0, 1.0 / jnp.sum(p_QS, axis=1, keepdims=True))
  factor_QS = None
  if plan.rate:
    head = (words[2] + pl.program_id(1)) * plan.heads + words[3] + pl.program_id(0)
    row_Q1 = (head * plan.rows + row_Q1).astype(jnp.uint32)
    column_QS = jax.lax.broadcasted_iota(jnp.int32, (Q, S), 1).astype(jnp.uint32)
    seed = words[0].astype(jnp.uint32), words[1].astype(jnp.uint32)
    keep_QS = hash_dropout.mask_of_columns(seed, plan.rate, row_Q1, column_QS)
    factor_QS = jnp.where(keep_QS, 1.0 / (1.0 - plan.rate), 0.0)
  return _Block(p_QS, factor_QS, distances, other_QS)


def _forward(plan: Plan, rows: int, words: Any, queries: Any, keys: Any, *refs: Any) -> None:
  del rows
  *arrays, o = refs
  block, v = _block(plan, words, queries, keys, arrays), arrays[3 + plan.segments]
  p_QS = block.p_QS if block.factor_QS is None else block.p_QS * block.factor_QS
  o[0, 0] = dot(v[0, 0], p_QS.astype(v.dtype), (1, 1)).astype(o.dtype)


def _backward(plan: Plan, rows: int, words: Any, queries: Any, keys: Any, *refs: Any) -> None:
  """Write the gradients; those of the distances are of all rows of a part, those of the segments of all rows."""
  n = 5 + 2 * plan.segments
  arrays, do, gradients = refs[:n], refs[n], refs[n + 1 :]
  a, b, *c, k, v, r = arrays[: 5 + plan.segments]
  da, db, *dc, dk, dv, dr = gradients[: 5 + plan.segments]
  b_, i = pl.program_id(1), pl.program_id(2)
  block = _block(plan, words, queries, keys, arrays)
  dropped_QS = block.p_QS
  dp_QS = dot(do[0, 0], v[0, 0], (0, 0))
  if block.factor_QS is not None:
    dropped_QS, dp_QS = dropped_QS * block.factor_QS, dp_QS * block.factor_QS
  ds_QS = block.p_QS * (dp_QS - jnp.sum(block.p_QS * dp_QS, axis=1, keepdims=True))

  @pl.when(i == 0)
  def _() -> None:
    dk[...], dv[...] = jnp.zeros_like(dk), jnp.zeros_like(dv)

  @pl.when((i == 0) & (jax.lax.rem(b_, rows) == 0))
  def _() -> None:
    dr[...] = jnp.zeros_like(dr)

  if plan.segments:
    de = gradients[-1]

    @pl.when((i == 0) & (b_ == 0))
    def _() -> None:
      de[...] = jnp.zeros_like(de)

    other_Q1 = jnp.sum(jnp.where(block.other_QS, ds_QS, 0.0), axis=1, keepdims=True)
    same_Q1 = jnp.sum(ds_QS, axis=1, keepdims=True) - other_Q1
    column_Q2 = jax.lax.broadcasted_iota(jnp.int32, (ds_QS.shape[0], 2), 1)
    dc_Q2 = jnp.where(column_Q2 == 1, other_Q1, same_Q1).astype(a.dtype)
    dc[0][0, 0] = dot(arrays[-1][0].astype(a.dtype), dc_Q2, (1, 1)).astype(a.dtype)
    de[0] += dot(c[0][0, 0], dc_Q2, (1, 0))

  ds_QS = ds_QS.astype(a.dtype)
  da[0, 0] = dot(k[0, 0], ds_QS, (1, 1)).astype(a.dtype)
  dk[0, 0] += dot(a[0, 0], ds_QS, (1, 0))
  dv[0, 0] += dot(do[0, 0], dropped_QS.astype(a.dtype), (1, 0))
  Q = ds_QS.shape[0]
  row_QQ, column_QQ = (jax.lax.broadcasted_iota(jnp.int32, (Q, Q), axis) for axis in (0, 1))
  reverse_QQ = (row_QQ + column_QQ == Q - 1).astype(a.dtype)
  back_QW = jnp.pad(dot(reverse_QQ, ds_QS, (1, 0)), ((0, 0), (0, Q)))
  back_QW = pltpu.roll(back_QW, 0, 1, stride=1, stride_axis=0).astype(a.dtype)
  reversed_KQ = dot(b[0, 0], reverse_QQ, (1, 0)).astype(a.dtype)
  db_KQ = dot(r[0, 0, :, block.distances], back_QW, (1, 1)).astype(a.dtype)
  db[0, 0] = dot(db_KQ, reverse_QQ, (1, 0)).astype(a.dtype)
  dr[0, 0, :, block.distances] += dot(reversed_KQ, back_QW, (1, 0))
