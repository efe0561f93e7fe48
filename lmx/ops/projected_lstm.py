"""LSTM with a projected output and clipping (Sak et al. 2014, arXiv 1402.1128, as TensorFlow's LSTMCell has it).

With x the input, h the projected output and c the cell:

  i, j, f, o = split(W x + U h + b); c' = clip(s(f + forget_bias) (.) c + s(i) (.) tanh(j), cell_clip)
  h' = clip(P (s(o) (.) tanh(c')), proj_clip)

The gates have TensorFlow's order i j f o. The forget bias is added when the gate is computed and is not part of
b, so that released weights load unchanged. A clip of 0 means no clipping. As in TensorFlow, no gradient flows through
clipped values.

Axes: T time leads, E width of the input, H cells, G = 4H, P projection.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lmx.ops.operation import Operation
from lmx.ops.rnn import dot, where_valid
from lmx.types import Array

Carry = tuple[Array, Array]  # (h_BP, c_BH), float32


class Options(NamedTuple):
  """Static options of the loop.

  Attributes:
    cell_clip: bound of the cell state, 0 for none.
    proj_clip: bound of the output, 0 for none.
    forget_bias: added to the forget gate.
  """

  cell_clip: float
  proj_clip: float
  forget_bias: float


class Weights(NamedTuple):
  """Parameters of a layer as the loop uses them."""

  w_EG: Array
  u_PG: Array
  b_G: Array
  p_HP: Array


@Operation
def loop(
  options: Options, weights: Weights, x_TBE: Array, carry: Carry, valid_TB: Array | None, backend: str = 'auto'
) -> tuple[Array, Carry]:
  """Run the layer over time: (h_TBP float32, carry). The product W x is computed for all steps at once.

  Args:
    options: static options.
    weights: parameters.
    x_TBE: inputs, in the type of the products.
    carry: before the first step.
    valid_TB: bool; an invalid step leaves the carry unchanged and outputs h again. None: all are valid.
    backend: 'scan', 'custom' or 'auto'.
  """
  del backend

  x_TBG, weights = prepare(weights, x_TBE)

  def body(carry: Carry, inputs: Any) -> tuple[Carry, Array]:
    carry, _ = step(options, weights, carry, *inputs)
    return carry, carry[0]

  carry, h_TBP = lax.scan(body, carry, (x_TBG, valid_TB))
  return h_TBP, carry


def prepare(weights: Weights, x_TBE: Array) -> tuple[Array, Weights]:
  """Return W x of all steps, (T, B, G), and the matrices in the type of x."""
  dtype = x_TBE.dtype
  w_EG, u_PG, p_HP = weights.w_EG.astype(dtype), weights.u_PG.astype(dtype), weights.p_HP.astype(dtype)
  return dot(x_TBE, w_EG).astype(dtype), Weights(w_EG, u_PG, weights.b_G, p_HP)


def step(options: Options, weights: Weights, carry: Carry, x_BG: Array, valid_B: Array | None) -> tuple[Carry, Array]:
  """Run one step given W x and the weights of `prepare`: (carry, activated gates_BG)."""
  (h_BP, c_BH), dtype = carry, x_BG.dtype
  gates_BG = x_BG.astype(jnp.float32) + dot(h_BP.astype(dtype), weights.u_PG) + weights.b_G[None]
  i, j, f, o = jnp.split(gates_BG, 4, axis=-1)
  i, j, f, o = jax.nn.sigmoid(i), jnp.tanh(j), jax.nn.sigmoid(f + options.forget_bias), jax.nn.sigmoid(o)
  new_BH = _clip(f * c_BH + i * j, options.cell_clip)
  m_BH = (o * jnp.tanh(new_BH)).astype(dtype)
  out_BP = _clip(dot(m_BH, weights.p_HP), options.proj_clip)
  return where_valid(valid_B, (out_BP, new_BH), carry), jnp.concatenate([i, j, f, o], -1)


def _clip(x: Array, bound: float) -> Array:
  return jnp.clip(x, -bound, bound) if bound else x
