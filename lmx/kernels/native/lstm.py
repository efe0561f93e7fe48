"""The loops of the LSTM over time, forward and backward (the equations are in lmx/ops/rnn.py).

A thread computes its own units of the state: their gates in the forward loop, whose matrix U it packs, and the gradient
of the state in the backward loop, whose matrix is U transposed. The threads meet once a step, when all of the state, or
the gradient of all gates, is known; a step's inputs are kept until the next step is done.

Axes: as in lmx/ops/rnn.py; arrays are matrices whose rows are steps and rows of the batch, (T B, .).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cfunc, njit

from lmx.kernels.native import threads
from lmx.kernels.native.elementary import COMPILED, FAST, sigmoid, tanh
from lmx.kernels.native.frame import ARGUMENTS, F32, I32, OPTIONS, RESULTS, is_question, matrix, prefetch
from lmx.kernels.native.product import COLUMNS, ROWS, add_product, blocks, pack_panel, pack_rows, pack_transposed
from lmx.kernels.native.threads import enter, meet, share

FORWARD, BACKWARD = 'lmx_lstm_forward', 'lmx_lstm_backward'
_forward_thread = threads.named(FORWARD)
_backward_thread = threads.named(BACKWARD)

# Parts of a thread's workspace for some rows and units of the state, (ROWS, COLUMNS) each, side by side.
_BLOCK = ROWS * COLUMNS
_I, _F, _G, _O = (k * _BLOCK for k in range(4))  # the gates: U h + b, then activated, or their gradient
_X = 4 * _BLOCK  # W x of the four gates
_C, _H, _DC, _DH, _DY, _VALID, _END = (k * _BLOCK for k in range(8, 15))  # DY is the gradient of an output


@njit(**OPTIONS)
def _get(x: Any, row: Any, first: Any, last: Any, work: Any, at: Any) -> None:
  """Copy part of a row to the workspace."""
  source, target = x[row, first:last], work[at : at + COLUMNS]
  for j in range(source.size):
    target[j] = source[j]


@njit(**OPTIONS)
def _put(work: Any, at: Any, x: Any, row: Any, first: Any, last: Any) -> None:
  """Copy part of the workspace to a row."""
  source, target = work[at : at + COLUMNS], x[row, first:last]
  for j in range(target.size):
    target[j] = source[j]


@njit(**OPTIONS)
def _part(part: Any, R: Any, B: Any, D: Any) -> Any:
  """Return a part of the state: its first and last unit and its first and last row, the last ones + 1."""
  p, i = part // R, part % R
  return p * COLUMNS, min((p + 1) * COLUMNS, D), i * B // R, (i + 1) * B // R


@njit(**FAST)
def _activate(work: Any, place: Any, is_valid: Any, gates: Any, h: Any, c: Any, B: Any, packed: Any) -> None:
  """Set a block's gates and state after a step.

  Args:
    work: the workspace, at its beginning U h + b of the block, gate by gate.
    place: (first row of the step, first row of the block, its rows, first unit, last unit + 1).
    is_valid: (B,).
    gates: (T B, 4 D), W x, of which the gates take the place.
    h, c: (T B + B, D), of which rows B later are set.
    B: rows of the batch.
    packed: (B D,): h, packed.
  """
  step, low, rows, first, last = place
  D = h.shape[1]
  for r in range(rows):
    for k in range(4):
      _get(gates, step + low + r, k * D + first, k * D + last, work, _X + k * _BLOCK + r * COLUMNS)
    _get(c, step + low + r, first, last, work, _C + r * COLUMNS)
  for j in range(rows * COLUMNS):
    i, f = sigmoid(work[j + _I] + work[j + _X + _I]), sigmoid(work[j + _F] + work[j + _X + _F])
    g, o = tanh(work[j + _G] + work[j + _X + _G]), sigmoid(work[j + _O] + work[j + _X + _O])
    new = f * work[j + _C] + i * g
    work[j + _I], work[j + _F], work[j + _G], work[j + _O] = i, f, g, o
    work[j + _C], work[j + _H] = new, o * tanh(new)
  for r in range(rows):
    at, x = step + low + r, r * COLUMNS
    for k in range(4):
      _put(work, k * _BLOCK + x, gates, at, k * D + first, k * D + last)
    if is_valid[low + r] == 0:
      _get(c, at, first, last, work, _C + x)
      _get(h, at, first, last, work, _H + x)
    _put(work, _C + x, c, at + B, first, last)
    _put(work, _H + x, h, at + B, first, last)
  pack_rows(work[_H:], rows, last - first, packed[low * D + first * rows :])


@cfunc('int64(int64)', **COMPILED)
def _forward(block: Any) -> Any:
  """Run one thread's share of `forward`."""
  thread, count, frame = enter(block)
  u_DG, b = matrix(frame, ARGUMENTS, 1, F32), matrix(frame, ARGUMENTS, 2, F32)
  h_BD, c_BD = matrix(frame, ARGUMENTS, 3, F32), matrix(frame, ARGUMENTS, 4, F32)
  valid_TB = matrix(frame, ARGUMENTS, 5, I32)
  gates, h, c = matrix(frame, RESULTS, 0, F32), matrix(frame, RESULTS, 1, F32), matrix(frame, RESULTS, 2, F32)
  panels, packed = matrix(frame, RESULTS, 3, F32), matrix(frame, RESULTS, 4, F32)
  (T, B), D = valid_TB.shape, h.shape[1]
  P, R = panels.shape[0] // 4, blocks(B)
  begin, end = thread * P * R // count, (thread + 1) * P * R // count
  work = np.zeros(_END, np.float32)
  for p in range(thread * P // count, (thread + 1) * P // count):
    first, last = p * COLUMNS, min((p + 1) * COLUMNS, D)
    for k in range(4):
      pack_panel(u_DG, k * D + first, k * D + last, panels[4 * p + k])
  for part in range(begin, end):
    first, last, low, high = _part(part, R, B, D)
    for r in range(high - low):
      _get(c_BD, low + r, first, last, work, _C + r * COLUMNS)
      _get(h_BD, low + r, first, last, work, _H + r * COLUMNS)
      _put(work, _C + r * COLUMNS, c, low + r, first, last)
      _put(work, _H + r * COLUMNS, h, low + r, first, last)
    pack_rows(work[_H:], high - low, last - first, packed[0, low * D + first * (high - low) :])
  meet(block, count, 0)
  for t in range(T):
    for part in range(begin, end):
      first, last, low, high = _part(part, R, B, D)
      for k in range(4):
        for r in range(high - low):
          prefetch(gates, t * B + low + r, k * D + first, k * D + last)
          _get(b, 0, k * D + first, k * D + last, work, k * _BLOCK + r * COLUMNS)
      for k in range(4):
        add_product(high - low, packed[t % 2], low, panels[4 * (first // COLUMNS) + k], work[k * _BLOCK :])
      _activate(work, (t * B, low, high - low, first, last), valid_TB[t], gates, h, c, B, packed[(t + 1) % 2])
    meet(block, count, t + 1)
  return 0


@njit(**FAST)
def _differentiate(
  work: Any, place: Any, is_valid: Any, gates: Any, c: Any, dh_step: Any, dh_BD: Any, dc_BD: Any, packed: Any
) -> None:
  """Replace a block's gates by their pre-activation gradient, and update the state gradient.

  Args:
    work: the workspace.
    place, is_valid, gates, c: as in `_activate`.
    dh_step: (T B, D): gradient of the outputs.
    dh_BD, dc_BD: (B, D): gradient of the state after the step; then of the state before it, of dh without the part
      through U.
    packed: (B 4 D,): gradient of the gates, packed.
  """
  step, low, rows, first, last = place
  D = dh_BD.shape[1]
  for r in range(rows):
    at, x = step + low + r, r * COLUMNS
    for k in range(4):
      _get(gates, at, k * D + first, k * D + last, work, k * _BLOCK + x)
    _get(c, at, first, last, work, _C + x)
    _get(dh_step, at, first, last, work, _DY + x)
    _get(dh_BD, low + r, first, last, work, _DH + x)
    _get(dc_BD, low + r, first, last, work, _DC + x)
    target = work[_VALID + x : _VALID + x + COLUMNS]
    for j in range(COLUMNS):
      target[j] = is_valid[low + r]
  for j in range(rows * COLUMNS):
    i, f, g, o = work[j + _I], work[j + _F], work[j + _G], work[j + _O]
    before, dh, dc = work[j + _C], work[j + _DH] + work[j + _DY], work[j + _DC]
    is_step, none = work[j + _VALID] != 0, np.float32(0)
    size = tanh(f * before + i * g)
    inner = dc + dh * o * (np.float32(1) - size * size)
    work[j + _I] = inner * g * i * (np.float32(1) - i) if is_step else none
    work[j + _F] = inner * before * f * (np.float32(1) - f) if is_step else none
    work[j + _G] = inner * i * (np.float32(1) - g * g) if is_step else none
    work[j + _O] = dh * size * o * (np.float32(1) - o) if is_step else none
    work[j + _DH] = none if is_step else dh
    work[j + _DC] = inner * f if is_step else dc
  for r in range(rows):
    at, x = step + low + r, r * COLUMNS
    for k in range(4):
      _put(work, k * _BLOCK + x, gates, at, k * D + first, k * D + last)
    _put(work, _DH + x, dh_BD, low + r, first, last)
    _put(work, _DC + x, dc_BD, low + r, first, last)
  for k in range(4):
    pack_rows(work[k * _BLOCK :], rows, last - first, packed[low * 4 * D + (k * D + first) * rows :])


@cfunc('int64(int64)', **COMPILED)
def _backward(block: Any) -> Any:
  """Run one thread's share of `backward`: each turn computes a step's product and the previous step's gates."""
  thread, count, frame = enter(block)
  c, dh_step = matrix(frame, ARGUMENTS, 1, F32), matrix(frame, ARGUMENTS, 2, F32)
  last_dh_BD, last_dc_BD = matrix(frame, ARGUMENTS, 3, F32), matrix(frame, ARGUMENTS, 4, F32)
  u_DG, valid_TB = matrix(frame, ARGUMENTS, 5, F32), matrix(frame, ARGUMENTS, 6, I32)
  gates, dh_BD, dc_BD = matrix(frame, RESULTS, 0, F32), matrix(frame, RESULTS, 1, F32), matrix(frame, RESULTS, 2, F32)
  panels, packed = matrix(frame, RESULTS, 3, F32), matrix(frame, RESULTS, 4, F32)
  (T, B), D, P = valid_TB.shape, dh_BD.shape[1], panels.shape[0]
  R = blocks(B)
  begin, end = thread * P * R // count, (thread + 1) * P * R // count
  work = np.zeros(_END, np.float32)
  for p in range(thread * P // count, (thread + 1) * P // count):
    first, last = p * COLUMNS, min((p + 1) * COLUMNS, D)
    pack_transposed(u_DG, first, last - first, 0, u_DG.shape[1], panels[p])
  for s in range(T + 1):
    t = T - 1 - s  # -1 in the last turn
    for part in range(begin, end):
      first, last, low, high = _part(part, R, B, D)
      rows = high - low
      for r in range(rows):
        if s == 0:
          _get(last_dh_BD, low + r, first, last, work, r * COLUMNS)
          _put(work, r * COLUMNS, dh_BD, low + r, first, last)
          _get(last_dc_BD, low + r, first, last, work, r * COLUMNS)
          _put(work, r * COLUMNS, dc_BD, low + r, first, last)
        else:
          _get(dh_BD, low + r, first, last, work, r * COLUMNS)
        if t >= 0:
          for k in range(4):
            prefetch(gates, t * B + low + r, k * D + first, k * D + last)
          prefetch(c, t * B + low + r, first, last)
          prefetch(dh_step, t * B + low + r, first, last)
      if s > 0:
        add_product(rows, packed[s % 2], low, panels[first // COLUMNS], work)
        for r in range(rows):
          _put(work, r * COLUMNS, dh_BD, low + r, first, last)
      if t >= 0:
        place = (t * B, low, rows, first, last)
        _differentiate(work, place, valid_TB[t], gates, c, dh_step, dh_BD, dc_BD, packed[(s + 1) % 2])
    meet(block, count, s)
  return 0


threads.define(FORWARD, _forward)
threads.define(BACKWARD, _backward)


@cfunc('int64(int64)', **COMPILED)
def forward(frame: Any) -> Any:
  """Run the layer.

  Arguments: W x (T, B, 4 D), U (D, 4 D), b (1, 4 D), h and c before (B, D), valid (T, B), number of threads (1, 1).
  Results: the activated gates in the place of W x; h and c before and after each step (T + 1, B, D); memory for U
  (panels, D COLUMNS) and for h (2, B D).
  """
  if not is_question(frame):
    share(frame, _forward_thread(), matrix(frame, ARGUMENTS, 6, I32)[0, 0], 0)
  return 0


@cfunc('int64(int64)', **COMPILED)
def backward(frame: Any) -> Any:
  """Run the layer backwards.

  Arguments: the activated gates (T, B, 4 D), c before and after each step (T + 1, B, D), the gradients of h (T, B, D)
  and of h and c after the last step (B, D), U (D, 4 D), valid (T, B), number of threads (1, 1).
  Results: the gradient of the gates' sums in the place of the gates; those of h and c before the first step (B, D);
  memory for U (panels, 4 D COLUMNS) and for the gradient of the gates (2, B 4 D).
  """
  if not is_question(frame):
    share(frame, _backward_thread(), matrix(frame, ARGUMENTS, 7, I32)[0, 0], 0)
  return 0
