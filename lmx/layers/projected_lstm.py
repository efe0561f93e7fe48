"""LSTM with a projected output and clipping (Sak et al. 2014, arXiv 1402.1128, as TensorFlow's LSTMCell has it).

With x the input, h the projected output and c the cell:

  i, j, f, o = split(W x + U h + b); c' = clip(s(f + forget_bias) (.) c + s(i) (.) tanh(j), cell_clip)
  h' = clip(P (s(o) (.) tanh(c')), proj_clip)

The gates have TensorFlow's order i j f o. The forget bias is added when the gate is computed and is not part of
b, so that released weights load unchanged. A clip of 0 means no clipping. As in TensorFlow, no gradient flows through
clipped values.

`_scan` is the reference; lmx/kernels/projected_lstm.py has a faster gradient.

Axes: T time leads, E width of the input, H cells, G = 4H, P projection.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lmx.kernels import projected_lstm as kernels
from lmx.kernels.recurrent import dot, where_valid
from lmx.types import Array, Params

Carry = tuple[Array, Array]  # (h_BP, c_BH), float32
Weights = tuple[Array, Array, Array]  # kernel (E + P, G), bias (G,), projection (H, P)


class _Options(NamedTuple):
  """Static options of the loop."""

  cell_clip: float
  proj_clip: float
  forget_bias: float


def init(key: Array, width_in: int, cells: int, projection: int) -> Params:
  """Initialise Glorot-uniform matrices (TensorFlow's default, which the released code uses) and a zero bias.

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
  """Return the carry before the first step: zeros (B, P) and (B, H)."""
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
  """Run one layer over time.

  Args:
    params: from `init`.
    x_TBE: inputs, time first.
    carry: from `init_carry` or an earlier call.
    valid_TB: bool; an invalid step leaves the carry unchanged and outputs h again. None: all are valid.
    cell_clip: bound of the cell state, 0 for none; 3 in ELMo's released options.
    proj_clip: bound of the output, 0 for none; 3 in ELMo's released options.
    forget_bias: added to the forget gate; 1 in TensorFlow.
    dtype: type of the products; gates and carry are float32.
    backend: 'scan', 'custom', or 'auto' (which is 'custom').

  Returns:
    (h_TBP in `dtype`, carry after the last step in float32).
  """
  options = _Options(cell_clip, proj_clip, forget_bias)
  run = _scan if backend == 'scan' else _custom
  weights = (params['kernel'], params['bias'], params['projection'])
  h_TBP, carry = run(options, weights, x_TBE.astype(dtype), carry, valid_TB)
  return h_TBP.astype(dtype), carry


def _clip(x: Array, bound: float) -> Array:
  return jnp.clip(x, -bound, bound) if bound else x


def _step(
  options: _Options, u_PG: Array, bias_G: Array, projection_HP: Array, carry: Carry, x_BG: Array, valid_B: Array | None
) -> tuple[Carry, Array]:
  """Run one step: (carry, activated gates_BG)."""
  h_BP, c_BH = carry
  gates_BG = x_BG.astype(jnp.float32) + dot(h_BP.astype(u_PG.dtype), u_PG) + bias_G[None]
  i, j, f, o = jnp.split(gates_BG, 4, axis=-1)
  i, j, f, o = jax.nn.sigmoid(i), jnp.tanh(j), jax.nn.sigmoid(f + options.forget_bias), jax.nn.sigmoid(o)
  new_BH = _clip(f * c_BH + i * j, options.cell_clip)
  m_BH = (o * jnp.tanh(new_BH)).astype(projection_HP.dtype)
  out_BP = _clip(dot(m_BH, projection_HP), options.proj_clip)
  return where_valid(valid_B, (out_BP, new_BH), carry), jnp.concatenate([i, j, f, o], -1)


def _prepare(weights: Weights, x_TBE: Array) -> tuple[Array, Array, Array, Array]:
  """Return (W x for all steps, U, b, P), the products' operands in the type of x."""
  kernel, bias_G, projection_HP = weights
  width, dtype = x_TBE.shape[-1], x_TBE.dtype
  x_TBG = dot(x_TBE, kernel[:width].astype(dtype)).astype(dtype)
  return x_TBG, kernel[width:].astype(dtype), bias_G, projection_HP.astype(dtype)


def _scan(
  options: _Options, weights: Weights, x_TBE: Array, carry: Carry, valid_TB: Array | None
) -> tuple[Array, Carry]:
  x_TBG, u_PG, bias_G, projection_HP = _prepare(weights, x_TBE)

  def step(carry: Carry, inputs: Any) -> tuple[Carry, Array]:
    carry, _ = _step(options, u_PG, bias_G, projection_HP, carry, *inputs)
    return carry, carry[0]

  carry, h_TBP = lax.scan(step, carry, (x_TBG, valid_TB))
  return h_TBP, carry


_custom = kernels.fused(_scan, _step, _prepare)
