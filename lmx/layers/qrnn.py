"""Quasi-recurrent layer: Bradbury, Merity, Xiong & Socher 2017 (arXiv 1611.01576), section 2, with fo-pooling.

z, f, o = tanh, sigmoid, sigmoid of a convolution over the last `window` inputs;
c_t = f_t (.) z_t + (1 - f_t) (.) c_t-1; h_t = o_t (.) c_t. As in the layer released with it, f is the gate of what is
new, where equation 3 has 1 - f. The products are taken for all steps at once and the recurrence by a parallel scan, in
log2 T rounds.

Axes: T time leads; E width of the input; G three gates, z f o side by side.
"""

from __future__ import annotations

from typing import cast

import jax
import jax.numpy as jnp
from jax import lax

from lmx.types import Array, Params

Carry = tuple[Array, ...]  # (c_BD,), and with window 2 (c_BD, x_BE): the last input; float32


def init(key: Array, width_in: int, width: int, window: int) -> Params:
  """Parameters of one layer, uniform in +-1/sqrt(window E), PyTorch's rule for its linear layer.

  Returns:
    {'input': (window E, 3 D), rows of the newest input first, 'bias': (3 D,)}.
  """
  weight_key, bias_key = jax.random.split(key)
  scale = (window * width_in) ** -0.5
  uniform = lambda k, *shape: jax.random.uniform(k, shape, jnp.float32, -scale, scale)
  return {'input': uniform(weight_key, window * width_in, 3 * width), 'bias': uniform(bias_key, 3 * width)}


def init_carry(batch_size: int, width_in: int, width: int, window: int) -> Carry:
  """The carry before the first step: zeros."""
  c_BD = jnp.zeros((batch_size, width), jnp.float32)
  return (c_BD,) if window == 1 else (c_BD, jnp.zeros((batch_size, width_in), jnp.float32))


def forget_mult(f_TBD: Array, z_TBD: Array, c_BD: Array) -> Array:
  """c_t = f_t z_t + (1 - f_t) c_t-1 for all t, (T, B, D)."""

  def join(first, second):
    return first[0] * second[0], second[0] * first[1] + second[1]

  kept_TBD, new_TBD = lax.associative_scan(join, (1.0 - f_TBD, f_TBD * z_TBD))
  return new_TBD + kept_TBD * c_BD[None]


def layer(
  params: Params, x_TBE: Array, carry: Carry, valid_TB: Array | None = None, *, window: int, dtype: str = 'float32'
) -> tuple[Array, Carry]:
  """Runs one layer over time.

  Args:
    params: of `init`.
    x_TBE: inputs, time first.
    carry: of `init_carry`, or what an earlier call returned.
    valid_TB: bool, padding on the right; an invalid step leaves the carry as it is. None: all are valid.
    window: 1 or 2 inputs that a step sees.
    dtype: type of the products.

  Returns:
    (h_TBD in `dtype`, carry after the last step in float32).
  """
  x_TBE = x_TBE.astype(dtype)
  source, last = x_TBE, cast(Carry, ())
  if window == 2:
    before = jnp.concatenate([carry[1][None].astype(dtype), x_TBE])
    source = jnp.concatenate([x_TBE, before[:-1]], axis=-1)
    count_B = jnp.full(x_TBE.shape[1], len(x_TBE)) if valid_TB is None else jnp.sum(valid_TB, axis=0)
    last = (jnp.take_along_axis(before, count_B[None, :, None], axis=0)[0].astype(jnp.float32),)
  gates = jnp.matmul(source, params['input'].astype(dtype), preferred_element_type=jnp.float32) + params['bias']
  z_TBD, f_TBD, o_TBD = jnp.split(gates, 3, axis=-1)
  f_TBD = jax.nn.sigmoid(f_TBD)
  if valid_TB is not None:
    f_TBD = jnp.where(valid_TB[..., None], f_TBD, 0.0)
  c_TBD = forget_mult(f_TBD, jnp.tanh(z_TBD), carry[0])
  h_TBD = jax.nn.sigmoid(o_TBD) * c_TBD
  return h_TBD.astype(dtype), (c_TBD[-1], *last)
