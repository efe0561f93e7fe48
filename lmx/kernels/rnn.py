"""Implementations of `rnn.loop` (lmx/ops/rnn.py), and the choice between them.

`fused_recurrent` computes the gradients of the matrices after the backward loop. `cudnn` is NVIDIA's kernel for a whole
layer of the LSTM (jax.experimental.rnn) on one GPU, and `lstm_loop` the LSTM's loop on a CPU by Numba.

JAX's interface to cuDNN is float32 only: `rnn.lstm` reads and writes float32 arrays, and rejects bfloat16 products. In
bfloat16 `cudnn` therefore passes float32 arrays, whose products are TF32, with 10 bits of fraction to bfloat16's 7.
'auto' leaves bfloat16 to `fused_recurrent`: a step of awd_lstm on an H100 took 9.5 ms, with the float32 kernel 17.7 ms.
JAX has no interface to cuDNN's other cells (GRU, projected LSTM). docs/notes/gpu.md lists the models that use it.

Axes: as in lmx/ops/rnn.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import layout
from jax.experimental import rnn as jax_rnn

from lmx import placement
from lmx.errors import InputError
from lmx.kernels import devices, fused_recurrent, lstm_loop, native
from lmx.ops import rnn
from lmx.ops.rnn import Carry, Weights, where_valid
from lmx.types import Array


def loop(
  cell: str, weights: Weights, x_TBE: Array, carry: Carry, valid_TB: Array | None, backend: str = 'auto'
) -> tuple[Array, Carry]:
  """Compute `rnn.loop` by a backend."""
  return choose(backend, cell, str(x_TBE.dtype))(cell, weights, x_TBE, carry, valid_TB)


def settle(cfg: Any) -> Any:
  """Return a Config with `backend` resolved: 'numba' for a float32 LSTM where this machine has it, else 'xla'."""
  if cfg.backend != 'auto' or cfg.cell != 'lstm':
    return cfg
  backend = 'numba' if cfg.dtype == 'float32' and native.has_products() else 'xla'
  return dataclasses.replace(cfg, backend=backend)


Loop = Callable[..., tuple[Array, Carry]]  # takes the arguments of `rnn.loop` except `backend`


def choose(backend: str, cell: str, dtype: str) -> Loop:
  """Return the loop that `backend` selects. 'scan' is the equation, 'custom' `fused_recurrent`.

  'xla' and 'auto' are cuDNN for a float32 LSTM if the only device is an NVIDIA GPU: a program over several devices
  would gather all rows for the kernel. Else they are 'custom'. 'numba' is for a float32 LSTM on one CPU, and else as
  'xla', so that models trained on a CPU run elsewhere.

  Raises:
    InputError: cuDNN cannot run on the device.
  """
  here = placement.current()
  nvidia = here is not None and here.platform == 'gpu' and 'NVIDIA' in here.kind
  if backend == 'cudnn' and not nvidia:
    kind = 'an unknown device' if here is None else here.kind
    raise InputError(f'model.backend: got "cudnn" on {kind}; expected an NVIDIA GPU; set model.backend=auto')
  if backend == 'scan':
    return rnn.loop.equation
  if backend == 'numba' and dtype == 'float32' and devices.is_one_device('cpu'):
    return lstm_loop.loop
  fits = cell == 'lstm' and dtype == 'float32' and nvidia and here is not None and here.devices == 1
  return cudnn if backend == 'cudnn' or fits and backend != 'custom' else fused_recurrent.loop


def cudnn_weights(weights: Weights) -> Array:
  """Return the parameters in cuDNN's packing of a layer: W_ih, W_hh (outputs by inputs, gates i f g o), b_ih, b_hh."""
  c_G = jnp.zeros_like(weights.b_G) if weights.c_G is None else weights.c_G
  return jnp.concatenate([jnp.ravel(weights.w_EG.T), jnp.ravel(weights.u_DG.T), weights.b_G, c_G])


def row_major(arrays: Any) -> Any:
  """Constrain arrays and their gradients to row-major layout.

  `rnn.lstm` does not constrain its operands. XLA could then transpose an operand by changing its layout, and cuDNN
  would read it in the wrong order.
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
  # Every row gets at least one step; the result of empty rows is discarded.
  outputs = jax_rnn.lstm(
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
