"""Attention and its gradient (the equation is in lmx/ops/attention.py), whose scores stay in the cache of a core.

Each thread processes one head of one row at a time. For a strip of a few queries it computes the scores of all keys,
panel by panel, and the softmax of whole score rows. The backward pass recomputes the probabilities. Key and value
gradients of a query block are products over its queries. Key panels that a causal mask hides from a whole strip are
skipped.

Axes: those of lmx/kernels/attention.py; W components of a value, H heads. Arrays are matrices of the positions of all
rows of the batch by the components of all heads, (B T, H K).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import cfunc, njit

from lmx.kernels.native import threads
from lmx.kernels.native.elementary import FAST, SINGLE, exp
from lmx.kernels.native.frame import ARGUMENTS, ENTRY, F32, I32, OPTIONS, RESULTS, is_question, matrix, prefetch
from lmx.kernels.native.product import (
  COLUMNS,
  ROWS,
  add_part_product,
  add_product,
  blocks,
  pack_transposed,
  put_transposed,
)
from lmx.kernels.native.threads import claim, enter, share

FORWARD, BACKWARD = 'lmx_attention_forward', 'lmx_attention_backward'
_forward_thread = threads.named(FORWARD)
_backward_thread = threads.named(BACKWARD)

_INLINE: dict[str, Any] = OPTIONS | {'inline': 'always'}  # of what is called once
_STRIPS = 8  # queries per block: the probabilities of a few hundred keys and their gradient fit the L2 cache
_QUERIES = _STRIPS * ROWS
_BLOCK = ROWS * COLUMNS
_MASKED = np.float32(-1e30)  # score of masked keys and of a panel's columns after the last key


class Call(NamedTuple):
  """Arguments of both operations.

  Attributes:
    q: queries, (B T, H K).
    k: keys, (B S, H K).
    v: values, (B S, H W).
    query_group: (B, T).
    key_group: (B, S).
    sizes: (B, H, T, S, K, W).
    flags: (1 to mask keys after a query, 1 to mask keys of other groups).
    dropout: (smallest hash of a probability that is kept, 0 without dropout; the seed's two words).
    factors: (factor of the scores, factor of the probabilities that are kept).
  """

  q: Any
  k: Any
  v: Any
  query_group: Any
  key_group: Any
  sizes: Any
  flags: Any
  dropout: Any
  factors: Any


class Parts(NamedTuple):
  """Workspace of a head's backward pass: panels, strips and transposed blocks of its arrays, and sums."""

  k_panels: Any
  v_panels: Any
  k_rows: Any
  q_strip: Any
  do_strip: Any
  q_turned: Any
  do_turned: Any
  p: Any
  dp: Any
  dk_sums: Any
  dv_sums: Any
  lanes: Any
  out: Any


@njit(**OPTIONS)
def _wide(width: Any) -> Any:
  """Return a width rounded up to whole panels."""
  return (width + COLUMNS - 1) // COLUMNS * COLUMNS


def forward_size(S: int, K: int, W: int) -> int:
  """Return the size of a thread's workspace in `forward`, in float32 values."""
  wide = _wide.py_func
  return wide(S) * K + wide(W) * S + wide(K) * ROWS + wide(S) * ROWS + 2 * _BLOCK


def backward_size(S: int, K: int, W: int) -> int:
  """Return the size of a thread's workspace in `backward`, in float32 values."""
  wide = _wide.py_func
  inputs = wide(S) * (K + W) + wide(K) * S + (wide(K) + wide(W)) * ROWS + (K + W) * _QUERIES
  return inputs + 2 * wide(S) * _QUERIES + wide(S) * (K + W) + 2 * _BLOCK


@njit(**OPTIONS)
def _read(frame: Any) -> Any:
  q, k, v = matrix(frame, ARGUMENTS, 0, F32), matrix(frame, ARGUMENTS, 1, F32), matrix(frame, ARGUMENTS, 2, F32)
  groups = matrix(frame, ARGUMENTS, 3, I32), matrix(frame, ARGUMENTS, 4, I32)
  integers, factors = matrix(frame, ARGUMENTS, 5, I32)[0], matrix(frame, ARGUMENTS, 6, F32)[0]
  B, H = np.int64(integers[1]), np.int64(integers[2])
  sizes = (B, H, q.shape[0] // B, k.shape[0] // B, q.shape[1] // H, v.shape[1] // H)
  dropout = (np.uint32(integers[5]), np.uint32(integers[6]), np.uint32(integers[7]))
  return Call(q, k, v, *groups, sizes, (integers[3], integers[4]), dropout, (factors[0], factors[1]))


@njit(**OPTIONS)
def _ask(x: Any, row: Any, count: Any, first: Any, width: Any) -> None:
  """Prefetch columns of some rows."""
  for t in range(count):
    prefetch(x, row + t, first, first + width)


@njit(**OPTIONS)
def _ask_for_head(call: Any, head: Any) -> None:
  B, H, T, S, K, W = call.sizes
  b, h = head // H, head % H
  if b < B:
    _ask(call.k, b * S, S, h * K, K)
    _ask(call.v, b * S, S, h * W, W)
    _ask(call.q, b * T, T, h * K, K)


@njit(**OPTIONS)
def _clear(block: Any) -> None:
  for k in range(block.size):
    block[k] = 0


@njit(**SINGLE)
def _copy_strip(x: Any, row: Any, rows: Any, first: Any, width: Any, factor: Any, parts: Any) -> None:
  """Copy columns of some rows, times a factor, to parts of COLUMNS columns, (ROWS, COLUMNS) each."""
  for low in range(0, width, COLUMNS):
    for r in range(rows):
      source = x[row + r, first + low : first + min(low + COLUMNS, width)]
      target = parts[low * ROWS + r * COLUMNS : low * ROWS + (r + 1) * COLUMNS]
      for k in range(source.size):
        target[k] = source[k] * factor


@njit(**OPTIONS)
def _copy_turned(x: Any, row: Any, count: Any, first: Any, width: Any, packed: Any) -> None:
  """Copy columns of `count` rows, transposed, as packed rows of a product."""
  strips = blocks(width)
  for i in range(strips):
    low, high = i * width // strips, (i + 1) * width // strips
    part = packed[low * count : high * count]
    for t in range(count):
      source, target = x[row + t, first + low : first + high], part[t * (high - low) : (t + 1) * (high - low)]
      for k in range(target.size):
        target[k] = source[k]


@njit(**OPTIONS)
def _copy_keys(x: Any, row: Any, count: Any, first: Any, width: Any, panels: Any) -> None:
  """Copy columns of `count` rows, transposed, to panels."""
  for low in range(0, count, COLUMNS):
    panel = panels[low * width : (low + COLUMNS) * width]
    pack_transposed(x, row + low, min(COLUMNS, count - low), first, width, panel)


@njit(**OPTIONS)
def _copy_columns(x: Any, row: Any, count: Any, first: Any, width: Any, panels: Any) -> None:
  """Copy columns of `count` rows to panels."""
  for low in range(0, width, COLUMNS):
    panel = panels[low * count : (low + COLUMNS) * count]
    for s in range(count):
      source, target = x[row + s, first + low : first + min(low + COLUMNS, width)], panel[s * COLUMNS :]
      for k in range(source.size):
        target[k] = source[k]
      for k in range(source.size, COLUMNS):
        target[k] = 0


@njit(**OPTIONS)
def _multiply(rows: Any, parts: Any, panel: Any, block: Any) -> None:
  """Set a block to the product of a strip, from `_copy_strip`, and a panel."""
  _clear(block)
  for low in range(0, panel.size, COLUMNS * COLUMNS):
    add_part_product(rows, parts[low // COLUMNS * ROWS :], panel[low : low + COLUMNS * COLUMNS], block)


@njit(**OPTIONS)
def _sum_panels(rows: Any, x: Any, stride: Any, panels: Any, columns: Any, count: Any, block: Any) -> None:
  """Set a block to the sum over panels j of the blocks of x, `stride` apart, times rows of columns of `count` rows."""
  _clear(block)
  for j in range(panels):
    rows_of_panel = columns[j * COLUMNS * COLUMNS : min((j + 1) * COLUMNS, count) * COLUMNS]
    add_part_product(rows, x[j * stride :], rows_of_panel, block)


@njit(**OPTIONS)
def _add_turned(turned: Any, count: Any, width: Any, start: Any, panel: Any, sums: Any) -> None:
  """Add to the sums, (width COLUMNS,), the transposed rows of `_copy_turned` times a panel, from row `start` on."""
  strips = blocks(width)
  for i in range(strips):
    low, high = i * width // strips, (i + 1) * width // strips
    part = turned[low * count + start * (high - low) : high * count]
    add_product(high - low, part, 0, panel[start * COLUMNS : count * COLUMNS], sums[low * COLUMNS :])


@njit(**SINGLE)
def _put_strip(block: Any, factors: Any, line: Any, x: Any, row: Any, rows: Any, columns: Any) -> None:
  """Write a block, each row times its factor, to columns (first, last + 1) of rows."""
  for r in range(rows):
    source, target = block[r * COLUMNS : (r + 1) * COLUMNS], x[row + r, columns[0] : columns[1]]
    factor = factors[line + r]
    for k in range(target.size):
      target[k] = source[k] * factor


@njit(**OPTIONS)
def _count_panels(call: Any, last: Any) -> Any:
  """Return the number of panels with keys for queries up to `last`."""
  S = call.sizes[3]
  return _wide(min(S, last + 1) if call.flags[0] else S) // COLUMNS


@njit(**SINGLE)
def _mask(call: Any, b: Any, block: Any, rows: Any, query: Any, key: Any) -> None:
  """Mask the scores of a block, whose first query and key are given."""
  S = call.sizes[3]
  if call.flags[0] and key + COLUMNS - 1 > query:
    for r in range(rows):
      row = block[r * COLUMNS : (r + 1) * COLUMNS]
      for k in range(COLUMNS):
        row[k] = row[k] if k <= query + r - key else _MASKED
  if call.flags[1]:
    group = call.key_group[b, key : min(key + COLUMNS, S)]
    for r in range(rows):
      row, own = block[r * COLUMNS : (r + 1) * COLUMNS], call.query_group[b, query + r]
      for k in range(group.size):
        row[k] = row[k] if group[k] == own else _MASKED
  if key + COLUMNS > S:
    for r in range(rows):
      for k in range(S - key, COLUMNS):
        block[r * COLUMNS + k] = _MASKED


@njit(**FAST)
def _mix(x: Any) -> Any:
  """Return the hash of lmx/ops/dropout.py."""
  x = np.uint32(np.uint32(x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D))
  x = np.uint32(np.uint32(x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B))
  return np.uint32(x ^ (x >> np.uint32(16)))


@njit(**SINGLE)
def _mark_dropped(call: Any, block: Any, rows: Any, line: Any, key: Any) -> None:
  """Negate dropped probabilities; `line` is the index of the first score row."""
  least, word, other_word = call.dropout
  for r in range(rows):
    row = block[r * COLUMNS : (r + 1) * COLUMNS]
    start = _mix(np.uint32(np.uint32(line + r) ^ word))
    stride = np.uint32(_mix(np.uint32(start ^ other_word)) | np.uint32(1))
    for k in range(COLUMNS):
      mixed = _mix(np.uint32(start + np.uint32(stride * np.uint32(key + k))))
      row[k] = row[k] if mixed >= least else -row[k]


@njit(**FAST)
def _kept(p: Any, x: Any, keep: Any) -> Any:
  """Return x times `keep`, and 0 where `_mark_dropped` has made p negative; NaN if p is NaN."""
  return x * keep if p > 0 else (np.float32(0) if p <= 0 else p)


@njit(**FAST)
def _power(x: Any) -> Any:
  """Return e^x of x <= 0, and NaN of NaN."""
  least = np.float32(-87)
  return exp(max(x, least)) if x >= least else (np.float32(0) if x < least else x)


@njit(**SINGLE)
def _largest(row: Any) -> Any:
  """Return the maximum of COLUMNS values, which are overwritten."""
  size = COLUMNS // 2
  while size > 0:
    for k in range(size):
      row[k] = row[k] if row[k] > row[k + size] else row[k + size]
    size //= 2
  return row[0]


@njit(**SINGLE)
def _total(row: Any) -> Any:
  """Return the sum of COLUMNS values, which are overwritten."""
  size = COLUMNS // 2
  while size > 0:
    for k in range(size):
      row[k] += row[k + size]
    size //= 2
  return row[0]


@njit(**SINGLE)
def _softmax(call: Any, p: Any, lanes: Any, panels: Any, rows: Any, line: Any, stats: Any) -> None:
  """Replace the scores of a strip by e^(score - largest), 0 where dropped.

  Args:
    call: the arguments.
    p: (panels _BLOCK,).
    lanes: (_BLOCK,), memory.
    panels: number of panels.
    rows: rows of the strip.
    line: number of its first row of all scores.
    stats: (2, B H T), of which the largest score and 1 over the sum are set.
  """
  size = rows * COLUMNS
  for k in range(size):
    lanes[k] = p[k]
  for j in range(1, panels):
    block = p[j * _BLOCK : j * _BLOCK + size]
    for k in range(block.size):
      lanes[k] = block[k] if block[k] > lanes[k] else lanes[k]
  for r in range(rows):
    largest = _largest(lanes[r * COLUMNS : (r + 1) * COLUMNS])
    stats[0, line + r] = largest
    for j in range(panels):
      row = p[j * _BLOCK + r * COLUMNS : j * _BLOCK + (r + 1) * COLUMNS]
      for k in range(COLUMNS):
        row[k] = _power(row[k] - largest)
  for k in range(size):
    lanes[k] = p[k]
  for j in range(1, panels):
    block = p[j * _BLOCK : j * _BLOCK + size]
    for k in range(block.size):
      lanes[k] += block[k]
  for r in range(rows):
    stats[1, line + r] = np.float32(1) / _total(lanes[r * COLUMNS : (r + 1) * COLUMNS])
  if call.dropout[0] > 0:
    for j in range(panels):
      block = p[j * _BLOCK : j * _BLOCK + size]
      _mark_dropped(call, block, rows, line, j * COLUMNS)
      for k in range(block.size):
        block[k] = _kept(block[k], block[k], call.factors[1])


@njit(**_INLINE)
def _forward_head(call: Any, head: Any, o: Any, stats: Any, work: Any) -> None:
  """Compute the output of a head of a row, and the statistics of its softmax."""
  _, H, T, S, K, W = call.sizes
  b, h, strips = head // H, head % H, blocks(T)
  keys, work = _cut(work, _wide(S) * K)
  values, work = _cut(work, _wide(W) * S)
  q_strip, work = _cut(work, _wide(K) * ROWS)
  p, work = _cut(work, _wide(S) * ROWS)
  lanes, out = _cut(work, _BLOCK)
  _copy_keys(call.k, b * S, S, h * K, K, keys)
  _copy_columns(call.v, b * S, S, h * W, W, values)
  for i in range(strips):
    first, last = i * T // strips, (i + 1) * T // strips
    rows, panels = last - first, _count_panels(call, last - 1)
    _copy_strip(call.q, b * T + first, rows, h * K, K, call.factors[0], q_strip)
    for j in range(panels):
      block = p[j * _BLOCK : j * _BLOCK + rows * COLUMNS]
      _multiply(rows, q_strip, keys[j * COLUMNS * K : (j + 1) * COLUMNS * K], block)
      _mask(call, b, block, rows, first, j * COLUMNS)
    _softmax(call, p, lanes, panels, rows, head * T + first, stats)
    for low in range(0, W, COLUMNS):
      _sum_panels(rows, p, _BLOCK, panels, values[low * S : (low + COLUMNS) * S], S, out)
      columns = h * W + low, h * W + min(low + COLUMNS, W)
      _put_strip(out, stats[1], head * T + first, o, b * T + first, rows, columns)


@njit(**OPTIONS)
def _cut(work: Any, size: Any) -> Any:
  """Split off the first values of a thread's workspace."""
  return work[:size], work[size:]


@cfunc('int64(int64)', **ENTRY)
def _forward(shared: Any) -> Any:
  """Run one thread's share of `forward`."""
  thread, _, frame = enter(shared)
  call, o, stats = _read(frame), matrix(frame, RESULTS, 0, F32), matrix(frame, RESULTS, 1, F32)
  work, heads = matrix(frame, RESULTS, 2, F32)[thread], call.sizes[0] * call.sizes[1]
  coming = claim(shared, 0)
  while coming < heads:
    head, coming = coming, claim(shared, 0)
    _ask_for_head(call, coming)
    _forward_head(call, head, o, stats, work)
  return 0


@njit(**SINGLE)
def _differentiate(call: Any, p: Any, dp: Any, rows: Any, line: Any, key: Any, stats: Any, lanes: Any) -> None:
  """Replace a score block by probabilities, and add their products with the gradient to `lanes`.

  Args:
    call: the arguments.
    p: scores, then probabilities, negative where dropped.
    dp: gradient of the probabilities after dropout, then before it.
    rows: rows of the block.
    line: number of its first row of all scores.
    key: its first key.
    stats: of `_softmax`.
    lanes: (_BLOCK,).
  """
  for r in range(rows):
    row, largest, factor = p[r * COLUMNS : (r + 1) * COLUMNS], stats[0, line + r], stats[1, line + r]
    for k in range(COLUMNS):
      row[k] = _power(row[k] - largest) * factor
  if call.dropout[0] > 0:
    _mark_dropped(call, p, rows, line, key)
    for k in range(p.size):
      dp[k] = _kept(p[k], dp[k], call.factors[1])
  for k in range(p.size):
    lanes[k] += abs(p[k]) * dp[k]


@njit(**SINGLE)
def _to_scores(call: Any, p: Any, dp: Any, rows: Any, mean: Any) -> None:
  """Replace a block's probability gradient by its score gradient, and drop its probabilities.

  Args:
    call: the arguments.
    p, dp: of `_differentiate`.
    rows: rows of the block.
    mean: its number r COLUMNS is the sum of probability times gradient of row r.
  """
  for r in range(rows):
    row, slope = p[r * COLUMNS : (r + 1) * COLUMNS], dp[r * COLUMNS : (r + 1) * COLUMNS]
    for k in range(COLUMNS):
      slope[k] = abs(row[k]) * (slope[k] - mean[r * COLUMNS]) * call.factors[0]
  if call.dropout[0] > 0:
    for k in range(p.size):
      p[k] = _kept(p[k], p[k], call.factors[1])


@njit(**_INLINE)
def _backward_strip(call: Any, head: Any, place: Any, stats: Any, do: Any, dq: Any, ones: Any, parts: Any) -> None:
  """Compute a strip's query gradient, its probabilities and its score gradient.

  Args:
    call: the arguments.
    head: number of the head.
    place: (first query of the block, first query of the strip, last one + 1).
    stats: of `_softmax`.
    do: gradient of the output.
    dq: gradient of the queries.
    ones: (ROWS,), 1.
    parts: memory; p and dp are (panels, _QUERIES, COLUMNS).
  """
  _, H, T, S, K, W = call.sizes
  b, h, (top, first, last) = head // H, head % H, place
  rows, panels = last - first, _count_panels(call, last - 1)
  _copy_strip(call.q, b * T + first, rows, h * K, K, call.factors[0], parts.q_strip)
  _copy_strip(do, b * T + first, rows, h * W, W, np.float32(1), parts.do_strip)
  _clear(parts.lanes)
  for j in range(panels):
    at = (j * _QUERIES + first - top) * COLUMNS
    p, dp = parts.p[at : at + rows * COLUMNS], parts.dp[at : at + rows * COLUMNS]
    _multiply(rows, parts.q_strip, parts.k_panels[j * COLUMNS * K : (j + 1) * COLUMNS * K], p)
    _multiply(rows, parts.do_strip, parts.v_panels[j * COLUMNS * W : (j + 1) * COLUMNS * W], dp)
    _mask(call, b, p, rows, first, j * COLUMNS)
    _differentiate(call, p, dp, rows, head * T + first, j * COLUMNS, stats, parts.lanes)
  for r in range(rows):
    _total(parts.lanes[r * COLUMNS : (r + 1) * COLUMNS])
  for j in range(panels):
    at = (j * _QUERIES + first - top) * COLUMNS
    _to_scores(call, parts.p[at : at + rows * COLUMNS], parts.dp[at : at + rows * COLUMNS], rows, parts.lanes)
  ds = parts.dp[(first - top) * COLUMNS :]
  for low in range(0, K, COLUMNS):
    _sum_panels(rows, ds, _QUERIES * COLUMNS, panels, parts.k_rows[low * S : (low + COLUMNS) * S], S, parts.out)
    columns = h * K + low, h * K + min(low + COLUMNS, K)
    _put_strip(parts.out, ones, 0, dq, b * T + first, rows, columns)


@njit(**_INLINE)
def _backward_head(call: Any, head: Any, stats: Any, do: Any, gradients: Any, ones: Any, parts: Any) -> None:
  """Compute the gradients of a head of a row."""
  (_, H, T, S, K, W), (dq, dk, dv) = call.sizes, gradients
  b, h, strips = head // H, head % H, blocks(T)
  _copy_keys(call.k, b * S, S, h * K, K, parts.k_panels)
  _copy_keys(call.v, b * S, S, h * W, W, parts.v_panels)
  _copy_columns(call.k, b * S, S, h * K, K, parts.k_rows)
  _clear(parts.dk_sums)
  _clear(parts.dv_sums)
  for begin in range(0, strips, _STRIPS):
    end = min(begin + _STRIPS, strips)
    top, bottom = begin * T // strips, end * T // strips
    _copy_turned(call.q, b * T + top, bottom - top, h * K, K, parts.q_turned)
    _copy_turned(do, b * T + top, bottom - top, h * W, W, parts.do_turned)
    done = 0  # panels whose sums started in an earlier strip
    for i in range(begin, end):
      first, last = i * T // strips, (i + 1) * T // strips
      _backward_strip(call, head, (top, first, last), stats, do, dq, ones, parts)
    for i in range(begin, end):
      first, last = i * T // strips, (i + 1) * T // strips
      panels = _count_panels(call, last - 1)
      for j in range(done, panels):
        at, low, high = j * _QUERIES * COLUMNS, j * COLUMNS, (j + 1) * COLUMNS
        ds, p = parts.dp[at : at + _QUERIES * COLUMNS], parts.p[at : at + _QUERIES * COLUMNS]
        _add_turned(parts.q_turned, bottom - top, K, first - top, ds, parts.dk_sums[low * K : high * K])
        _add_turned(parts.do_turned, bottom - top, W, first - top, p, parts.dv_sums[low * W : high * W])
      done = max(done, panels)
  for low in range(0, S, COLUMNS):
    rows = min(COLUMNS, S - low)
    put_transposed(parts.dk_sums[low * K :], dk, b * S + low, rows, h * K, K)
    put_transposed(parts.dv_sums[low * W :], dv, b * S + low, rows, h * W, W)


@njit(**_INLINE)
def _parts(call: Any, work: Any) -> Any:
  """Partition a thread's workspace."""
  _, _, _, S, K, W = call.sizes
  k_panels, work = _cut(work, _wide(S) * K)
  v_panels, work = _cut(work, _wide(S) * W)
  k_rows, work = _cut(work, _wide(K) * S)
  q_strip, work = _cut(work, _wide(K) * ROWS)
  do_strip, work = _cut(work, _wide(W) * ROWS)
  q_turned, work = _cut(work, K * _QUERIES)
  do_turned, work = _cut(work, W * _QUERIES)
  p, work = _cut(work, _wide(S) * _QUERIES)
  dp, work = _cut(work, _wide(S) * _QUERIES)
  dk_sums, work = _cut(work, _wide(S) * K)
  dv_sums, work = _cut(work, _wide(S) * W)
  lanes, out = _cut(work, _BLOCK)
  strips = q_strip, do_strip, q_turned, do_turned
  return Parts(k_panels, v_panels, k_rows, *strips, p, dp, dk_sums, dv_sums, lanes, out)


@cfunc('int64(int64)', **ENTRY)
def _backward(shared: Any) -> Any:
  """Run one thread's share of `backward`."""
  thread, _, frame = enter(shared)
  call, stats, do = _read(frame), matrix(frame, ARGUMENTS, 7, F32), matrix(frame, ARGUMENTS, 8, F32)
  gradients = matrix(frame, RESULTS, 0, F32), matrix(frame, RESULTS, 1, F32), matrix(frame, RESULTS, 2, F32)
  parts, ones = _parts(call, matrix(frame, RESULTS, 3, F32)[thread]), np.ones(ROWS, np.float32)
  B, H, T, _, _, W = call.sizes
  coming = claim(shared, 0)
  while coming < B * H:
    head, coming = coming, claim(shared, 0)
    _ask_for_head(call, coming)
    if coming < B * H:
      _ask(do, coming // H * T, T, coming % H * W, W)
    _backward_head(call, head, stats, do, gradients, ones, parts)
  return 0


threads.define(FORWARD, _forward)
threads.define(BACKWARD, _backward)


@cfunc('int64(int64)', **ENTRY)
def forward(frame: Any) -> Any:
  """Compute attention.

  Arguments: queries (B, T, H K), keys (B, S, H K), values (B, S, H W), groups of queries (B, T) and of keys (B, S),
  integers (1, 8): number of threads, B, H, `Call.flags` and `Call.dropout`; `Call.factors` (1, 2).
  Results: the output (B, T, H W), the largest score of each query and 1 over its sum (2, B H T), memory (threads,
  `forward_size`).
  """
  if not is_question(frame):
    share(frame, _forward_thread(), matrix(frame, ARGUMENTS, 5, I32)[0, 0], 1)
  return 0


@cfunc('int64(int64)', **ENTRY)
def backward(frame: Any) -> Any:
  """Compute the gradient of attention.

  Arguments: those of `forward`, its second result, the gradient of its first (B, T, H W).
  Results: the gradients of queries, keys and values; memory (threads, `backward_size`).
  """
  if not is_question(frame):
    share(frame, _backward_thread(), matrix(frame, ARGUMENTS, 5, I32)[0, 0], 1)
  return 0
