"""A loop over time whose body is any function, with the gradient of its matrices taken once, after the loop.

Differentiating `lax.scan` adds up the gradient of every matrix at every step: a small product and a pass over the whole
matrix each time. Here the body takes its products by name; the forward loop keeps what went into each, the backward
loop the gradients of what came out, and one product over all steps gives the gradient of the matrix. `recurrent.layer`
does the same for a layer alone; this is for decoders, where attention stands between the products.

Axes: T time leads in what is looped over; X and Y the two sides of a matrix.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lmx.errors import InputError, nearest
from lmx.layers import recurrent
from lmx.types import Array, Params

Dot = Callable[[str, Array], Array]  # (name of a matrix, x_BX) -> x_BX W_XY
Matrices = Mapping[str, Array]  # (X, Y), or (B, X, Y) with a matrix of its own for each row
_FORWARD = {2: 'BX,XY->BY', 3: 'BX,BXY->BY'}
_BACKWARD = {2: 'TBX,TBY->XY', 3: 'TBX,TBY->BXY'}


def _product(x: Array, w: Array) -> Array:
  return jnp.einsum(_FORWARD[w.ndim], x.astype(w.dtype), w, preferred_element_type=jnp.float32)


def _run(body, dtype, matrices, shared, carry, xs, fixed, extra):
  """(carry, outputs, what went into each product); `extra` is added to what comes out of it."""
  matrices = {name: w.astype(dtype) for name, w in matrices.items()}

  def step(carry, inputs):
    x, now, extra = inputs
    seen: dict[str, Array] = {}

    def dot(name: str, x_BX: Array) -> Array:
      seen[name] = x_BX.astype(dtype)
      y_BY = _product(seen[name], matrices[name])
      return y_BY if extra is None else y_BY + extra[name]

    carry, y = body(dot, shared, fixed[0], carry, x, now)
    return carry, (y, seen)

  carry, (ys, seen) = lax.scan(step, carry, (xs, fixed[1], extra))
  return carry, ys, seen


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _scan(body, dtype, matrices, shared, carry, xs, fixed):
  return _run(body, dtype, matrices, shared, carry, xs, fixed, None)[:2]


def _forward(body, dtype, matrices, shared, carry, xs, fixed):
  T = len(jax.tree.leaves((xs, fixed[1]))[0])
  B = len(jax.tree.leaves(carry)[0])
  extra = {name: jnp.zeros((T, B, w.shape[-1]), jnp.float32) for name, w in matrices.items()}
  held = jax.tree.map(lax.stop_gradient, matrices)

  def run(shared, carry, xs, extra):
    carry, ys, seen = _run(body, dtype, held, shared, carry, xs, fixed, extra)
    return (carry, ys), seen

  out, pull, seen = jax.vjp(run, shared, carry, xs, extra, has_aux=True)
  # Only what the derivative needs of the matrices: their types, as arrays without elements.
  return out, (pull, seen, {name: jnp.zeros((0,) * w.ndim, w.dtype) for name, w in matrices.items()})


def _backward(body, dtype, residuals, gradients):
  del body
  pull, seen, types = residuals
  dshared, dcarry, dxs, dextra = pull(gradients)
  dmatrices = {
    name: jnp.einsum(
      _BACKWARD[w.ndim], seen[name], dextra[name].astype(dtype), preferred_element_type=jnp.float32
    ).astype(w.dtype)
    for name, w in types.items()
  }
  return dmatrices, dshared, dcarry, dxs, None


_scan.defvjp(_forward, _backward)


def scan(
  body: Callable[..., tuple[Any, Any]],
  matrices: Matrices,
  shared: Any,
  carry: Any,
  xs: Any,
  *,
  fixed: tuple[Any, Any] = ((), ()),
  dtype: str = 'float32',
) -> tuple[Any, Any]:
  """Runs `carry, y = body(dot, shared, constant, carry, x, now)` over time.

  Args:
    body: reads its matrices through `dot(name, x_BX)` alone, each name once a step; closes over no arrays.
    matrices: by name. A name that the body does not use is an error.
    shared: arrays that every step reads, with a gradient that is added up step by step; for small ones.
    carry: float arrays that lead with the batch.
    xs: float arrays that lead with time.
    fixed: (constant, over time): what takes no gradient, such as masks and keys, for all steps and step by step.
    dtype: type of the products; they are added up in float32.

  Returns:
    (carry, ys with time leading).
  """
  return _scan(body, dtype, dict(matrices), shared, carry, xs, fixed)


CELLS = (*recurrent.CELLS, 'gru_paper')


def gates(cell: str) -> int:
  """Width of all gates of a cell over that of its state; InputError if there is no such cell."""
  if cell not in CELLS:
    raise InputError(f'unknown recurrent cell "{cell}"{nearest(cell, CELLS)}')
  return 3 if cell == 'gru_paper' else recurrent.get(cell).gates


def init_carry(cell: str, batch_size: int, width: int) -> recurrent.Carry:
  """Zeros, as `recurrent.init_carry`."""
  return recurrent.init_carry('gru' if cell == 'gru_paper' else cell, batch_size, width)


def recurrent_matrices(cell: str, params: Params, name: str) -> dict[str, Array]:
  """What `cell_step` reads by the name `name` in a loop."""
  u_DG = params['recurrent']
  if cell != 'gru_paper':
    return {name: u_DG}
  D = u_DG.shape[0]
  return {name: u_DG[:, : 2 * D], f'{name}_candidate': u_DG[:, 2 * D :]}


def cell_step(cell: str, dot: Dot, name: str, x_BG: Array, carry: recurrent.Carry) -> recurrent.Carry:
  """One step of a cell, given W x + b in float32.

  'gru_paper' is the unit of Cho et al. 2014 (equations 5 to 8) and Bahdanau et al. 2015 (appendix A.1.1), which applies
  the reset gate before the recurrent product: n = tanh(W x + U (r (.) h)); z keeps the old h, as in Cho's and in
  'gru' (Bahdanau's z is 1 - z). Everything else is as in lmx/layers/recurrent.py.
  """
  if cell != 'gru_paper':
    return recurrent.get(cell).forward(x_BG, dot(name, carry[0]), carry)[0]
  (h_BD,) = carry
  D = h_BD.shape[-1]
  gates_BG = jax.nn.sigmoid(x_BG[:, : 2 * D] + dot(name, h_BD))
  r_BD, z_BD = gates_BG[:, :D], gates_BG[:, D:]
  n_BD = jnp.tanh(x_BG[:, 2 * D :] + dot(f'{name}_candidate', r_BD * h_BD))
  return (n_BD + z_BD * (h_BD - n_BD),)


def keep(valid_B: Array | None, new: Any, old: Any) -> Any:
  """`new` in the rows that are valid, `old` in the others."""
  if valid_B is None:
    return new
  return jax.tree.map(lambda n, o: jnp.where(valid_B.reshape((-1,) + (1,) * (n.ndim - 1)), n, o), new, old)


def _layer_body(cell, dot, shared, constant, carry, x_BG, valid_B):
  del shared, constant
  carry = keep(valid_B, cell_step(cell, dot, 'recurrent', x_BG.astype(jnp.float32), carry), carry)
  return carry, carry[0]


def layer(
  cell: str,
  params: Params,
  x_TBE: Array,
  carry: recurrent.Carry,
  valid_TB: Array | None = None,
  *,
  dtype: str = 'float32',
  backend: str = 'auto',
) -> tuple[Array, recurrent.Carry]:
  """`recurrent.layer`, and the same for the cell 'gru_paper', which that does not have.

  Raises:
    InputError: the backend 'cudnn' for another cell than an LSTM in float32.
  """
  if cell != 'gru_paper':
    return recurrent.layer(cell, params, x_TBE, carry, valid_TB, dtype=dtype, backend=backend)
  recurrent.choose(backend, cell, dtype)
  x_TBE = x_TBE.astype(dtype)
  x_TBG = jnp.matmul(x_TBE, params['input'].astype(dtype), preferred_element_type=jnp.float32)
  x_TBG = x_TBG + params['bias'][None, None]
  matrices = recurrent_matrices(cell, params, 'recurrent')
  carry, h_TBD = scan(
    functools.partial(_layer_body, cell), matrices, (), carry, x_TBG.astype(dtype), fixed=((), valid_TB), dtype=dtype
  )
  return h_TBD.astype(dtype), carry
