"""LSTM with a projected output and clipping (Sak et al. 2014, arXiv 1402.1128, as TensorFlow's LSTMCell has it).

With x the input, h the projected output and c the cell:

  i, j, f, o = split(W x + U h + b); c' = clip(s(f + forget_bias) (.) c + s(i) (.) tanh(j), cell_clip)
  h' = clip(P (s(o) (.) tanh(c')), proj_clip)

The gates lie in TensorFlow's order i j f o, and the forget bias is added when the gate is computed and is no part of
b, so that released weights are read as they stand. A clip of 0 is none. As in TensorFlow, no gradient flows through a
value that was clipped.

Two derivatives of the loop over time: `scan` lets JAX differentiate `lax.scan`; `custom` carries only dh and dc back
through the loop and takes the gradients of all matrices in one product each after it.

Axes: T time leads, E width of the input, H cells, G = 4H, P projection.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lmx.types import Array, Params

Carry = tuple[Array, Array]  # (h_BP, c_BH), float32


class _Options(NamedTuple):
  """What the loop needs to know beside its arrays."""

  cell_clip: float
  proj_clip: float
  forget_bias: float


def init(key: Array, width_in: int, cells: int, projection: int) -> Params:
  """Glorot-uniform matrices (TensorFlow's default, which the released code leaves as it is) and a zero bias.

  Returns:
    {'kernel': (E + P, 4H), 'bias': (4H,), 'projection': (H, P)}.
  """
  kernel_key, projection_key = jax.random.split(key)
  glorot = jax.nn.initializers.glorot_uniform()
  return {
    'kernel': glorot(kernel_key, (width_in + projection, 4 * cells), jnp.float32),
    'bias': jnp.zeros(4 * cells, jnp.float32),
    'projection': glorot(projection_key, (cells, projection), jnp.float32),
  }


def init_carry(batch_size: int, cells: int, projection: int) -> Carry:
  """The carry before the first step: zeros (B, P) and (B, H)."""
  return jnp.zeros((batch_size, projection), jnp.float32), jnp.zeros((batch_size, cells), jnp.float32)


def layer(
  params: Params,
  x_TBE: Array,
  carry: Carry,
  valid_TB: Array | None = None,
  *,
  cell_clip: float = 3.0,
  proj_clip: float = 3.0,
  forget_bias: float = 1.0,
  dtype: str = 'float32',
  backend: str = 'auto',
) -> tuple[Array, Carry]:
  """Runs one layer over time.

  Args:
    params: of `init`.
    x_TBE: inputs, time first.
    carry: of `init_carry`, or what an earlier call returned.
    valid_TB: bool; an invalid step leaves the carry as it is and puts out h again. None: all are valid.
    cell_clip: bound of the cell, 0 for none; 3 in ELMo's released options.
    proj_clip: bound of the output, 0 for none; 3 in ELMo's released options.
    forget_bias: added to the forget gate; 1 in TensorFlow.
    dtype: type of the products; gates and carry are float32.
    backend: 'scan', 'custom', or 'auto', which is 'custom'.

  Returns:
    (h_TBP in `dtype`, carry after the last step in float32).
  """
  options = _Options(cell_clip, proj_clip, forget_bias)
  run = _scan if backend == 'scan' else _custom
  weights = (params['kernel'], params['bias'], params['projection'])
  h_TBP, carry = run(options, weights, x_TBE.astype(dtype), carry, valid_TB)
  return h_TBP.astype(dtype), carry


def _dot(a, b):
  return jnp.matmul(a, b, preferred_element_type=jnp.float32)


def _clip(x, bound):
  return jnp.clip(x, -bound, bound) if bound else x


def _passes(x, bound, gradient):
  """The gradient where x is not at the bound."""
  return jnp.where(jnp.abs(x) < bound, gradient, 0.0) if bound else gradient


def _keep(valid_B, new, old):
  if valid_B is None:
    return new
  return jax.tree.map(lambda n, o: jnp.where(valid_B[:, None], n, o), new, old)


def _step(options, u_PG, bias_G, projection_HP, carry, x_BG, valid_B):
  """One step: (carry, activated gates_BG)."""
  h_BP, c_BH = carry
  gates_BG = x_BG.astype(jnp.float32) + _dot(h_BP.astype(u_PG.dtype), u_PG) + bias_G[None]
  i, j, f, o = jnp.split(gates_BG, 4, axis=-1)
  i, j, f, o = jax.nn.sigmoid(i), jnp.tanh(j), jax.nn.sigmoid(f + options.forget_bias), jax.nn.sigmoid(o)
  new_BH = _clip(f * c_BH + i * j, options.cell_clip)
  m_BH = (o * jnp.tanh(new_BH)).astype(projection_HP.dtype)
  out_BP = _clip(_dot(m_BH, projection_HP), options.proj_clip)
  return _keep(valid_B, (out_BP, new_BH), carry), jnp.concatenate([i, j, f, o], -1)


def _prepare(weights, x_TBE):
  """(W x for all steps, U, b, P), the products' operands in the type of x."""
  kernel, bias_G, projection_HP = weights
  width, dtype = x_TBE.shape[-1], x_TBE.dtype
  x_TBG = _dot(x_TBE, kernel[:width].astype(dtype)).astype(dtype)
  return x_TBG, kernel[width:].astype(dtype), bias_G, projection_HP.astype(dtype)


def _scan(options, weights, x_TBE, carry, valid_TB):
  x_TBG, u_PG, bias_G, projection_HP = _prepare(weights, x_TBE)

  def step(carry, inputs):
    carry, _ = _step(options, u_PG, bias_G, projection_HP, carry, *inputs)
    return carry, carry[0]

  carry, h_TBP = lax.scan(step, carry, (x_TBG, valid_TB))
  return h_TBP, carry


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _custom(options, weights, x_TBE, carry, valid_TB):
  return _scan(options, weights, x_TBE, carry, valid_TB)


def _forward(options, weights, x_TBE, carry, valid_TB):
  x_TBG, u_PG, bias_G, projection_HP = _prepare(weights, x_TBE)

  def step(carry, inputs):
    carry, gates_BG = _step(options, u_PG, bias_G, projection_HP, carry, *inputs)
    return carry, (*carry, gates_BG)

  end, (h_TBP, c_TBH, gates_TBG) = lax.scan(step, carry, (x_TBG, valid_TB))
  return (h_TBP, end), (weights, x_TBE, carry, valid_TB, h_TBP, c_TBH, gates_TBG)


def _backward(options, residuals, gradients):
  weights, x_TBE, (h0_BP, c0_BH), valid_TB, h_TBP, c_TBH, gates_TBG = residuals
  dh_TBP, dcarry = gradients
  dtype, width = x_TBE.dtype, x_TBE.shape[-1]
  kernel, _, projection_HP = weights
  w_EG, u_PG = kernel[:width].astype(dtype), kernel[width:].astype(dtype)

  def step(dcarry, inputs):
    gates_BG, h_BP, c_BH, before_BH, dh_BP, valid_B = inputs
    dout_BP, dc_BH = dcarry[0] + dh_BP, dcarry[1]
    i, j, f, o = jnp.split(gates_BG, 4, axis=-1)
    dp_BP = _passes(h_BP, options.proj_clip, dout_BP).astype(dtype)
    dm_BH = _dot(dp_BP, projection_HP.astype(dtype).T)
    tanh_c = jnp.tanh(c_BH)
    dnew_BH = _passes(c_BH, options.cell_clip, dc_BH + dm_BH * o * (1.0 - tanh_c * tanh_c))
    dgates_BG = jnp.concatenate(
      [
        dnew_BH * j * i * (1.0 - i),
        dnew_BH * i * (1.0 - j * j),
        dnew_BH * before_BH * f * (1.0 - f),
        dm_BH * tanh_c * o * (1.0 - o),
      ],
      -1,
    ).astype(dtype)
    before = (_dot(dgates_BG, u_PG.T), dnew_BH * f)
    if valid_B is not None:
      dgates_BG, dp_BP = _keep(valid_B, (dgates_BG, dp_BP), (jnp.zeros_like(dgates_BG), jnp.zeros_like(dp_BP)))
      before = _keep(valid_B, before, (dout_BP, dc_BH))
    return before, (dgates_BG, dp_BP)

  before_TBH = jnp.concatenate([c0_BH[None], c_TBH[:-1]])
  inputs = (gates_TBG, h_TBP, c_TBH, before_TBH, dh_TBP.astype(jnp.float32), valid_TB)
  dcarry, (dgates_TBG, dp_TBP) = lax.scan(step, dcarry, inputs, reverse=True)

  def outer(a_TBX, b_TBY):
    contract = (((0, 1), (0, 1)), ((), ()))
    return lax.dot_general(a_TBX.astype(dtype), b_TBY, contract, preferred_element_type=jnp.float32)

  hidden_TBP = jnp.concatenate([h0_BP[None], h_TBP[:-1]])
  m_TBH = gates_TBG[..., 3 * c_TBH.shape[-1] :] * jnp.tanh(c_TBH)
  dweights = (
    jnp.concatenate([outer(x_TBE, dgates_TBG), outer(hidden_TBP, dgates_TBG)]),
    jnp.sum(dgates_TBG, axis=(0, 1), dtype=jnp.float32),
    outer(m_TBH, dp_TBP),
  )
  return dweights, _dot(dgates_TBG, w_EG.T).astype(dtype), dcarry, None


_custom.defvjp(_forward, _backward)
