"""Recurrent layers over an explicit carry: simple RNN, GRU and LSTM.

With x the input, h the output, W the input weights, U the recurrent ones and (.) the elementwise product:

rnn, rnn_relu, rnn_sigmoid (Elman 1990): h' = tanh(W x + U h + b), or max(0, .), or s(.) (Mikolov et al. 2010).
gru (Cho et al. 2014, arXiv 1406.1078): r = s(W_r x + U_r h + b_r), z = s(W_z x + U_z h + b_z),
  n = tanh(W_n x + b_n + r (.) (U_n h + c_n)), h' = (1 - z) (.) n + z (.) h.
lstm (Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000, as in Zaremba et al. 2014, arXiv
  1409.2329, section 3.1): i, f, o = s(.), g = tanh(.), c' = f (.) c + i (.) g, h' = o (.) tanh(c').

Deviations: the GRU applies r after the recurrent product (equation 8 of the paper applies it before) and lets z keep
the old h, the form of cuDNN and PyTorch. Gates lie side by side in PyTorch's order: r z n; i f g o.

The product W x is taken for all steps at once, before the loop. Two derivatives of the loop: `scan` lets JAX
differentiate `lax.scan`, which adds up the gradient of U at every step; `custom` carries only dh (and dc) through
the backward loop, keeps the gradients of the gates and takes dU = h^T dgates for all steps in one product after it.

A third, `cudnn`, is NVIDIA's kernel for a whole layer of the LSTM (jax.experimental.rnn): float32, one GPU.

Axes: T time leads, because the loop runs over it; E width of the input, G all gates (1, 3 or 4 times D).
Gates and carry are float32 whatever the compute type is; only the products are taken in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import rnn

from lmx.errors import InputError, nearest
from lmx.types import Array, Params

BACKENDS = ('auto', 'scan', 'custom', 'cudnn')
Carry = tuple[Array, ...]  # (h_BD,), or (h_BD, c_BD) of the LSTM; float32


class Cell(NamedTuple):
  """One step of a recurrent layer and its derivative.

  Attributes:
    gates: G / D.
    carries: number of arrays in the carry, the output h first.
    forward: (x_BG, r_BG, carry) -> (carry, gates_BG, kept), with x = W x and r = U h + b. The activated gates and
      `kept`, a tuple of (B, D), are all that the derivative needs.
    backward: (gates_BG, kept, h_BD before, gradient of the carry) -> (dx_BG, dr_BG, gradient of the carry before,
      without what flows through U). Where dr equals dx the same object is returned twice.
    adds: x and r are only used as x + r, so that two biases are one.
  """

  gates: int
  carries: int
  forward: Callable[..., Any]
  backward: Callable[..., Any]
  adds: bool = True


def _rnn_forward(activate, x_BG, r_BG, carry):
  del carry
  h_BD = activate(x_BG + r_BG)
  return (h_BD,), h_BD, ()


def _tanh_backward(gates_BG, kept, before_BD, dcarry):
  del kept, before_BD
  dx_BG = dcarry[0] * (1.0 - gates_BG * gates_BG)
  return dx_BG, dx_BG, (jnp.zeros_like(gates_BG),)


def _relu_backward(gates_BG, kept, before_BD, dcarry):
  del kept, before_BD
  dx_BG = jnp.where(gates_BG > 0, dcarry[0], 0.0)
  return dx_BG, dx_BG, (jnp.zeros_like(gates_BG),)


def _sigmoid_backward(gates_BG, kept, before_BD, dcarry):
  del kept, before_BD
  dx_BG = dcarry[0] * gates_BG * (1.0 - gates_BG)
  return dx_BG, dx_BG, (jnp.zeros_like(gates_BG),)


def _gru_forward(x_BG, r_BG, carry):
  (h_BD,) = carry
  xr, xz, xn = jnp.split(x_BG, 3, axis=-1)
  rr, rz, rn = jnp.split(r_BG, 3, axis=-1)
  r, z = jax.nn.sigmoid(xr + rr), jax.nn.sigmoid(xz + rz)
  n = jnp.tanh(xn + r * rn)
  return (n + z * (h_BD - n),), jnp.concatenate([r, z, n], -1), (rn,)


def _gru_backward(gates_BG, kept, before_BD, dcarry):
  (r, z, n), (rn,), (dh,) = jnp.split(gates_BG, 3, axis=-1), kept, dcarry
  dn = dh * (1.0 - z) * (1.0 - n * n)
  dr = dn * rn * r * (1.0 - r)
  dz = dh * (before_BD - n) * z * (1.0 - z)
  return jnp.concatenate([dr, dz, dn], -1), jnp.concatenate([dr, dz, dn * r], -1), (dh * z,)


def _lstm_forward(x_BG, r_BG, carry):
  _, c_BD = carry
  i, f, g, o = jnp.split(x_BG + r_BG, 4, axis=-1)
  i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
  new_BD = f * c_BD + i * g
  return (o * jnp.tanh(new_BD), new_BD), jnp.concatenate([i, f, g, o], -1), (c_BD,)


def _lstm_backward(gates_BG, kept, before_BD, dcarry):
  del before_BD
  (i, f, g, o), (c,), (dh, dc) = jnp.split(gates_BG, 4, axis=-1), kept, dcarry
  tanh_c = jnp.tanh(f * c + i * g)
  dc = dc + dh * o * (1.0 - tanh_c * tanh_c)
  di, df, dg = dc * g * i * (1.0 - i), dc * c * f * (1.0 - f), dc * i * (1.0 - g * g)
  dx_BG = jnp.concatenate([di, df, dg, dh * tanh_c * o * (1.0 - o)], -1)
  return dx_BG, dx_BG, (jnp.zeros_like(dh), dc * f)


CELLS = {
  'rnn': Cell(1, 1, functools.partial(_rnn_forward, jnp.tanh), _tanh_backward),
  'rnn_relu': Cell(1, 1, functools.partial(_rnn_forward, jax.nn.relu), _relu_backward),
  'rnn_sigmoid': Cell(1, 1, functools.partial(_rnn_forward, jax.nn.sigmoid), _sigmoid_backward),
  'gru': Cell(3, 1, _gru_forward, _gru_backward, adds=False),
  'lstm': Cell(4, 2, _lstm_forward, _lstm_backward),
}


def get(name: str) -> Cell:
  """The cell `name`; InputError with the nearest name if there is none."""
  if name not in CELLS:
    raise InputError(f'unknown recurrent cell "{name}"{nearest(name, CELLS)}')
  return CELLS[name]


def init(
  cell: str, key: Array, width_in: int, width: int, *, scale: float, bias: str = 'single', forget_bias: float = 0.0
) -> Params:
  """Parameters of one layer, uniform in +-scale (biases too).

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
  """The carry before the first step: zeros, each (B, D)."""
  return tuple(jnp.zeros((batch_size, width), jnp.float32) for _ in range(get(cell).carries))


