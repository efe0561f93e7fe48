"""Products of small matrices with one large matrix that is reused, as in a loop over time.

A library's product repacks its matrices at every step of a loop. Here
the large matrix is packed once, into panels of COLUMNS columns, and the small one when it is computed, into blocks of
at most ROWS rows. A block times a panel is summed in the registers of the processor (Goto & van de Geijn 2008, "Anatomy
of High-Performance Matrix Multiplication", sections 4 and 6). Each element is one sum in the order of K, so the result
depends neither on the blocks nor on the threads.

Axes: M rows, K summed, N columns.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from lmx.kernels.native import IS_ARM
from lmx.kernels.native.frame import OPTIONS, once

_FEATURES = llvmlite.binding.get_host_cpu_features()
LANES = 16 if _FEATURES.get('avx512f') else 4 if IS_ARM else 8  # float32 values of a vector
COLUMNS = 2 * LANES
ROWS = 12 if LANES == 16 or IS_ARM else 6  # 2 ROWS sums, a row of a panel and a factor fit in the registers

_FLOAT, _WORD = ir.FloatType(), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)


def _emit(builder: Any, rows: int, is_packed: bool, args: Any, end: Any) -> None:
  """Generate LLVM code of a product for a block of `rows` rows, ending in a jump to `end`."""
  a, b, c, K = args

  def at(base: Any, offset: Any, kind: Any) -> Any:
    return builder.inttoptr(builder.add(base, builder.mul(offset, ir.Constant(_WORD, 4))), kind.as_pointer())

  def load(base: Any, offset: Any, kind: Any) -> Any:
    value = builder.load(at(base, offset, kind))
    value.align = 4
    return value

  kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
  fma = cgutils.get_or_insert_function(builder.module, kind, f'llvm.fma.v{LANES}f32')
  undefined, lanes = ir.Constant(_VECTOR, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
  places = [ir.Constant(_WORD, r * COLUMNS + v) for r in range(rows) for v in (0, LANES)]
  before = [load(c, place, _VECTOR) for place in places]
  entry, loop, done = builder.block, builder.append_basic_block(), builder.append_basic_block()
  builder.branch(loop)
  builder.position_at_end(loop)
  k = builder.phi(_WORD)
  sums = [builder.phi(_VECTOR) for _ in places]
  row = builder.mul(k, ir.Constant(_WORD, COLUMNS))
  halves = [load(b, builder.add(row, ir.Constant(_WORD, v)), _VECTOR) for v in (0, LANES)]
  between, column = (1, builder.mul(k, ir.Constant(_WORD, rows))) if is_packed else (COLUMNS, k)
  after = []
  for r in range(rows):
    factor = load(a, builder.add(column, ir.Constant(_WORD, r * between)), _FLOAT)
    factor = builder.insert_element(undefined, factor, ir.Constant(ir.IntType(32), 0))
    factor = builder.shuffle_vector(factor, undefined, lanes)
    after += [builder.call(fma, [factor, half, sums[2 * r + i]]) for i, half in enumerate(halves)]
  following = builder.add(k, ir.Constant(_WORD, 1))
  for phi, first, later in zip([k, *sums], [ir.Constant(_WORD, 0), *before], [following, *after], strict=True):
    phi.add_incoming(first, entry)
    phi.add_incoming(later, loop)
  builder.cbranch(builder.icmp_signed('<', following, K), loop, done)
  builder.position_at_end(done)
  for place, value in zip(places, after, strict=True):
    builder.store(value, at(c, place, _VECTOR)).align = 4
  builder.branch(end)


def _product(is_packed: bool) -> Any:
  """Return the Numba function (rows, a, b, c, K): add `rows` rows at address a times the panel at b to what is at c.

  The rows are packed, or rows of a panel.
  """

  @intrinsic
  def multiply(typing: Any, rows: Any, a: Any, b: Any, c: Any, K: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
      end = builder.append_basic_block()
      choice = builder.switch(args[0], end)
      for r in range(1, ROWS + 1):
        block = builder.append_basic_block()
        choice.add_case(ir.Constant(_WORD, r), block)
        builder.position_at_end(block)
        _emit(builder, r, is_packed, args[1:], end)
      builder.position_at_end(end)
      return context.get_dummy_value()

    return types.void(*[types.int64] * 5), build

  return multiply


_packed_product, _part_product = _product(True), _product(False)


@once('lmx_product', 'void(int64, int64, int64, int64, int64)')
def _multiply(rows: Any, a: Any, b: Any, c: Any, K: Any) -> None:
  _packed_product(rows, a, b, c, K)


@once('lmx_part_product', 'void(int64, int64, int64, int64, int64)')
def _multiply_part(rows: Any, a: Any, b: Any, c: Any, K: Any) -> None:
  _part_product(rows, a, b, c, K)


@njit(**OPTIONS)
def add_product(rows: Any, packed_M: Any, start: Any, panel: Any, c: Any) -> None:
  """Add a block of rows times a panel to c.

  Args:
    rows: number of rows, 1 to ROWS.
    packed_M: (K M,), packed rows.
    start: number of the block's first row.
    panel: (K COLUMNS,), K > 0.
    c: (at least rows, COLUMNS).
  """
  K = panel.size // COLUMNS
  _multiply(rows, packed_M.ctypes.data + 4 * start * K, panel.ctypes.data, c.ctypes.data, K)


@njit(**OPTIONS)
def add_part_product(rows: Any, part: Any, panel: Any, c: Any) -> None:
  """Add the first columns of rows of a panel, (at least rows, COLUMNS), times another panel to c, as `add_product`.

  Args:
    rows: number of rows, 1 to ROWS.
    part: the rows.
    panel: (K COLUMNS,), K from 1 to COLUMNS.
    c: (at least rows, COLUMNS).
  """
  _multiply_part(rows, part.ctypes.data, panel.ctypes.data, c.ctypes.data, panel.size // COLUMNS)


@njit(**OPTIONS)
def blocks(M: Any) -> Any:
  """Return the number of blocks of M rows; block i begins at row i M // blocks."""
  return (M + ROWS - 1) // ROWS


