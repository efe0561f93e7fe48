"""Recurrent cells as one step of a larger loop, such as a decoder with attention.

In addition to the cells of lmx/ops/rnn.py there is 'gru_paper', the unit of Cho et al. 2014 (arXiv 1406.1078,
equations 5 to 8) and Bahdanau et al. 2015 (arXiv 1409.0473, appendix A.1.1). The loops are in lmx/ops/rnn.py.

Axes: T time leads; E width of the input, D of the state, G all gates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import check_choice
from lmx.layers import recurrent
from lmx.ops import recurrent_scan, rnn
from lmx.ops.rnn import Carry, where_valid
from lmx.types import Array, Params

Dot = Callable[[str, Array], Array]  # (name of a matrix, x_BX) -> x_BX W_XY

CELLS = (*rnn.CELLS, 'gru_paper')


def gates(cell: str) -> int:
  """Return the number of gates, G / D; raise InputError if there is no such cell."""
  check_choice('model.cell', cell, CELLS)
  return 3 if cell == 'gru_paper' else rnn.get(cell).gates


def init_carry(cell: str, batch_size: int, width: int) -> Carry:
  """Return the carry before the first step: zeros, each (B, D)."""
  return recurrent.init_carry('gru' if cell == 'gru_paper' else cell, batch_size, width)


def recurrent_matrices(cell: str, params: Params, name: str) -> dict[str, Array]:
  """Return the recurrent matrices of a layer, under the names that `cell_step` uses."""
  u_DG = params['recurrent']
  if cell != 'gru_paper':
    return {name: u_DG}
  D = u_DG.shape[0]
  return {name: u_DG[:, : 2 * D], f'{name}_candidate': u_DG[:, 2 * D :]}


def cell_step(cell: str, dot: Dot, name: str, x_BG: Array, carry: Carry) -> Carry:
  """Run one step of a cell, given W x + b in float32.

  'gru_paper' applies the reset gate before the recurrent product: n = tanh(W x + U (r (.) h)). z weights the old h, as
  in Cho's paper and in 'gru' (Bahdanau's z is 1 - z).
  """
  if cell != 'gru_paper':
    return rnn.get(cell).forward(x_BG, dot(name, carry[0]), carry)[0]
  (h_BD,) = carry
  D = h_BD.shape[-1]
  gates_BG = jax.nn.sigmoid(x_BG[:, : 2 * D] + dot(name, h_BD))
  r_BD, z_BD = gates_BG[:, :D], gates_BG[:, D:]
  n_BD = jnp.tanh(x_BG[:, 2 * D :] + dot(f'{name}_candidate', r_BD * h_BD))
  return (n_BD + z_BD * (h_BD - n_BD),)


def _layer_body(
  cell: str, dot: Dot, shared: Any, constant: Any, carry: Carry, x_BG: Array, valid_B: Array | None
) -> tuple[Carry, Array]:
  del shared, constant
  carry = where_valid(valid_B, cell_step(cell, dot, 'recurrent', x_BG.astype(jnp.float32), carry), carry)
  return carry, carry[0]


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
  """Run one layer over time, as `recurrent.layer`, but also for 'gru_paper'.

  Raises:
    InputError: the backend is 'cudnn' and the cell is not 'lstm'.
  """
  if cell != 'gru_paper':
    return recurrent.layer(cell, params, x_TBE, carry, valid_TB, dtype=dtype, backend=backend)
  x_TBE = x_TBE.astype(dtype)
  x_TBG = jnp.matmul(x_TBE, params['input'].astype(dtype), preferred_element_type=jnp.float32)
  x_TBG = x_TBG + params['bias'][None, None]
  matrices = recurrent_matrices(cell, params, 'recurrent')
  carry, h_TBD = recurrent_scan.scan(
    functools.partial(_layer_body, cell), matrices, (), carry, x_TBG.astype(dtype), fixed=((), valid_TB), dtype=dtype
  )
  return h_TBD.astype(dtype), carry
