"""Fast loops over time for the recurrent layers of lmx/layers/recurrent.py, and the choice between them.

Differentiating `lax.scan` accumulates the gradient of every matrix at every step: a small product and a pass over the
whole matrix. `fused` and `scan` carry only the gradient of the state through the backward loop and store those of the
gates. The gradient of each matrix is then one product over all steps, after the loop. `fused` is for a single layer,
`scan` for a decoder, where attention is between the products. `cudnn` is NVIDIA's kernel for a whole layer of the LSTM
(jax.experimental.rnn) on one GPU. lmx/kernels/lstm_loop.py has the LSTM's loop on a CPU by Numba.

JAX's interface to it is float32 alone: `rnn.lstm` reads and writes float32 arrays, and refuses bfloat16 products. In
bfloat16 `cudnn` therefore passes float32 arrays, whose products are TF32, with 10 bits of fraction to bfloat16's 7.
'auto' leaves bfloat16 to `fused`: a step of awd_lstm on an H100 took 9.5 ms, with the float32 kernel 17.7 ms. Of
cuDNN's other cells (GRU, projected LSTM) JAX has no interface. docs/notes/gpu.md lists the models that use it.

Axes: T time is the leading axis, because the loop runs over it; E width of the input, D of the state, G all gates; X
and Y the two sides of a matrix. Gates and carry are float32 in every compute type; only products are computed in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import layout, rnn

from lmx import placement
from lmx.errors import InputError
from lmx.kernels import devices, native
from lmx.types import Array

BACKENDS = ('auto', 'scan', 'custom', 'cudnn', 'numba', 'xla')
Carry = tuple[Array, ...]  # (h_BD,), or (h_BD, c_BD) of the LSTM; float32


class Weights(NamedTuple):
  """Parameters of a layer as the loop uses them: b is added to W x, c (None: zero) to U h."""

  w_EG: Array
  u_DG: Array
  b_G: Array
  c_G: Array | None


def choose(backend: str, cell: str, dtype: str) -> str:
  """Return the loop of a backend: 'scan', 'custom', 'cudnn' or 'numba'.

  'xla' and 'auto' are cuDNN for a float32 LSTM if the only device is an NVIDIA GPU: a program over several devices
  would gather all rows for the kernel. Else they are 'custom'. 'numba' is for a float32 LSTM on one CPU, and else as
  'xla', so that what was trained on a CPU can be used elsewhere.

  Raises:
    InputError: cuDNN or Numba cannot run the cell, or cuDNN the device.
  """
  if backend in ('cudnn', 'numba') and cell != 'lstm':
    raise InputError(f'model.backend: got "{backend}" for "{cell}"; expected the cell "lstm"; set model.backend=auto')
  here = placement.current()
  nvidia = here is not None and here.platform == 'gpu' and 'NVIDIA' in here.kind
  if backend == 'cudnn' and not nvidia:
    kind = 'an unknown device' if here is None else here.kind
    raise InputError(f'model.backend: got "cudnn" on {kind}; expected an NVIDIA GPU; set model.backend=auto')
  if backend in ('scan', 'custom', 'cudnn'):
    return backend
  if backend == 'numba' and dtype == 'float32' and devices.is_one_device('cpu'):
    return 'numba'
  fits = cell == 'lstm' and dtype == 'float32' and nvidia and here is not None and here.devices == 1
  return 'cudnn' if fits else 'custom'


def settle(backend: str, cell: str, dtype: str) -> str:
  """Return the backend by which a run is resumed: for 'auto' of an LSTM 'numba' where a CPU can run it, else 'xla'."""
  if backend != 'auto' or cell != 'lstm':
    return backend
  return 'numba' if dtype == 'float32' and native.has_products() else 'xla'


def dot(a: Array, b: Array) -> Array:
  """Return a b, accumulated in float32."""
  return jnp.matmul(a, b, preferred_element_type=jnp.float32)


def where_valid(valid_B: Array | None, new: Any, old: Any) -> Any:
  """Return `new` in valid rows and `old` in the others."""
  if valid_B is None:
    return new
  return jax.tree.map(lambda n, o: jnp.where(valid_B.reshape((-1,) + (1,) * (n.ndim - 1)), n, o), new, old)


class Derivative(NamedTuple):
  """Gradient of one step of a cell.

  Attributes:
    residuals: (r_BG = U h + c, previous carry) -> tuple of (B, D), the residuals in addition to the gates.
    backward: (activated gates_BG, residuals, previous h_BD, gradient of the carry) -> (dx_BG, dr_BG, gradient of the
      previous carry, without the part through U). Where dr equals dx the same object is returned twice.
  """

  residuals: Callable[[Array, Carry], tuple[Array, ...]]
  backward: Callable[..., tuple[Array, Array, Carry]]


def _tanh(gates_BG: Array, residuals: tuple[Array, ...], before_BD: Array, dcarry: Carry) -> tuple[Array, Array, Carry]:
  del residuals, before_BD
  dx_BG = dcarry[0] * (1.0 - gates_BG * gates_BG)
  return dx_BG, dx_BG, (jnp.zeros_like(gates_BG),)


def _relu(gates_BG: Array, residuals: tuple[Array, ...], before_BD: Array, dcarry: Carry) -> tuple[Array, Array, Carry]:
  del residuals, before_BD
  dx_BG = jnp.where(gates_BG > 0, dcarry[0], 0.0)
  return dx_BG, dx_BG, (jnp.zeros_like(gates_BG),)


def _sigmoid(
  gates_BG: Array, residuals: tuple[Array, ...], before_BD: Array, dcarry: Carry
) -> tuple[Array, Array, Carry]:
  del residuals, before_BD
  dx_BG = dcarry[0] * gates_BG * (1.0 - gates_BG)
  return dx_BG, dx_BG, (jnp.zeros_like(gates_BG),)


def _gru(gates_BG: Array, residuals: tuple[Array, ...], before_BD: Array, dcarry: Carry) -> tuple[Array, Array, Carry]:
  (r, z, n), (rn,), (dh,) = jnp.split(gates_BG, 3, axis=-1), residuals, dcarry
  dn = dh * (1.0 - z) * (1.0 - n * n)
  dr = dn * rn * r * (1.0 - r)
  dz = dh * (before_BD - n) * z * (1.0 - z)
  return jnp.concatenate([dr, dz, dn], -1), jnp.concatenate([dr, dz, dn * r], -1), (dh * z,)


def _lstm(gates_BG: Array, residuals: tuple[Array, ...], before_BD: Array, dcarry: Carry) -> tuple[Array, Array, Carry]:
  del before_BD
  (i, f, g, o), (c,), (dh, dc) = jnp.split(gates_BG, 4, axis=-1), residuals, dcarry
  tanh_c = jnp.tanh(f * c + i * g)
  dc = dc + dh * o * (1.0 - tanh_c * tanh_c)
  di, df, dg = dc * g * i * (1.0 - i), dc * c * f * (1.0 - f), dc * i * (1.0 - g * g)
  dx_BG = jnp.concatenate([di, df, dg, dh * tanh_c * o * (1.0 - o)], -1)
  return dx_BG, dx_BG, (jnp.zeros_like(dh), dc * f)


_none = lambda r_BG, carry: ()
DERIVATIVES = {
  'rnn': Derivative(_none, _tanh),
  'rnn_relu': Derivative(_none, _relu),
  'rnn_sigmoid': Derivative(_none, _sigmoid),
  'gru': Derivative(lambda r_BG, carry: (jnp.split(r_BG, 3, axis=-1)[2],), _gru),
  'lstm': Derivative(lambda r_BG, carry: (carry[1],), _lstm),
}


def fused(reference: Callable[..., Any], step: Callable[..., Any]) -> Callable[..., Any]:
  """Return the loop `reference` with the gradient of this module.

  Args:
    reference: (cell, weights, x_TBE, carry, valid_TB) -> (h_TBD float32, carry).
    step: one step, (cell, weights, carry, x_BG, valid_B) -> (carry, activated gates_BG, r_BG = U h + c).
  """
  run = jax.custom_vjp(reference, nondiff_argnums=(0,))
  run.defvjp(functools.partial(_fused_forward, step), _fused_backward)
  return run


def _index(tree: Any, t: Array) -> Any:
  return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, t, keepdims=False), tree)


def _put(tree: Any, values: Any, t: Array) -> Any:
  return jax.tree.map(lambda x, v: lax.dynamic_update_index_in_dim(x, v.astype(x.dtype), t, 0), tree, values)


def _fused_forward(
  step: Callable[..., Any], cell: str, weights: Weights, x_TBE: Array, carry: Carry, valid_TB: Array | None
) -> tuple[Any, tuple[Any, ...]]:
  """Run the loop and store the residuals. The gates replace W x in its own buffer."""
  T, B, _ = x_TBE.shape
  residuals = DERIVATIVES[cell].residuals
  x_TBG = placement.constrain(dot(x_TBE, weights.w_EG.astype(x_TBE.dtype)).astype(x_TBE.dtype), 'TBG')
  h_TBD = jnp.zeros((T + 1, *carry[0].shape), jnp.float32).at[0].set(carry[0])
  step_residuals = jax.eval_shape(residuals, jax.ShapeDtypeStruct(x_TBG.shape[1:], jnp.float32), carry)
  residuals_TBD = jax.tree.map(lambda k: jnp.zeros((T, *k.shape), k.dtype), step_residuals)

  def body(t: Array, loop: tuple[Any, ...]) -> tuple[Any, ...]:
    carry, x_TBG, h_TBD, residuals_TBD = loop
    new, gates_BG, r_BG = step(cell, weights, carry, *_index((x_TBG, valid_TB), t))
    step_residuals = residuals(r_BG, carry)
    return new, _put(x_TBG, gates_BG, t), _put(h_TBD, new[0], t + 1), _put(residuals_TBD, step_residuals, t)

  carry, gates_TBG, h_TBD, residuals_TBD = lax.fori_loop(0, T, body, (carry, x_TBG, h_TBD, residuals_TBD))
  return (h_TBD[1:], carry), (weights, x_TBE, valid_TB, gates_TBG, h_TBD, residuals_TBD)


def _fused_backward(cell: str, residuals: tuple[Any, ...], gradients: Any) -> tuple[Weights, Array, Carry, None]:
  """Run the backward loop."""
  weights, x_TBE, valid_TB, gates_TBG, h_TBD, residuals_TBD = residuals
  dh_TBD, dcarry = gradients
  dtype = x_TBE.dtype
  u_GD = weights.u_DG.astype(dtype).T

  def step(dcarry: Carry, inputs: tuple[Any, ...]) -> tuple[Carry, tuple[Array, Array | None]]:
    gates_BG, step_residuals, before_BD, dh_BD, valid_B = inputs
    dcarry = (dcarry[0] + dh_BD, *dcarry[1:])
    dx_BG, dr_BG, dbefore = DERIVATIVES[cell].backward(gates_BG.astype(jnp.float32), step_residuals, before_BD, dcarry)
    is_same = dr_BG is dx_BG
    if valid_B is not None:
      dx_BG, dr_BG = where_valid(valid_B, (dx_BG, dr_BG), (jnp.zeros_like(dx_BG),) * 2)
      dbefore = where_valid(valid_B, dbefore, dcarry)
    dx_BG, dr_BG = dx_BG.astype(dtype), dr_BG.astype(dtype)
    return (dbefore[0] + dot(dr_BG, u_GD), *dbefore[1:]), (dx_BG, None if is_same else dr_BG)

  inputs = (gates_TBG, residuals_TBD, h_TBD[:-1], dh_TBD, valid_TB)
  dcarry, (dx_TBG, dr_TBG) = lax.scan(step, dcarry, inputs, reverse=True)
  dweights, dx_TBE = weight_gradients(weights, x_TBE, h_TBD[:-1], dx_TBG, dx_TBG if dr_TBG is None else dr_TBG)
  return dweights, dx_TBE, dcarry, None


def weight_gradients(
  weights: Weights, x_TBE: Array, before_TBD: Array, dx_TBG: Array, dr_TBG: Array
) -> tuple[Weights, Array]:
  """Return the gradients of the parameters and of the input, one product each over all steps.

  Args:
    weights: the parameters.
    x_TBE: the input, in the type of the products.
    before_TBD: h before each step.
    dx_TBG: gradient of W x.
    dr_TBG: gradient of U h.
  """
  dtype = x_TBE.dtype

  def outer(a_TBX: Array, b_TBY: Array) -> Array:
    return lax.dot_general(a_TBX.astype(dtype), b_TBY, (((0, 1), (0, 1)), ((), ())), preferred_element_type=jnp.float32)

  dweights = Weights(
    w_EG=outer(x_TBE, dx_TBG),
    u_DG=outer(before_TBD, dr_TBG),
    b_G=jnp.sum(dx_TBG, axis=(0, 1), dtype=jnp.float32),
    c_G=None if weights.c_G is None else jnp.sum(dr_TBG, axis=(0, 1), dtype=jnp.float32),
  )
  return dweights, dot(dx_TBG, weights.w_EG.astype(dtype).T).astype(dtype)


def cudnn_weights(weights: Weights) -> Array:
  """Return the parameters in cuDNN's packing of a layer: W_ih, W_hh (outputs by inputs, gates i f g o), b_ih, b_hh."""
  c_G = jnp.zeros_like(weights.b_G) if weights.c_G is None else weights.c_G
  return jnp.concatenate([jnp.ravel(weights.w_EG.T), jnp.ravel(weights.u_DG.T), weights.b_G, c_G])


