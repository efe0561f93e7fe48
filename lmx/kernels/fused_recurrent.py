"""Gradient of a recurrent layer whose matrix gradients are computed after the backward loop.

Differentiating `lax.scan` accumulates the gradient of every matrix at every step: a small product and a pass over the
whole matrix. Here the backward loop carries only the gradient of the state and stores the gates' gradients. The
gradient of each matrix is then one product over all steps.

Axes: as in lmx/ops/rnn.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lmx.ops import rnn
from lmx.ops.rnn import Carry, Weights, dot, where_valid
from lmx.types import Array


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


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def loop(cell: str, weights: Weights, x_TBE: Array, carry: Carry, valid_TB: Array | None) -> tuple[Array, Carry]:
  """Compute `rnn.loop`."""
  return rnn.loop.equation(cell, weights, x_TBE, carry, valid_TB)


def _index(tree: Any, t: Array) -> Any:
  return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, t, keepdims=False), tree)


def _put(tree: Any, values: Any, t: Array) -> Any:
  return jax.tree.map(lambda x, v: lax.dynamic_update_index_in_dim(x, v.astype(x.dtype), t, 0), tree, values)


def _forward(
  cell: str, weights: Weights, x_TBE: Array, carry: Carry, valid_TB: Array | None
) -> tuple[Any, tuple[Any, ...]]:
  """Run the loop and store the residuals. The gates replace W x in its own buffer."""
  T, B, _ = x_TBE.shape
  residuals = DERIVATIVES[cell].residuals
  x_TBG = rnn.input_product(weights, x_TBE)
  h_TBD = jnp.zeros((T + 1, *carry[0].shape), jnp.float32).at[0].set(carry[0])
  step_residuals = jax.eval_shape(residuals, jax.ShapeDtypeStruct(x_TBG.shape[1:], jnp.float32), carry)
  residuals_TBD = jax.tree.map(lambda k: jnp.zeros((T, *k.shape), k.dtype), step_residuals)

  def body(t: Array, loop: tuple[Any, ...]) -> tuple[Any, ...]:
    carry, x_TBG, h_TBD, residuals_TBD = loop
    new, gates_BG, r_BG = rnn.step(cell, weights, carry, *_index((x_TBG, valid_TB), t))
    step_residuals = residuals(r_BG, carry)
    return new, _put(x_TBG, gates_BG, t), _put(h_TBD, new[0], t + 1), _put(residuals_TBD, step_residuals, t)

  carry, gates_TBG, h_TBD, residuals_TBD = lax.fori_loop(0, T, body, (carry, x_TBG, h_TBD, residuals_TBD))
  return (h_TBD[1:], carry), (weights, x_TBE, valid_TB, gates_TBG, h_TBD, residuals_TBD)


def _backward(cell: str, residuals: tuple[Any, ...], gradients: Any) -> tuple[Weights, Array, Carry, None]:
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


loop.defvjp(_forward, _backward)


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
