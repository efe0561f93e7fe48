"""Recurrent layers over an explicit carry: simple RNN, GRU and LSTM.

With x the input, h the output, W the input weights, U the recurrent ones and (.) the elementwise product:

rnn, rnn_relu, rnn_sigmoid (Elman 1990): h' = tanh(W x + U h + b), or max(0, .), or s(.) (Mikolov et al. 2010).
gru (Cho et al. 2014, arXiv 1406.1078): r = s(W_r x + U_r h + b_r), z = s(W_z x + U_z h + b_z),
  n = tanh(W_n x + b_n + r (.) (U_n h + c_n)), h' = (1 - z) (.) n + z (.) h.
lstm (Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000, as in Zaremba et al. 2014, arXiv
  1409.2329, section 3.1): i, f, o = s(.), g = tanh(.), c' = f (.) c + i (.) g, h' = o (.) tanh(c').

Deviations: the GRU applies r after the recurrent product (equation 8 of the paper applies it before), and z weights the
old h; this is the form of cuDNN and PyTorch. Gates are concatenated in PyTorch's order: r z n; i f g o.

`scan` is the reference. Faster loops, and cuDNN's, are in lmx/kernels/recurrent.py and lmx/kernels/lstm_loop.py.

Axes: T time is the leading axis, because the loop runs over it; E width of the input, G all gates (1, 3 or 4 times D).
Gates and carry are float32 in every compute type; only the products are computed in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lmx.errors import InputError, nearest
from lmx.kernels import lstm_loop
from lmx.kernels import recurrent as kernels
from lmx.kernels.recurrent import BACKENDS as BACKENDS
from lmx.kernels.recurrent import Carry, Weights, dot, where_valid
from lmx.kernels.recurrent import settle as settle
from lmx.placement import constrain
from lmx.types import Array, Params


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
  if name not in CELLS:
    raise InputError(f'unknown recurrent cell "{name}"{nearest(name, CELLS)}')
  return CELLS[name]


def init(
  cell: str, key: Array, width_in: int, width: int, *, scale: float, bias: str = 'single', forget_bias: float = 0.0
) -> Params:
  """Initialise the parameters of one layer, uniform in +-scale (biases too).

  Args:
    cell: name in CELLS.
    width_in: E.
    width: D.
    bias: 'single', or 'double' for PyTorch's second, recurrent bias.
    forget_bias: added to the bias of the LSTM's forget gate (Gers et al. 2000; Jozefowicz et al. 2015 use 1).

  Returns:
    {'input': (E, G), 'recurrent': (D, G), 'bias': (G,), and if double 'recurrent_bias': (G,)}.
  """
  G = get(cell).gates * width
  shapes = {'input': (width_in, G), 'recurrent': (width, G), 'bias': (G,)}
  if bias == 'double':
    shapes['recurrent_bias'] = (G,)
  keys = jax.random.split(key, len(shapes))
  params = {
    name: jax.random.uniform(k, shape, jnp.float32, -scale, scale)
    for k, (name, shape) in zip(keys, shapes.items(), strict=True)
  }
  if cell == 'lstm' and forget_bias:
    params['bias'] = params['bias'].at[width : 2 * width].add(forget_bias)
  return params


def init_carry(cell: str, batch_size: int, width: int) -> Carry:
  """Return the carry before the first step: zeros, each (B, D)."""
  return tuple(jnp.zeros((batch_size, width), jnp.float32) for _ in range(get(cell).carries))


def step(cell: str, weights: Weights, carry: Carry, x_BG: Array, valid_B: Array | None) -> tuple[Carry, Array, Array]:
  """Run one step given W x, in float32: (carry, activated gates_BG, U h + c)."""
  r_BG = dot(carry[0].astype(x_BG.dtype), weights.u_DG.astype(x_BG.dtype))
  r_BG = r_BG if weights.c_G is None else r_BG + weights.c_G[None]
  # Adding b here instead of to all of W x saves one write of that array.
  new, gates_BG = CELLS[cell].forward(x_BG.astype(jnp.float32) + weights.b_G[None], r_BG, carry)
  return where_valid(valid_B, new, carry), gates_BG, r_BG


def scan(cell: str, weights: Weights, x_TBE: Array, carry: Carry, valid_TB: Array | None) -> tuple[Array, Carry]:
  """Run the layer: (h_TBD float32, carry). The product W x is computed for all steps at once."""

  def body(carry: Carry, inputs: tuple[Array, Array | None]) -> tuple[Carry, Array]:
    carry, _, _ = step(cell, weights, carry, *inputs)
    return carry, carry[0]

  x_TBG = constrain(dot(x_TBE, weights.w_EG.astype(x_TBE.dtype)).astype(x_TBE.dtype), 'TBG')
  carry, h_TBD = lax.scan(body, carry, (x_TBG, valid_TB))
  return h_TBD, carry


_LOOPS = {'scan': scan, 'custom': kernels.fused(scan, step), 'cudnn': kernels.cudnn, 'numba': lstm_loop.fused(scan)}


def layer(
  cell: str,
  params: Params,
  x_TBE: Array,
  carry: Carry,
  valid_TB: Array | None = None,
  *,
  dtype: str = 'float32',
  backend: str = 'auto',
) -> tuple[Array, Carry]:
  """Run one layer over time.

  Args:
    cell: name in CELLS.
    params: from `init`.
    x_TBE: inputs, time first.
    carry: from `init_carry` or an earlier call.
    valid_TB: bool; an invalid step leaves the carry unchanged and outputs h again. None: all are valid.
    dtype: type of the products.
    backend: one of BACKENDS (`kernels.choose`), of which only 'scan' has a forward-mode derivative.

  Returns:
    (h_TBD in `dtype`, carry after the last step in float32).
  """
  b_G, c_G = params['bias'], params.get('recurrent_bias')
  if c_G is not None and get(cell).adds:
    b_G, c_G = b_G + c_G, None
  weights = Weights(params['input'], params['recurrent'], b_G, c_G)
  run = _LOOPS[kernels.choose(backend, cell, dtype)]
  carry = tuple(constrain(x_BD, 'BD') for x_BD in carry)
  h_TBD, carry = run(cell, weights, constrain(x_TBE.astype(dtype), 'TBE'), carry, valid_TB)
  return constrain(h_TBD.astype(dtype), 'TBD'), carry