def row_major(arrays: Any) -> Any:
  """Return arrays that XLA stores in the order of their axes, and so their gradients.

  `rnn.lstm` does not state this of its operands. Without it XLA transposes one by a change of its layout alone, and
  cuDNN reads it in the wrong order.
  """
  return jax.tree.map(lambda x: layout.with_layout_constraint(x, layout.Layout(tuple(range(x.ndim)))), arrays)


def cudnn(cell: str, weights: Weights, x_TBE: Array, carry: Carry, valid_TB: Array | None) -> tuple[Array, Carry]:
  """Run a layer by cuDNN: (h_TBD float32, carry). Padding must be on the right; TF32 follows jax's matmul precision."""
  del cell
  x_TBE = x_TBE.astype(jnp.float32)
  T, B, E = x_TBE.shape
  h_BD, c_BD = carry
  count_B = jnp.full(B, T, jnp.int32) if valid_TB is None else jnp.sum(valid_TB, axis=0, dtype=jnp.int32)
  exact = jax.default_matmul_precision.value in ('float32', 'highest')
  inputs = row_major((x_TBE.swapaxes(0, 1), h_BD[None], c_BD[None], cudnn_weights(weights)))
  # Every row has at least one step; its result is discarded for empty rows.
  outputs = rnn.lstm(
    *inputs,
    jnp.maximum(count_B, 1),
    E,
    h_BD.shape[-1],
    1,
    0.0,
    False,
    lax.Precision.HIGHEST if exact else lax.Precision.HIGH,  # it has no products of bfloat16
  )
  y_BTD, h_1BD, c_1BD = row_major(outputs)
  last_carry = where_valid(count_B > 0, (h_1BD[0], c_1BD[0]), carry)
  h_TBD = y_BTD.swapaxes(0, 1)
  return (h_TBD if valid_TB is None else jnp.where(valid_TB[..., None], h_TBD, last_carry[0][None])), last_carry