def _dot(a, b):
  return jnp.matmul(a, b, preferred_element_type=jnp.float32)


def _keep(valid_B, new, old):
  """`new` in the rows that are valid, `old` in the others."""
  if valid_B is None:
    return new
  return jax.tree.map(lambda n, o: jnp.where(valid_B[:, None], n, o), new, old)


class _Weights(NamedTuple):
  """Parameters of a layer as the loop reads them: b is added to W x, c (None: zero) to U h."""

  w_EG: Array
  u_DG: Array
  b_G: Array
  c_G: Array | None


def _step(cell, weights, carry, x_BG, valid_B):
  """One step, in float32: (carry, gates_BG, kept)."""
  r_BG = _dot(carry[0].astype(x_BG.dtype), weights.u_DG.astype(x_BG.dtype))
  r_BG = r_BG if weights.c_G is None else r_BG + weights.c_G[None]
  # Adding b here instead of to all of W x saves writing that once more.
  new, gates_BG, kept = CELLS[cell].forward(x_BG.astype(jnp.float32) + weights.b_G[None], r_BG, carry)
  return _keep(valid_B, new, carry), gates_BG, kept


def _scan(cell, weights, x_TBE, carry, valid_TB):
  """The layer as a scan: (h_TBD float32, carry)."""

  def step(carry, inputs):
    carry, _, _ = _step(cell, weights, carry, *inputs)
    return carry, carry[0]

  x_TBG = _dot(x_TBE, weights.w_EG.astype(x_TBE.dtype)).astype(x_TBE.dtype)
  carry, h_TBD = lax.scan(step, carry, (x_TBG, valid_TB))
  return h_TBD, carry


