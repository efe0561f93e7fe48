"""Relative attention on a TPU by a Pallas kernel that holds whole rows of scores on the chip.

As lmx/kernels/row_attention.py, with the scores of lmx/ops/relative_attention.py. Position scores of a block of Q
queries are one product with the vectors of W = S + Q distances, of which row j is then rotated by Q - 1 - j columns;
the chip does that in one operation. The gradient needs the inverse rotation. As the chip rotates later rows further to
the right only, a product with a permutation puts the gradient's rows in reverse order first.

The P queries at given positions, after the T others, are scattered to these positions on chip, by a product with a 0/1
matrix. So they are rotated like the others. Each block of such queries visits all position blocks.

Axes: positions are the minor axis of all operands, (B, H, K, X), X = T + P. R = T + S are the distances that blocks of
queries meet, of padded lengths, from the farthest downwards.
"""

from __future__ import annotations

import functools
import math
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
  schedule,
  score_gradients,
  sharded,
  shares,
)
from lmx.kernels.visible import at_positions
from lmx.ops import dropout
from lmx.ops.visible import HIDDEN, MASKED, Segments, Visible
from lmx.types import Array


class Plan(NamedTuple):
  """Compile-time constants.

  Attributes:
    memory: keys before the first query if a query sees its past (`Visible.past`), later scores are then not
      computed; else None.
    farthest: maximum distance of a key, or None.
    segments: there are segment scores.
    blocks: number of blocks of the T positions.
    queries: number of queries, X, without padding of the last block.
    placed: there are queries at given positions.
    rate: dropout rate of the probabilities.
    heads: number of heads on all devices.
    rows: number of rows of a head in dropout's mask.
    interpret: run on any platform, slowly.
  """

  memory: int | None
  farthest: int | None
  segments: bool
  blocks: int
  queries: int
  placed: bool
  rate: float
  heads: int
  rows: int
  interpret: bool


class Integers(NamedTuple):
  """Integer operands.

  Attributes:
    words: two words of the seed, the first row and the first head of this device: (4,) int32; with a memory, then
      the filled positions of the memory of each row.
    of_positions: () with a memory, else of each query, (B, X, 6), the bounds of the visible keys, segment, row in
      dropout's mask, position, and the position again for the first of the queries at one, else -1; and of each key,
      (B, 2, S), order and segment.
  """

  words: Array
  of_positions: tuple[Array, ...]


def attention(
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
  *,
  interpret: bool = False,
) -> Array:
  """Return the attention of T queries, the last of which is at the last key, and of P further ones: (B, X, H, K).

  Args:
    q_BXHK: queries.
    k_BSHK: keys.
    value_BSHK: values.
    r_GRHK: vectors of the distances S - 1 downwards, for each of G parts of the rows.
    biases: of the queries in content, position and, with `segments`, segment scores, each (H, K).
    visible: keys that each query attends to; bounds are below 2**24.
    segments: segments of queries and keys, and their vectors, or None.
    positions_BP: positions of the last P queries, or None.
    rate: dropout rate of the probabilities.
    key: PRNG key of dropout, or None.
    interpret: run on any platform, slowly.
  """
  (B, X, H, _), S = q_BXHK.shape, k_BSHK.shape[1]
  T = X - (0 if positions_BP is None else positions_BP.shape[1])
  t_more, s_more = -T % LANES, -S % LANES
  positions_last = lambda x, before, after: jnp.pad(x.transpose(0, 2, 3, 1), ((0, 0),) * 3 + ((before, after),))
  arrays: tuple[Array, ...] = (
    positions_last(_pad_first(q_BXHK, T, t_more), 0, 0),
    positions_last(k_BSHK, 0, s_more),
    positions_last(value_BSHK, 0, s_more),
    positions_last(r_GRHK, t_more, T + S + s_more - r_GRHK.shape[1]),
    jnp.stack(biases, axis=2),
  )
  if segments is not None:
    arrays += (segments.e_2HK.transpose(1, 2, 0),)
  memory, filled_B, farthest = (None, None, None) if visible.past is None else (S - T, *visible.past)
  integers: tuple[Array, ...]
  if memory is None:
    integers = _of_positions(visible, segments, positions_BP, (B, T, X, S))
  else:
    integers = (jnp.full(B, memory, jnp.int32) if filled_B is None else filled_B.astype(jnp.int32),)
  seed_2 = dropout.seed(key) if key is not None and rate else jnp.zeros(2, jnp.uint32)
  blocks, placed = (T + t_more) // LANES, positions_BP is not None
  plan = Plan(memory, farthest, segments is not None, blocks, X + t_more, placed, rate, H, X, interpret)

  def attend(arrays: tuple[Array, ...], words: Array, *integers: Array) -> Array:
    given = Integers(words, integers) if memory is None else Integers(jnp.concatenate([words, *integers]), ())
    return _attention(plan, arrays, given)

  o_BHKX = sharded(attend, arrays, integers, jax.lax.bitcast_convert_type(seed_2, jnp.int32))
  o_BXHK = o_BHKX.transpose(0, 3, 1, 2)
  return jnp.concatenate([o_BXHK[:, :T], o_BXHK[:, T + t_more :]], axis=1) if t_more else o_BXHK


