"""LSTM with a highway connection from its input to its output, and dropout of its output (He et al. 2017, section 2.1).

The input, forget, output and highway gates i, f, o, r = s(W x + U h + b), g = tanh(W_g x + U_g h + b_g);
c' = f (.) c + i (.) g, h' = z (.) (r (.) o (.) tanh(c') + (1 - r) (.) (W_k x + b_k)), with one mask z per row for all
steps (Gal and Ghahramani 2016, arXiv 1512.05287). The highway connection is from Zhang et al. 2016 and Srivastava et
al. 2015 (arXiv 1507.06228). b_k is in the released code (luheng/deep_srl, layer.py), not in the equations.

Axes: T time is the leading axis, because the loop runs over it; E width of the input, G all gates, in the order i f o r
g, and k, which only the input has. Gates and carry are float32 in every compute type; only the products are computed in
it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from lmx.layers import orthogonal
from lmx.ops.dropout import drop, seed
from lmx.ops.rnn import dot, where_valid
from lmx.placement import constrain
from lmx.types import Array, Params

RECURRENT, INPUT = 5, 6  # blocks of U and of W and b
_FORGET = 1


def init(key: Array, width_in: int, width: int) -> Params:
  """Initialise a layer: every block orthonormal, biases 0 but 1 in the forget gate.

  Returns:
    {'input': (E, 6 D), 'recurrent': (D, 5 D), 'bias': (6 D,)}.
  """
  input_key, recurrent_key = jax.random.split(key)
  blocks = lambda key, rows, count: orthogonal.draw(key, rows, width, count).transpose(1, 0, 2)
  return {
    'input': blocks(input_key, width_in, INPUT).reshape(width_in, -1),
    'recurrent': blocks(recurrent_key, width, RECURRENT).reshape(width, -1),
    'bias': jnp.zeros((INPUT, width), jnp.float32).at[_FORGET].set(1.0).reshape(-1),
  }


def layer(
  params: Params, x_TBE: Array, valid_TB: Array, rate: float = 0.0, key: Array | None = None, *, dtype: str = 'float32'
) -> Array:
  """Run one layer from a zero carry.

  Args:
    params: from `init`.
    x_TBE: inputs, time first.
    valid_TB: bool; an invalid step leaves the carry unchanged and outputs h again.
    rate: dropout rate of the output, which is also the next step's input.
    key: PRNG key of dropout; None disables it.
    dtype: type of the products.

  Returns:
    h_TBD in `dtype`.
  """
  width = params['recurrent'].shape[0]
  zeros_BD = jnp.zeros((x_TBE.shape[1], width), jnp.float32)
  mask_BD = jnp.ones_like(zeros_BD)
  if key is not None and rate:
    mask_BD = drop(mask_BD, rate, seed(key))
  u_DG = params['recurrent'].astype(dtype)

  def step(carry: tuple[Array, Array], inputs: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
    (h_BD, c_BD), (x_BG, valid_B) = carry, inputs
    x_BG, k_BD = jnp.split(x_BG.astype(jnp.float32) + params['bias'], [RECURRENT * width], axis=-1)
    i, f, o, r, g = jnp.split(x_BG + dot(h_BD.astype(dtype), u_DG), RECURRENT, axis=-1)
    i, f, o, r = (jax.nn.sigmoid(gate) for gate in (i, f, o, r))
    c_BD = f * c_BD + i * jnp.tanh(g)
    h_BD = mask_BD * (r * o * jnp.tanh(c_BD) + (1 - r) * k_BD)
    carry = where_valid(valid_B, (h_BD, c_BD), carry)
    return carry, carry[0]

  x_TBE = constrain(x_TBE.astype(dtype), 'TBE')
  x_TBG = constrain(dot(x_TBE, params['input'].astype(dtype)).astype(dtype), 'TBG')
  carry = constrain(zeros_BD, 'BD'), constrain(zeros_BD, 'BD')
  _, h_TBD = lax.scan(step, carry, (x_TBG, valid_TB))
  return constrain(h_TBD.astype(dtype), 'TBD')