def _at(tree, t):
  return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, t, keepdims=False), tree)


def _put(tree, values, t):
  return jax.tree.map(lambda x, v: lax.dynamic_update_index_in_dim(x, v.astype(x.dtype), t, 0), tree, values)


_custom = jax.custom_vjp(_scan, nondiff_argnums=(0,))


def _forward(cell, weights, x_TBE, carry, valid_TB):
  """The loop that keeps what the derivative needs. The gates replace W x in its own buffer."""
  T, B, _ = x_TBE.shape
  x_TBG = _dot(x_TBE, weights.w_EG.astype(x_TBE.dtype)).astype(x_TBE.dtype)
  h_TBD = jnp.zeros((T + 1, *carry[0].shape), jnp.float32).at[0].set(carry[0])
  _, _, kept = jax.eval_shape(functools.partial(_step, cell), weights, carry, x_TBG[0], None)
  kept_TBD = jax.tree.map(lambda k: jnp.zeros((T, *k.shape), k.dtype), kept)

  def body(t, loop):
    carry, x_TBG, h_TBD, kept_TBD = loop
    carry, gates_BG, kept = _step(cell, weights, carry, *_at((x_TBG, valid_TB), t))
    return carry, _put(x_TBG, gates_BG, t), _put(h_TBD, carry[0], t + 1), _put(kept_TBD, kept, t)

  carry, gates_TBG, h_TBD, kept_TBD = lax.fori_loop(0, T, body, (carry, x_TBG, h_TBD, kept_TBD))
  return (h_TBD[1:], carry), (weights, x_TBE, valid_TB, gates_TBG, h_TBD, kept_TBD)


def _backward(cell, residuals, gradients):
  """The loop back."""
  weights, x_TBE, valid_TB, gates_TBG, h_TBD, kept_TBD = residuals
  dh_TBD, dcarry = gradients
  dtype = x_TBE.dtype
  u_GD = weights.u_DG.astype(dtype).T
  adds = CELLS[cell].adds

  def step(dcarry, inputs):
    gates_BG, kept, before_BD, dh_BD, valid_B = inputs
    dcarry = (dcarry[0] + dh_BD, *dcarry[1:])
    dx_BG, dr_BG, dbefore = CELLS[cell].backward(gates_BG.astype(jnp.float32), kept, before_BD, dcarry)
    if valid_B is not None:
      dx_BG, dr_BG = _keep(valid_B, (dx_BG, dr_BG), (jnp.zeros_like(dx_BG),) * 2)
      dbefore = _keep(valid_B, dbefore, dcarry)
    dx_BG, dr_BG = dx_BG.astype(dtype), dr_BG.astype(dtype)
    return (dbefore[0] + _dot(dr_BG, u_GD), *dbefore[1:]), (dx_BG, None if adds else dr_BG)

  inputs = (gates_TBG, kept_TBD, h_TBD[:-1], dh_TBD, valid_TB)
  dcarry, (dx_TBG, dr_TBG) = lax.scan(step, dcarry, inputs, reverse=True)
  dr_TBG = dx_TBG if adds else dr_TBG

  def outer(a_TBX, b_TBY):
    return lax.dot_general(a_TBX.astype(dtype), b_TBY, (((0, 1), (0, 1)), ((), ())), preferred_element_type=jnp.float32)

  dx_TBE = _dot(dx_TBG, weights.w_EG.astype(dtype).T).astype(dtype)
  dweights = _Weights(
    w_EG=outer(x_TBE, dx_TBG),
    u_DG=outer(h_TBD[:-1], dr_TBG),
    b_G=jnp.sum(dx_TBG, axis=(0, 1), dtype=jnp.float32),
    c_G=None if weights.c_G is None else jnp.sum(dr_TBG, axis=(0, 1), dtype=jnp.float32),
  )
  return dweights, dx_TBE, dcarry, None


