"""Gradient of the projected LSTM of lmx/ops/projected_lstm.py, with matrix gradients computed after the loop.

The backward loop carries only dh and dc; the gradient of each matrix is one product after it.

Axes: T time is the leading axis, E width of the input, H cells, G = 4H, P projection.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lmx.ops import projected_lstm
from lmx.ops.projected_lstm import Carry, Options, Weights
from lmx.ops.rnn import dot, where_valid
from lmx.types import Array


def loop(
  options: Options, weights: Weights, x_TBE: Array, carry: Carry, valid_TB: Array | None, backend: str = 'auto'
) -> tuple[Array, Carry]:
  """Compute `projected_lstm.loop`; 'scan' is the equation."""
  run = projected_lstm.loop.equation if backend == 'scan' else _loop
  return run(options, weights, x_TBE, carry, valid_TB)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _loop(
  options: Options, weights: Weights, x_TBE: Array, carry: Carry, valid_TB: Array | None
) -> tuple[Array, Carry]:
  return projected_lstm.loop.equation(options, weights, x_TBE, carry, valid_TB)


def _clip_gradient(x: Array, bound: float, gradient: Array) -> Array:
  """Return the gradient where x is not clipped at the bound."""
  return jnp.where(jnp.abs(x) < bound, gradient, 0.0) if bound else gradient


def _forward(
  options: Options, weights: Weights, x_TBE: Array, carry: Carry, valid_TB: Array | None
) -> tuple[Any, tuple[Any, ...]]:
  x_TBG, matrices = projected_lstm.prepare(weights, x_TBE)

  def step(carry: Carry, inputs: Any) -> tuple[Carry, tuple[Array, ...]]:
    carry, gates_BG = projected_lstm.step(options, matrices, carry, *inputs)
    return carry, (*carry, gates_BG)

  end, (h_TBP, c_TBH, gates_TBG) = lax.scan(step, carry, (x_TBG, valid_TB))
  return (h_TBP, end), (weights, x_TBE, carry, valid_TB, h_TBP, c_TBH, gates_TBG)


def _backward(options: Options, residuals: tuple[Any, ...], gradients: Any) -> tuple[Weights, Array, Carry, None]:
  weights, x_TBE, (h0_BP, c0_BH), valid_TB, h_TBP, c_TBH, gates_TBG = residuals
  dh_TBP, dcarry = gradients
  dtype = x_TBE.dtype
  u_PG = weights.u_PG.astype(dtype)

  def step(dcarry: Carry, inputs: tuple[Any, ...]) -> tuple[Carry, tuple[Array, Array]]:
    gates_BG, h_BP, c_BH, before_BH, dh_BP, valid_B = inputs
    dout_BP, dc_BH = dcarry[0] + dh_BP, dcarry[1]
    i, j, f, o = jnp.split(gates_BG, 4, axis=-1)
    dp_BP = _clip_gradient(h_BP, options.proj_clip, dout_BP).astype(dtype)
    dm_BH = dot(dp_BP, weights.p_HP.astype(dtype).T)
    tanh_c = jnp.tanh(c_BH)
    dnew_BH = _clip_gradient(c_BH, options.cell_clip, dc_BH + dm_BH * o * (1.0 - tanh_c * tanh_c))
    dgates_BG = jnp.concatenate(
      [
        dnew_BH * j * i * (1.0 - i),
        dnew_BH * i * (1.0 - j * j),
        dnew_BH * before_BH * f * (1.0 - f),
        dm_BH * tanh_c * o * (1.0 - o),
      ],
      -1,
    ).astype(dtype)
    dbefore = (dot(dgates_BG, u_PG.T), dnew_BH * f)
    if valid_B is not None:
      dgates_BG, dp_BP = where_valid(valid_B, (dgates_BG, dp_BP), (jnp.zeros_like(dgates_BG), jnp.zeros_like(dp_BP)))
      dbefore = where_valid(valid_B, dbefore, (dout_BP, dc_BH))
    return dbefore, (dgates_BG, dp_BP)

  before_TBH = jnp.concatenate([c0_BH[None], c_TBH[:-1]])
  inputs = (gates_TBG, h_TBP, c_TBH, before_TBH, dh_TBP.astype(jnp.float32), valid_TB)
  dcarry, (dgates_TBG, dp_TBP) = lax.scan(step, dcarry, inputs, reverse=True)

  def outer(a_TBX: Array, b_TBY: Array) -> Array:
    contract = (((0, 1), (0, 1)), ((), ()))
    return lax.dot_general(a_TBX.astype(dtype), b_TBY, contract, preferred_element_type=jnp.float32)

  hidden_TBP = jnp.concatenate([h0_BP[None], h_TBP[:-1]])
  m_TBH = gates_TBG[..., 3 * c_TBH.shape[-1] :] * jnp.tanh(c_TBH)
  dweights = Weights(
    w_EG=outer(x_TBE, dgates_TBG),
    u_PG=outer(hidden_TBP, dgates_TBG),
    b_G=jnp.sum(dgates_TBG, axis=(0, 1), dtype=jnp.float32),
    p_HP=outer(m_TBH, dp_TBP),
  )
  return dweights, dot(dgates_TBG, weights.w_EG.astype(dtype).T).astype(dtype), dcarry, None


_loop.defvjp(_forward, _backward)