Matrices = Mapping[str, Array]  # (X, Y), or (B, X, Y) with a separate matrix for each row
_FORWARD = {2: 'BX,XY->BY', 3: 'BX,BXY->BY'}
_BACKWARD = {2: 'TBX,TBY->XY', 3: 'TBX,TBY->BXY'}


def scan(
  body: Callable[..., tuple[Any, Any]],
  matrices: Matrices,
  shared: Any,
  carry: Any,
  xs: Any,
  *,
  fixed: tuple[Any, Any] = ((), ()),
  dtype: str = 'float32',
) -> tuple[Any, Any]:
  """Run `carry, y = body(dot, shared, constant, carry, x, now)` over time.

  Args:
    body: uses its matrices only through `dot(name, x_BX)`, each name once a step; closes over no arrays.
    matrices: by name. A name that the body does not use is an error.
    shared: arrays that every step reads, with a gradient accumulated step by step; for small ones.
    carry: float arrays with a leading batch axis.
    xs: float arrays with a leading time axis.
    fixed: (constant, per step): inputs without gradients, such as masks and keys.
    dtype: type of the products; they are accumulated in float32.

  Returns:
    (carry, ys with a leading time axis).
  """
  return _scan(body, dtype, dict(matrices), shared, carry, xs, fixed)


