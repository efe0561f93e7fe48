"""Products of small matrices with a large one that is used again and again, such as those of a loop over time.

A library's product first copies its matrices to the order in which it reads them, at each step of a loop again. Here
the large matrix is packed once, into panels of COLUMNS columns, and the small one where it is computed, into blocks of
at most ROWS rows. A block times a panel is summed in the registers of the processor (Goto & van de Geijn 2008, "Anatomy
of High-Performance Matrix Multiplication", sections 4 and 6). Each element is one sum in the order of K, so that the
result does not depend on the blocks, nor on the threads that share them.

Axes: M rows, K summed, N columns.
"""

from __future__ import annotations

import platform
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from lmx.kernels.native.frame import OPTIONS

_FEATURES = llvmlite.binding.get_host_cpu_features()
_IS_ARM = platform.machine().lower() in ('arm64', 'aarch64')
LANES = 16 if _FEATURES.get('avx512f') else 4 if _IS_ARM else 8  # float32 numbers of a vector
COLUMNS = 2 * LANES
ROWS = 12 if LANES == 16 or _IS_ARM else 6  # 2 ROWS sums, a row of a panel and a factor fit in the registers


def is_supported() -> bool:
  """Return True if the processor multiplies and adds in one instruction, which the sums here need."""
  return _IS_ARM or bool(_FEATURES.get('fma') and _FEATURES.get('avx2'))


_FLOAT, _WORD = ir.FloatType(), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)


def _emit(builder: Any, rows: int, args: Any, end: Any) -> None:
  """Write the code of `_multiply` for a block of `rows` rows; then go to `end`."""
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
  column = builder.mul(k, ir.Constant(_WORD, rows))
  after = []
  for r in range(rows):
    factor = load(a, builder.add(column, ir.Constant(_WORD, r)), _FLOAT)
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


@intrinsic
def _multiply(typing: Any, rows: Any, a: Any, b: Any, c: Any, K: Any) -> Any:
  """Add `rows` packed rows at address a times the panel at b to what is at c."""

  def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    end = builder.append_basic_block()
    choice = builder.switch(args[0], end)
    for r in range(1, ROWS + 1):
      block = builder.append_basic_block()
      choice.add_case(ir.Constant(_WORD, r), block)
      builder.position_at_end(block)
      _emit(builder, r, args[1:], end)
    builder.position_at_end(end)
    return context.get_dummy_value()

  return types.void(*[types.int64] * 5), build


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
def blocks(M: Any) -> Any:
  """Return the number of blocks of M rows; block i begins at row i M // blocks."""
  return (M + ROWS - 1) // ROWS


@njit(**OPTIONS)
def pack_rows(part: Any, rows: Any, columns: Any, packed: Any) -> None:
  """Copy some columns of a block of rows, (at least rows, COLUMNS), to their place in packed rows."""
  for j in range(columns):
    column = packed[j * rows : j * rows + rows]
    for r in range(rows):
      column[r] = part[r * COLUMNS + j]


@njit(**OPTIONS)
def pack_panel(w_KN: Any, first: Any, last: Any, panel: Any) -> None:
  """Copy columns `first` to `last` - 1 to a panel, and zeros to the rest of it."""
  for k in range(w_KN.shape[0]):
    row, source = panel[k * COLUMNS : (k + 1) * COLUMNS], w_KN[k, first:last]
    for j in range(source.size):
      row[j] = source[j]
    for j in range(source.size, COLUMNS):
      row[j] = 0


@njit(**OPTIONS)
def pack_transposed_panel(w_NK: Any, first: Any, last: Any, panel: Any) -> None:
  """Copy rows `first` to `last` - 1 of a transposed matrix to a panel, and zeros to the rest of it."""
  K = w_NK.shape[1]
  for low in range(0, K, COLUMNS):
    high = min(low + COLUMNS, K)
    for j in range(last - first):
      for k in range(low, high):
        panel[k * COLUMNS + j] = w_NK[first + j, k]
    for k in range(low, high):
      for j in range(last - first, COLUMNS):
        panel[k * COLUMNS + j] = 0