def _of_positions(
  visible: Visible, segments: Segments | None, positions_BP: Array | None, sizes: tuple[int, int, int, int]
) -> tuple[Array, Array]:
  """Return `Integers.of_positions`; the sizes are B, T, X and S."""
  B, T, X, S = sizes
  segment_BX, key_segment_BS = jnp.zeros((1, X), jnp.int32), jnp.zeros((1, S), jnp.int32)
  if segments is not None:
    segment_BX, key_segment_BS = segments.query_BT, segments.key_BS
  of_rows = lambda x: jnp.broadcast_to(x, (B, x.shape[1]))
  row_BX = of_rows(jnp.arange(X, dtype=jnp.int32)[None])
  position_BX = place_BX = row_BX
  if positions_BP is not None:
    position_BX = jnp.concatenate([row_BX[:, :T], positions_BP], axis=1)
    place_BX = jnp.concatenate([row_BX[:, :T], at_positions(positions_BP, LANES)], axis=1)
  columns = visible.first_BT, visible.last_BT, segment_BX, row_BX, position_BX, place_BX
  queries_BX6 = _pad_first(jnp.stack([of_rows(x) for x in columns], axis=2), T, -T % LANES)
  of_keys = lambda x_BS, padding: jnp.pad(of_rows(x_BS), ((0, 0), (0, -S % LANES)), constant_values=padding)
  return queries_BX6, jnp.stack([of_keys(visible.order_BS, HIDDEN), of_keys(key_segment_BS, 0)], axis=1)


def _pad_first(x_BX: Array, T: int, more: int) -> Array:  # noqa: N803
  """Return an array of all queries with `more` positions of padding after the first T."""
  if not more:
    return x_BX
  pad = lambda x: jnp.pad(x, [(0, more) if axis == 1 else (0, 0) for axis in range(x.ndim)])
  return jnp.concatenate([pad(x_BX[:, :T]), x_BX[:, T:]], axis=1)