def _run(
  body: Callable[..., Any],
  dtype: str,
  matrices: Matrices,
  shared: Any,
  carry: Any,
  xs: Any,
  fixed: tuple[Any, Any],
  extra: dict[str, Array] | None,
) -> tuple[Any, Any, dict[str, Array]]:
  """Return (carry, outputs, the input of each product); `extra` is added to the products."""
  matrices = {name: w.astype(dtype) for name, w in matrices.items()}

  def step(carry: Any, inputs: tuple[Any, ...]) -> tuple[Any, tuple[Any, dict[str, Array]]]:
    x, now, extra = inputs
    inputs_of: dict[str, Array] = {}

    def dot(name: str, x_BX: Array) -> Array:
      w = matrices[name]
      inputs_of[name] = x_BX.astype(dtype)
      y_BY = jnp.einsum(_FORWARD[w.ndim], inputs_of[name].astype(w.dtype), w, preferred_element_type=jnp.float32)
      return y_BY if extra is None else y_BY + extra[name]

    carry, y = body(dot, shared, fixed[0], carry, x, now)
    return carry, (y, inputs_of)

  carry, (ys, inputs_of) = lax.scan(step, carry, (xs, fixed[1], extra))
  return carry, ys, inputs_of


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _scan(
  body: Callable[..., Any], dtype: str, matrices: Matrices, shared: Any, carry: Any, xs: Any, fixed: tuple[Any, Any]
) -> tuple[Any, Any]:
  return _run(body, dtype, matrices, shared, carry, xs, fixed, None)[:2]