@njit(**OPTIONS)
def pack_rows(part: Any, rows: Any, columns: Any, packed: Any) -> None:
  """Copy some columns of a row block, (at least rows, COLUMNS), to their position in packed rows."""
  for j in range(columns):
    column = packed[j * rows : j * rows + rows]
    for r in range(rows):
      column[r] = part[r * COLUMNS + j]


@njit(**OPTIONS)
def pack_panel(w_KN: Any, first: Any, last: Any, panel: Any) -> None:
  """Copy columns `first` to `last` - 1 to a panel; fill the rest with zeros."""
  for k in range(w_KN.shape[0]):
    row, source = panel[k * COLUMNS : (k + 1) * COLUMNS], w_KN[k, first:last]
    for j in range(source.size):
      row[j] = source[j]
    for j in range(source.size, COLUMNS):
      row[j] = 0


@intrinsic
def _transposition(typing: Any, source: Any, rows: Any, target: Any, columns: Any) -> Any:
  """Transpose LANES x LANES values from address `source` to `target`, with the given row strides."""

  def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    def place(base: Any, stride: Any, row: int) -> Any:
      numbers = builder.mul(stride, ir.Constant(_WORD, 4 * row))
      return builder.inttoptr(builder.add(base, numbers), _VECTOR.as_pointer())

    vectors = []
    for i in range(LANES):
      vectors.append(builder.load(place(args[0], args[1], i)))
      vectors[-1].align = 4
    span = 1
    while span < LANES:  # exchange the off-diagonal squares of `span` values of each pair of rows
      upper = [e if not e & span else LANES + e - span for e in range(LANES)]
      lower = [e + span if not e & span else LANES + e for e in range(LANES)]
      masks = [ir.Constant(ir.VectorType(ir.IntType(32), LANES), mask) for mask in (upper, lower)]
      for i in (i for i in range(LANES) if not i & span):
        pair = vectors[i], vectors[i + span]
        vectors[i], vectors[i + span] = (builder.shuffle_vector(*pair, mask) for mask in masks)
      span *= 2
    for i, vector in enumerate(vectors):
      builder.store(vector, place(args[2], args[3], i)).align = 4
    return context.get_dummy_value()

  return types.void(*[types.int64] * 4), build


@once('lmx_transpose', 'void(int64, int64, int64, int64)')
def _transpose(source: Any, rows: Any, target: Any, columns: Any) -> None:
  _transposition(source, rows, target, columns)


@njit(**OPTIONS)
def pack_transposed(x: Any, row: Any, rows: Any, first: Any, width: Any, panel: Any) -> None:
  """Copy part of a matrix, transposed, to a panel; fill the rest with zeros.

  Args:
    x: the matrix.
    row: its first row of the part.
    rows: number of rows, at most COLUMNS.
    first: its first column of the part.
    width: number of columns.
    panel: (width COLUMNS,).
  """
  squares = rows // LANES * LANES
  for k in range(0, width - LANES + 1, LANES):
    for j in range(0, squares, LANES):
      source = x.ctypes.data + 4 * ((row + j) * x.shape[1] + first + k)
      _transpose(source, x.shape[1], panel.ctypes.data + 4 * (k * COLUMNS + j), COLUMNS)
  for k in range(width):
    for j in range(squares if k < width // LANES * LANES else 0, rows):
      panel[k * COLUMNS + j] = x[row + j, first + k]
    for j in range(rows, COLUMNS):
      panel[k * COLUMNS + j] = 0


@njit(**OPTIONS)
def put_transposed(panel: Any, x: Any, row: Any, rows: Any, first: Any, width: Any) -> None:
  """Copy a panel, transposed, to a part of a matrix; arguments as in `pack_transposed`."""
  squares = rows // LANES * LANES
  for j in range(0, squares, LANES):
    for k in range(0, width - LANES + 1, LANES):
      target = x.ctypes.data + 4 * ((row + j) * x.shape[1] + first + k)
      _transpose(panel.ctypes.data + 4 * (k * COLUMNS + j), COLUMNS, target, x.shape[1])
  for j in range(rows):
    for k in range(width // LANES * LANES if j < squares else 0, width):
      x[row + j, first + k] = panel[k * COLUMNS + j]
