"""Layers of the projected LSTM of lmx/ops/projected_lstm.py: parameters, initial carry, and the layer over time.

Axes: T time leads, E width of the input, H cells, P projection.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lmx.ops.projected_lstm import Carry, Options, Weights, loop
from lmx.types import Array, Params


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
  w_EG, u_PG = jax.lax.split(params['kernel'], (x_TBE.shape[-1], params['projection'].shape[1]))
  weights = Weights(w_EG, u_PG, params['bias'], params['projection'])
  options = Options(cell_clip, proj_clip, forget_bias)
  h_TBP, carry = loop(options, weights, x_TBE.astype(dtype), carry, valid_TB, backend)
  return h_TBP.astype(dtype), carry