def _forward(
  body: Callable[..., Any], dtype: str, matrices: Matrices, shared: Any, carry: Any, xs: Any, fixed: tuple[Any, Any]
) -> tuple[Any, tuple[Any, ...]]:
  T = len(jax.tree.leaves((xs, fixed[1]))[0])
  B = len(jax.tree.leaves(carry)[0])
  extra = {name: jnp.zeros((T, B, w.shape[-1]), jnp.float32) for name, w in matrices.items()}
  matrices_held = jax.tree.map(lax.stop_gradient, matrices)

  def run(shared: Any, carry: Any, xs: Any, extra: dict[str, Array]) -> tuple[Any, dict[str, Array]]:
    carry, ys, product_inputs = _run(body, dtype, matrices_held, shared, carry, xs, fixed, extra)
    return (carry, ys), product_inputs

  out, pull, product_inputs = jax.vjp(run, shared, carry, xs, extra, has_aux=True)
  # The gradient needs only the types of the matrices: arrays without elements.
  return out, (pull, product_inputs, {name: jnp.zeros((0,) * w.ndim, w.dtype) for name, w in matrices.items()})


def _backward(body: Callable[..., Any], dtype: str, residuals: tuple[Any, ...], gradients: Any) -> tuple[Any, ...]:
  del body
  pull, product_inputs, types = residuals
  dshared, dcarry, dxs, dextra = pull(gradients)
  dmatrices = {
    name: jnp.einsum(
      _BACKWARD[w.ndim], product_inputs[name], dextra[name].astype(dtype), preferred_element_type=jnp.float32
    ).astype(w.dtype)
    for name, w in types.items()
  }
  return dmatrices, dshared, dcarry, dxs, None


_scan.defvjp(_forward, _backward)
