"""The LSTM's time loop compiled by Numba (lmx/kernels/native/lstm.py), for one CPU and float32.

XLA repacks the recurrent matrix at each step, and the gates are many small operations. Here the loop is one operation,
and the matrix is copied once. Products outside the loop are XLA's, as in lmx/kernels/fused_recurrent.py, which has the
same gradient.

Axes: as in lmx/ops/rnn.py.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from lmx.kernels import native
from lmx.kernels.fused_recurrent import weight_gradients
from lmx.ops import rnn
from lmx.ops.rnn import Carry, Weights, dot
from lmx.types import Array


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def loop(cell: str, weights: Weights, x_TBE: Array, carry: Carry, valid_TB: Array | None) -> tuple[Array, Carry]:
  """Compute `rnn.loop` of the LSTM by Numba where there is a gradient, and elsewhere by the equation.

  Raises:
    InputError: in training, if Numba is missing or the processor lacks its instructions.
  """
  return rnn.loop.equation(cell, weights, x_TBE, carry, valid_TB)


def _operations() -> Any:
  return native.load('lstm', 'model.backend', 'xla')


def _call(name: str, shapes: list[tuple[int, ...]], panels: int, B: int, *inputs: Array) -> Any:
  """Run an operation, whose first result may reuse its first argument's buffer."""
  lstm = _operations()
  threads = native.count_threads(panels * -(-B // lstm.ROWS))
  results = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
  call = jax.ffi.ffi_call(name, results, input_output_aliases={0: 0})
  floats = [x if x.dtype == jnp.int32 else x.astype(jnp.float32) for x in inputs]
  return call(*floats, jnp.full((1, 1), threads, jnp.int32))


def _forward(
  cell: str, weights: Weights, x_TBE: Array, carry: Carry, valid_TB: Array | None
) -> tuple[Any, tuple[Any, ...]]:
  """Run the loop; return the residuals too."""
  del cell
  lstm = _operations()
  T, B, _ = x_TBE.shape
  D, G = weights.u_DG.shape
  panels = -(-D // lstm.COLUMNS)
  valid_TB = jnp.broadcast_to(True if valid_TB is None else valid_TB != 0, (T, B)).astype(jnp.int32)
  carry = tuple(jnp.broadcast_to(x, (B, D)) for x in carry)
  inputs = (dot(x_TBE, weights.w_EG), weights.u_DG, weights.b_G[None], *carry, valid_TB)
  shapes = [(T, B, G), (T + 1, B, D), (T + 1, B, D), (4 * panels, D * lstm.COLUMNS), (2, B * D)]
  gates_TBG, h_TBD, c_TBD, *_ = _call(lstm.FORWARD, shapes, panels, B, *inputs)
  return (h_TBD[1:], (h_TBD[-1], c_TBD[-1])), (weights, x_TBE, valid_TB, gates_TBG, h_TBD, c_TBD)


def _backward(cell: str, residuals: tuple[Any, ...], gradients: Any) -> tuple[Weights, Array, Carry, None]:
  """Run the backward loop."""
  del cell
  lstm = _operations()
  weights, x_TBE, valid_TB, gates_TBG, h_TBD, c_TBD = residuals
  dh_TBD, dcarry = gradients
  T, B, G = gates_TBG.shape
  D = h_TBD.shape[-1]
  panels = -(-D // lstm.COLUMNS)
  inputs = (gates_TBG, c_TBD, dh_TBD, *dcarry, weights.u_DG, valid_TB)
  shapes = [(T, B, G), (B, D), (B, D), (panels, G * lstm.COLUMNS), (2, B * G)]
  dx_TBG, dh_BD, dc_BD, *_ = _call(lstm.BACKWARD, shapes, panels, B, *inputs)
  dweights, dx_TBE = weight_gradients(weights, x_TBE, h_TBD[:-1], dx_TBG, dx_TBG)
  return dweights, dx_TBE, (dh_BD, dc_BD), None


loop.defvjp(_forward, _backward)
