"""Recurrent layers: parameters and initial carry of a simple RNN, a GRU or an LSTM, and the layer over time.

The cells are in lmx/ops/rnn.py.

Axes: T time is the leading axis; E width of the input, D of the state, G all gates.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lmx.ops import rnn
from lmx.ops.rnn import Carry, Weights
from lmx.placement import constrain
from lmx.types import Array, Params


def init(
  cell: str, key: Array, width_in: int, width: int, *, scale: float, bias: str = 'single', forget_bias: float = 0.0
) -> Params:
  """Initialise the parameters of one layer, uniform in +-scale (biases too).

  Args:
    cell: name in `rnn.CELLS`.
    width_in: E.
    width: D.
    bias: 'single', 'double' for PyTorch's second, recurrent bias, or 'none'.
    forget_bias: added to the bias of the LSTM's forget gate (Gers et al. 2000; Jozefowicz et al. 2015 use 1).

  Returns:
    {'input': (E, G), 'recurrent': (D, G), 'bias': (G,), and if double 'recurrent_bias': (G,)}.
  """
  G = rnn.get(cell).gates * width
  shapes: dict[str, tuple[int, ...]] = {'input': (width_in, G), 'recurrent': (width, G)}
  if bias != 'none':
    shapes['bias'] = (G,)
  if bias == 'double':
    shapes['recurrent_bias'] = (G,)
  keys = jax.random.split(key, len(shapes))
  params = {
    name: jax.random.uniform(k, shape, jnp.float32, -scale, scale)
    for k, (name, shape) in zip(keys, shapes.items(), strict=True)
  }
  if cell == 'lstm' and forget_bias and bias != 'none':
    params['bias'] = params['bias'].at[width : 2 * width].add(forget_bias)
  return params


def init_carry(cell: str, batch_size: int, width: int) -> Carry:
  """Return the carry before the first step: zeros, each (B, D)."""
  return tuple(jnp.zeros((batch_size, width), jnp.float32) for _ in range(rnn.get(cell).carries))


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
    cell: name in `rnn.CELLS`.
    params: from `init`; without 'input', x is added to the gates as it is.
    x_TBE: inputs, time first.
    carry: from `init_carry` or an earlier call.
    valid_TB: bool; an invalid step leaves the carry unchanged and outputs h again. None: all are valid.
    dtype: type of the products.
    backend: one of `rnn.BACKENDS`, of which only 'scan' has a forward-mode derivative.

  Returns:
    (h_TBD in `dtype`, carry after the last step in float32).
  """
  G = params['recurrent'].shape[1]
  b_G, c_G = params.get('bias', jnp.zeros(G, jnp.float32)), params.get('recurrent_bias')
  if c_G is not None and rnn.get(cell).adds:
    b_G, c_G = b_G + c_G, None
  weights = Weights(params.get('input', jnp.eye(G, dtype=jnp.float32)), params['recurrent'], b_G, c_G)
  carry = tuple(constrain(x_BD, 'BD') for x_BD in carry)
  h_TBD, carry = rnn.loop(cell, weights, constrain(x_TBE.astype(dtype), 'TBE'), carry, valid_TB, backend)
  return constrain(h_TBD.astype(dtype), 'TBD'), carry