_custom.defvjp(_forward, _backward)


def cudnn_weights(weights: _Weights) -> Array:
  """The parameters as cuDNN packs those of one layer: W_ih, W_hh (outputs by inputs, gates i f g o), b_ih, b_hh."""
  c_G = jnp.zeros_like(weights.b_G) if weights.c_G is None else weights.c_G
  return jnp.concatenate([jnp.ravel(weights.w_EG.T), jnp.ravel(weights.u_DG.T), weights.b_G, c_G])


def _cudnn(cell, weights, x_TBE, carry, valid_TB):
  """The layer by cuDNN: (h_TBD float32, carry). Padding must be on the right. TF32 as jax's matmul precision says."""
  del cell
  T, B, E = x_TBE.shape
  h_BD, c_BD = carry
  count_B = jnp.full(B, T, jnp.int32) if valid_TB is None else jnp.sum(valid_TB, axis=0, dtype=jnp.int32)
  # Every row is given a step at least, whose result is not used where there is none.
  y_BTD, h_1BD, c_1BD = rnn.lstm(
    x_TBE.swapaxes(0, 1),
    h_BD[None],
    c_BD[None],
    cudnn_weights(weights),
    jnp.maximum(count_B, 1),
    E,
    h_BD.shape[-1],
    1,
    0.0,
    False,
    None,
  )
  after = _keep(count_B > 0, (h_1BD[0], c_1BD[0]), carry)
  h_TBD = y_BTD.swapaxes(0, 1)
  return (h_TBD if valid_TB is None else jnp.where(valid_TB[..., None], h_TBD, after[0][None])), after


def choose(backend: str, cell: str, dtype: str) -> str:
  """'scan', 'custom' or 'cudnn' for 'auto', else the backend asked for; InputError if cuDNN cannot do it.

  'auto' takes cuDNN for a float32 LSTM where one NVIDIA GPU is all there is: a program over several devices would
  gather all rows for the kernel.
  """
  fits = cell == 'lstm' and dtype == 'float32'
  if backend == 'cudnn' and not fits:
    raise InputError(f'backend "cudnn" is for float32 LSTMs; this is "{cell}" in {dtype}')
  if backend == 'cudnn' and not is_nvidia():
    raise InputError(
      f'model.backend: got "cudnn" on a {jax.default_backend()}; expected an NVIDIA GPU; set model.backend=auto'
    )
  if backend != 'auto':
    return backend
  return 'cudnn' if fits and is_nvidia() and jax.device_count() == 1 else 'custom'


def is_nvidia() -> bool:
  """Return True if the default device is an NVIDIA GPU."""
  return jax.default_backend() == 'gpu' and 'NVIDIA' in jax.devices()[0].device_kind


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
  """Runs one layer over time.

  Args:
    cell: name in CELLS.
    params: of `init`.
    x_TBE: inputs, time first.
    carry: of `init_carry`, or what an earlier call returned.
    valid_TB: bool; an invalid step leaves the carry as it is and puts out h again. None: all are valid.
    dtype: type of the products.
    backend: 'scan', 'custom' or 'cudnn' (both without forward-mode derivative), or 'auto', see `choose`.

  Returns:
    (h_TBD in `dtype`, carry after the last step in float32).
  """
  b_G, c_G = params['bias'], params.get('recurrent_bias')
  if c_G is not None and get(cell).adds:
    b_G, c_G = b_G + c_G, None
  weights = _Weights(params['input'], params['recurrent'], b_G, c_G)
  loops: dict[str, Callable[..., Any]] = {'scan': _scan, 'custom': _custom, 'cudnn': _cudnn}
  run = loops[choose(backend, cell, dtype)]
  h_TBD, carry = run(cell, weights, x_TBE.astype(dtype), carry, valid_TB)
  return h_TBD.astype(dtype), carry
