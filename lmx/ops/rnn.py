"""Loops over time of recurrent cells with an explicit carry: simple RNN, GRU and LSTM.

With x the input, h the output, W the input weights, U the recurrent ones and (.) the elementwise product:

rnn, rnn_relu, rnn_sigmoid (Elman 1990): h' = tanh(W x + U h + b), or max(0, .), or s(.) (Mikolov et al. 2010).
gru (Cho et al. 2014, arXiv 1406.1078): r = s(W_r x + U_r h + b_r), z = s(W_z x + U_z h + b_z),
  n = tanh(W_n x + b_n + r (.) (U_n h + c_n)), h' = (1 - z) (.) n + z (.) h.
lstm (Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000, as in Zaremba et al. 2014, arXiv
  1409.2329, section 3.1): i, f, o = s(.), g = tanh(.), c' = f (.) c + i (.) g, h' = o (.) tanh(c').

Deviations: the GRU applies r after the recurrent product (equation 8 of the paper applies it before), and z weights the
old h; this is the form of cuDNN and PyTorch. Gates are concatenated in PyTorch's order: r z n; i f g o.

Axes: T time is the leading axis, because the loop runs over it; E width of the input, D of the state, G all gates (1, 3
or 4 times D). Gates and carry are float32 in every compute type; only the products are computed in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lmx.errors import InputError, check_choice
from lmx.ops.operation import Operation
from lmx.placement import constrain
from lmx.types import Array

BACKENDS = ('auto', 'scan', 'custom', 'cudnn', 'numba', 'xla')  # implementations of `loop`: lmx/kernels/rnn.py
Carry = tuple[Array, ...]  # (h_BD,), or (h_BD, c_BD) of the LSTM; float32


class Weights(NamedTuple):
  """Parameters of a layer as the loop uses them: b is added to W x, c (None: zero) to U h."""

  w_EG: Array
  u_DG: Array
  b_G: Array
  c_G: Array | None


def dot(a: Array, b: Array) -> Array:
  """Return a b, accumulated in float32."""
  return jnp.matmul(a, b, preferred_element_type=jnp.float32)


def where_valid(valid_B: Array | None, new: Any, old: Any) -> Any:
  """Return `new` in valid rows and `old` in the others."""
  if valid_B is None:
    return new
  return jax.tree.map(lambda n, o: jnp.where(valid_B.reshape((-1,) + (1,) * (n.ndim - 1)), n, o), new, old)


def _elman(activate: Callable[[Array], Array], x_BG: Array, r_BG: Array, carry: Carry) -> tuple[Carry, Array]:
  del carry
  h_BD = activate(x_BG + r_BG)
  return (h_BD,), h_BD


def _gru(x_BG: Array, r_BG: Array, carry: Carry) -> tuple[Carry, Array]:
  (h_BD,) = carry
  xr, xz, xn = jnp.split(x_BG, 3, axis=-1)
  rr, rz, rn = jnp.split(r_BG, 3, axis=-1)
  r, z = jax.nn.sigmoid(xr + rr), jax.nn.sigmoid(xz + rz)
  n = jnp.tanh(xn + r * rn)
  return (n + z * (h_BD - n),), jnp.concatenate([r, z, n], -1)


def _lstm(x_BG: Array, r_BG: Array, carry: Carry) -> tuple[Carry, Array]:
  _, c_BD = carry
  i, f, g, o = jnp.split(x_BG + r_BG, 4, axis=-1)
  i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
  c_BD = f * c_BD + i * g
  return (o * jnp.tanh(c_BD), c_BD), jnp.concatenate([i, f, g, o], -1)


class Cell(NamedTuple):
  """A recurrent cell.

  Attributes:
    gates: G / D.
    carries: number of arrays in the carry, the output h first.
    forward: (x_BG, r_BG, carry) -> (carry, activated gates_BG), with x = W x + b and r = U h + c.
    adds: x and r enter only as x + r, so that two biases are equivalent to one.
  """

  gates: int
  carries: int
  forward: Callable[[Array, Array, Carry], tuple[Carry, Array]]
  adds: bool = True


CELLS = {
  'rnn': Cell(1, 1, functools.partial(_elman, jnp.tanh)),
  'rnn_relu': Cell(1, 1, functools.partial(_elman, jax.nn.relu)),
  'rnn_sigmoid': Cell(1, 1, functools.partial(_elman, jax.nn.sigmoid)),
  'gru': Cell(3, 1, _gru, adds=False),
  'lstm': Cell(4, 2, _lstm),
}


def get(name: str) -> Cell:
  """Return the cell `name`; raise InputError with the nearest name if there is none."""
  check_choice('model.cell', name, CELLS)
  return CELLS[name]


def check_backend(backend: str, cell: str) -> None:
  """Raise InputError if there is no such backend of `loop`, or it computes only the LSTM and the cell is another."""
  check_choice('model.backend', backend, BACKENDS)
  if backend in ('cudnn', 'numba') and cell != 'lstm':
    raise InputError(f'model.backend: got "{backend}" for "{cell}"; expected the cell "lstm"; set model.backend=auto')


def step(cell: str, weights: Weights, carry: Carry, x_BG: Array, valid_B: Array | None) -> tuple[Carry, Array, Array]:
  """Run one step given W x, in float32: (carry, activated gates_BG, U h + c)."""
  r_BG = dot(carry[0].astype(x_BG.dtype), weights.u_DG.astype(x_BG.dtype))
  if weights.c_G is not None:
    r_BG = r_BG + weights.c_G[None]
  # Adding b here instead of to all of W x saves one write of that array.
  new, gates_BG = CELLS[cell].forward(x_BG.astype(jnp.float32) + weights.b_G[None], r_BG, carry)
  return where_valid(valid_B, new, carry), gates_BG, r_BG


@Operation
def loop(
  cell: str, weights: Weights, x_TBE: Array, carry: Carry, valid_TB: Array | None, backend: str = 'auto'
) -> tuple[Array, Carry]:
  """Run a cell over time: (h_TBD float32, carry). The product W x is computed for all steps at once.

  Args:
    cell: name in CELLS.
    weights: parameters.
    x_TBE: inputs, in the type of the products.
    carry: before the first step.
    valid_TB: bool; an invalid step leaves the carry unchanged and outputs h again. None: all are valid.
    backend: one of BACKENDS.
  """
  del backend

  def body(carry: Carry, inputs: tuple[Array, Array | None]) -> tuple[Carry, Array]:
    carry, _, _ = step(cell, weights, carry, *inputs)
    return carry, carry[0]

  carry, h_TBD = lax.scan(body, carry, (input_product(weights, x_TBE), valid_TB))
  return h_TBD, carry


def input_product(weights: Weights, x_TBE: Array) -> Array:
  """Return W x of all steps, (T, B, G) in the type of x."""
  return constrain(dot(x_TBE, weights.w_EG.astype(x_TBE.dtype)).astype(x_TBE.dtype), 'TBG')