def operations(op_name: str, shapes: Any) -> float:
  """Return the operations of one kernel call, see `splash_attention.operations`."""
  (*heads, K, X), (*_, S), _, (*_, R) = shapes[:4]
  rows = _steps((R - S) // LANES, X) * LANES
  of_keys, of_distances = (5 + LANES / K, 3) if BACKWARD in op_name else (2, 1)
  return 2.0 * math.prod(heads) * K * rows * (of_keys * S + of_distances * (S + LANES))


def _steps(blocks: int, X: int) -> int:  # noqa: N803
  """Return the number of computed query blocks: those of T positions, and as many for each later block."""
  return blocks + blocks * (-(-X // LANES) - blocks)


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
  """Run a kernel over heads, rows and query blocks; shared gradients are summed."""
  (B, H, K, X), S, (G, _, _, R) = arrays[0].shape, arrays[1].shape[3], arrays[3].shape
  n = plan.blocks
  queries = pl.BlockSpec((1, 1, K, LANES), lambda h, b, i: (b, h, 0, _of_step(plan, i)))
  keys = pl.BlockSpec((1, 1, K, S), lambda h, b, i: (b, h, 0, 0))
  distances = pl.BlockSpec((1, 1, K, R), lambda h, b, i: (jax.lax.div(b, B // G), h, 0, 0))
  of_head = [pl.BlockSpec((1, *x.shape[1:]), lambda h, b, i: (h, 0, 0)) for x in arrays if x.ndim == 3]
  specs = [queries, keys, keys, distances, *of_head, queries]
  of_positions = [
    pl.BlockSpec((1, LANES, 6), lambda h, b, i: (b, _of_step(plan, i), 0)),
    pl.BlockSpec((1, 2, S), lambda h, b, i: (b, 0, 0)),
  ]
  return pl.pallas_call(
    functools.partial(body, plan, B // G),
    grid=(H, B, _steps(n, X)),
    in_specs=[
      pl.BlockSpec(memory_space=pltpu.SMEM),
      *of_positions[: len(integers.of_positions)],
      *specs[: len(arrays)],
    ],
    out_specs=specs[: len(outputs)],
    out_shape=[
      jax.ShapeDtypeStruct(x.shape, x.dtype if i < 3 else jnp.promote_types(x.dtype, jnp.float32))
      for i, x in enumerate(outputs)
    ],
    scratch_shapes=[pltpu.VMEM((K, S), jnp.float32)] * 2 if name == BACKWARD else (),
    compiler_params=pltpu.CompilerParams(dimension_semantics=('parallel', 'arbitrary', 'arbitrary')),
    interpret=plan.interpret,
    name=name,
    metadata=schedule(H * B * _steps(n, X), shares(_ends(plan, S))),
  )(integers.words, *integers.of_positions, *arrays)


def _ends(plan: Plan, keys: int) -> list[int]:
  """Return the number of keys that each block of positions attends to."""
  if plan.memory is None:
    return [keys] * plan.blocks
  return ends([plan.memory + LANES * (i + 1) for i in range(plan.blocks)], keys)


class _Block(NamedTuple):
  """Values of a query block that both passes compute.

  Attributes:
    queries: scaled queries of content, position and segment scores.
    at_QQ: which query (row) is at which position (column); None where all are in their places.
    placed_QQ: the same for the first of several queries at a position, which is computed for all.
    is_first: this is the first block of positions that the queries pass; None where all are in their places.
    p_QS: probabilities, divided by the share that dropout keeps.
    keep_QS: those that it keeps, or None.
    distances: slice of the distances that the block meets.
    other_QS: True where the key is in another segment, or None.
  """

  queries: list[Array]
  at_QQ: Array | None
  placed_QQ: Array | None
  is_first: Array | None
  p_QS: Array
  keep_QS: Array | None
  distances: Any
  other_QS: Any


def _block(plan: Plan, program: tuple[Array, ...], words: Any, of_positions: Any, arrays: Any, S: int) -> _Block:  # noqa: N803
  """Compute the probabilities of a block of queries, of the first S keys."""
  q, k, _, r, biases, *e = arrays
  (K, Q), R = q.shape[2:], r.shape[3]
  head, row, step = program
  i = jax.lax.rem(step, plan.blocks)
  integers_Q6: Any = of_positions[0][0] if of_positions else None
  at_QQ = placed_QQ = is_first = None
  if plan.placed:  # a block of T positions is at its own positions
    is_first = (step < plan.blocks) | (i == 0)
    is_query_Q1 = jax.lax.broadcasted_iota(jnp.int32, (Q, 1), 0) < _known(plan, Q)
    at_1Q = i * Q + jax.lax.broadcasted_iota(jnp.int32, (1, Q), 1)
    at_QQ, placed_QQ = (is_query_Q1 & (integers_Q6[:, n : n + 1] == at_1Q) for n in (4, 5))
    known_Q6 = jnp.where(is_query_Q1, integers_Q6, 0).astype(jnp.float32)
    integers_Q6 = jnp.round(dot(placed_QQ.astype(jnp.float32), known_Q6, (0, 0))).astype(jnp.int32)
  q_KQ = _place(plan, q[0, 0], placed_QQ)
  content_KQ, position_KQ, *segment = scaled = [
    ((q_KQ + biases[0, :, n : n + 1].astype(q.dtype)) * K**-0.5).astype(q.dtype) for n in range(biases.shape[2])
  ]
  distances = pl.ds(pl.multiple_of(R - k.shape[3] - Q * (i + 1), Q), S + Q)
  b_QW = dot(position_KQ, r[0, 0, :, distances], (0, 0))
  a_QS = dot(content_KQ, k[0, 0, :, :S], (0, 0)) + pltpu.roll(b_QW, S + 1, 1, stride=1, stride_axis=0)[:, :S]
  other_QS: Any = None
  if plan.memory is not None:
    row_Q1 = i * Q + jax.lax.broadcasted_iota(jnp.int32, (Q, 1), 0)
    visible_QS = _in_past(plan, words[4 + row], row_Q1, S)
  else:
    first_Q1, last_Q1, segment_Q1, row_Q1 = (integers_Q6[:, n : n + 1] for n in range(4))
    order_1S, segment_1S = of_positions[1][0, :1, :S], of_positions[1][0, 1:, :S]
    visible_QS = (first_Q1 <= order_1S) & (order_1S <= last_Q1)
    other_QS = segment_Q1 != segment_1S
  if plan.segments:
    c_Q2 = dot(segment[0], e[0][0].astype(q.dtype), (0, 0))
    a_QS += jnp.where(other_QS, c_Q2[:, 1:], c_Q2[:, :1])
  a_QS = jnp.where(visible_QS, a_QS, MASKED)
  m_Q1 = jnp.max(a_QS, axis=1, keepdims=True)
  p_QS = jnp.exp(a_QS - m_Q1)
  scale_Q1 = 1.0 / (jnp.sum(p_QS, axis=1, keepdims=True) * (1.0 - plan.rate))
  p_QS *= scale_Q1 if plan.memory is not None else jnp.where(m_Q1 == MASKED, 0.0, scale_Q1)
  keep_QS = None
  if plan.rate:
    number = (words[2] + row) * plan.heads + words[3] + head
    column_QS = jax.lax.broadcasted_iota(jnp.int32, a_QS.shape, 1)
    keep_QS = kept(plan.rate, words, number * plan.rows, row_Q1, column_QS)
  return _Block(scaled, at_QQ, placed_QQ, is_first, p_QS, keep_QS, distances, other_QS)


def _in_past(plan: Plan, filled: Array, row_Q1: Array, S: int) -> Array:  # noqa: N803
  """Return which of S keys queries see in their past, (Q, S)."""
  memory = plan.memory or 0
  key_1S = jax.lax.broadcasted_iota(jnp.int32, (1, S), 1)
  order_1S = jnp.where(key_1S < memory - filled, HIDDEN, key_1S)
  visible_QS = order_1S <= row_Q1 + memory
  return visible_QS if plan.farthest is None else visible_QS & (order_1S >= row_Q1 + (memory - plan.farthest))


def _forward(plan: Plan, rows: int, words: Any, *refs: Any) -> None:
  del rows
  of_positions, (*arrays, o) = _split(plan, refs)
  v, program = arrays[2], tuple(pl.program_id(axis) for axis in range(3))

  def run(S: int) -> None:  # noqa: N803
    block = _block(plan, program, words, of_positions, arrays, S)
    p_QS = drop(block.p_QS, block.keep_QS).astype(v.dtype)
    o_KQ = dot(v[0, 0, :, :S], p_QS, (1, 1)).astype(o.dtype)
    _write(block, o, _back(o_KQ, block.at_QQ))

  over_visible(_ends(plan, v.shape[3]), program[2], run)


def _split(plan: Plan, refs: Any) -> tuple[Any, Any]:
  """Return the references to `Integers.of_positions`, and the others."""
  n = 2 if plan.memory is None else 0
  return refs[:n], refs[n:]


def _known(plan: Plan, Q: int) -> Array:  # noqa: N803
  """Return the number of the block's columns with queries; the others are arbitrary."""
  return plan.queries - _of_step(plan, pl.program_id(2)) * Q


def _of_step(plan: Plan, step: Any) -> Any:
  """Return a step's query block: those of T positions once, each later one once per position block."""
  n = plan.blocks
  return jnp.where(step < n, step, n + jax.lax.div(step - n, n)) if plan.placed else step


def _place(plan: Plan, x_KQ: Array, at_QQ: Array | None) -> Array:
  """Scatter query values to their positions."""
  if at_QQ is None:
    return x_KQ
  is_query_1Q = jax.lax.broadcasted_iota(jnp.int32, (1, x_KQ.shape[1]), 1) < _known(plan, x_KQ.shape[1])
  known_KQ = jnp.where(is_query_1Q, x_KQ, jnp.zeros((), x_KQ.dtype))
  return dot(known_KQ, at_QQ.astype(x_KQ.dtype), (1, 0)).astype(x_KQ.dtype)


def _back(x_KQ: Array, at_QQ: Array | None) -> Array:
  """Gather the values at the queries' positions; 0 for queries at others."""
  return x_KQ if at_QQ is None else dot(x_KQ, at_QQ.astype(x_KQ.dtype), (1, 1)).astype(x_KQ.dtype)


def _write(block: _Block, output: Any, x_KQ: Array) -> None:
  """Write the queries' values, of which each position block has some if queries are at given positions."""
  if block.is_first is None:
    output[0, 0] = x_KQ
    return

  @pl.when(block.is_first)
  def begin() -> None:
    output[0, 0] = x_KQ

  @pl.when(jnp.logical_not(block.is_first))
  def add() -> None:
    output[0, 0] += x_KQ


def _backward(plan: Plan, rows: int, words: Any, *refs: Any) -> None:
  """Write the gradients, summed over a part's rows for the distances and over all rows for the biases."""
  n = 5 + plan.segments
  of_positions, refs = _split(plan, refs)
  arrays, do, gradients, (total_dk, total_dv) = refs[:n], refs[n], refs[n + 1 : -2], refs[-2:]
  q, k, v, r, _, *e = arrays
  dq, dk, dv, dr, dbiases, *de = gradients
  program = tuple(pl.program_id(axis) for axis in range(3))
  _, row, i = program
  (K, Q), dtype = q.shape[2:], q.dtype
  for begins, sums in (
    (i == 0, (total_dk, total_dv)),
    ((i == 0) & (jax.lax.rem(row, rows) == 0), (dr,)),
    ((i == 0) & (row == 0), (dbiases, *de)),
  ):

    @pl.when(begins)
    def begin(sums: Any = sums) -> None:
      for total in sums:
        total[...] = jnp.zeros_like(total)

  def run(S: int) -> None:  # noqa: N803
    block = _block(plan, program, words, of_positions, arrays, S)
    content_KQ, position_KQ, *segment = block.queries
    dropped_QS = drop(block.p_QS, block.keep_QS)
    do_KQ = _place(plan, do[0, 0], block.at_QQ)
    dp_QS = drop(dot(do_KQ, v[0, 0, :, :S], (0, 0)), block.keep_QS)
    ds_QS = score_gradients(plan.rate, block.p_QS, dp_QS)
    of_queries = []  # gradients of the scaled queries
    if plan.segments:
      other_Q1 = jnp.sum(jnp.where(block.other_QS, ds_QS, 0.0), axis=1, keepdims=True)
      same_Q1 = jnp.sum(ds_QS, axis=1, keepdims=True) - other_Q1
      is_other_Q2 = jax.lax.broadcasted_iota(jnp.int32, (Q, 2), 1) == 1
      ds_Q2 = jnp.where(is_other_Q2, other_Q1, same_Q1).astype(dtype)
      of_queries = [dot(e[0][0].astype(dtype), ds_Q2, (1, 1))]
      de[0][0] += dot(segment[0], ds_Q2, (1, 0))
    ds_QS = ds_QS.astype(dtype)
    total_dk[:, :S] += dot(content_KQ, ds_QS, (1, 0))
    total_dv[:, :S] += dot(do_KQ, dropped_QS.astype(dtype), (1, 0))
    row_QQ, column_QQ = (jax.lax.broadcasted_iota(jnp.int32, (Q, Q), axis) for axis in (0, 1))
    reverse_QQ = (row_QQ + column_QQ == Q - 1).astype(dtype)
    reverse = lambda x_KQ: dot(x_KQ.astype(dtype), reverse_QQ, (1, 0))
    back_QW = jnp.pad(dot(reverse_QQ, ds_QS, (1, 0)), ((0, 0), (0, Q)))
    back_QW = pltpu.roll(back_QW, 0, 1, stride=1, stride_axis=0).astype(dtype)
    dr[0, 0, :, block.distances] += dot(reverse(position_KQ).astype(dtype), back_QW, (1, 0))
    of_position_KQ = reverse(dot(r[0, 0, :, block.distances], back_QW, (1, 1)))
    of_queries = [dot(k[0, 0, :, :S], ds_QS, (1, 1)), of_position_KQ, *of_queries]
    _write(block, dq, _back((sum(of_queries) * K**-0.5).astype(dtype), block.placed_QQ))
    for n, dq_KQ in enumerate(of_queries):
      dbiases[0, :, n : n + 1] += jnp.sum(dq_KQ, axis=1, keepdims=True) * K**-0.5

  over_visible(_ends(plan, k.shape[3]), i, run)

  @pl.when(i == pl.num_programs(2) - 1)
  def end() -> None:
    dk[0, 0], dv[0, 0] = total_dk[...].astype(dtype), total_dv[...].astype(dtype)
