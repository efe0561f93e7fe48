"""Gradient of `recurrent_scan.scan`: matrix gradients are computed after the backward loop, as in fused_recurrent.py.

Axes: as in lmx/ops/recurrent_scan.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lmx.ops import recurrent_scan
from lmx.ops.recurrent_scan import Matrices
from lmx.types import Array

_BACKWARD = {2: 'TBX,TBY->XY', 3: 'TBX,TBY->BXY'}


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
  """Compute `recurrent_scan.scan`."""
  return _scan(body, dtype, dict(matrices), shared, carry, xs, fixed)


def _run(
  body: Callable[..., Any],
  dtype: str,
  matrices: Matrices,
  shared: Any,
  carry: Any,
  xs: Any,
  fixed: tuple[Any, Any],
  extra: dict[str, Array],
) -> tuple[Any, Any, dict[str, Array]]:
  """Return (carry, outputs, each product's input); `extra` is added to the products."""
  matrices = {name: w.astype(dtype) for name, w in matrices.items()}

  def step(carry: Any, inputs: tuple[Any, ...]) -> tuple[Any, tuple[Any, dict[str, Array]]]:
    x, now, extra = inputs
    inputs_of: dict[str, Array] = {}

    def dot(name: str, x_BX: Array) -> Array:
      inputs_of[name] = x_BX.astype(dtype)
      return recurrent_scan.matrix_product(inputs_of[name], matrices[name]) + extra[name]

    carry, y = body(dot, shared, fixed[0], carry, x, now)
    return carry, (y, inputs_of)

  carry, (ys, inputs_of) = lax.scan(step, carry, (xs, fixed[1], extra))
  return carry, ys, inputs_of


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _scan(
  body: Callable[..., Any], dtype: str, matrices: Matrices, shared: Any, carry: Any, xs: Any, fixed: tuple[Any, Any]
) -> tuple[Any, Any]:
  return recurrent_scan.scan.equation(body, matrices, shared, carry, xs, fixed=fixed, dtype=dtype)


def _forward(
  body: Callable[..., Any], dtype: str, matrices: Matrices, shared: Any, carry: Any, xs: Any, fixed: tuple[Any, Any]
) -> tuple[Any, tuple[Any, ...]]:
  T = len(jax.tree.leaves((xs, fixed[1]))[0])
  B = len(jax.tree.leaves(carry)[0])
  extra = {name: jnp.zeros((T, B, w.shape[-1]), jnp.float32) for name, w in matrices.items()}
  matrices_held = jax.tree.map(lax.stop_gradient, matrices)

  def run(shared: Any, carry: Any, xs: Any, extra: dict[str, Array]) -> tuple[Any, dict[str, Array]]:
    carry, ys, product_inputs = _run(body, dtype, matrices_held, shared, carry, xs, fixed, extra)
    return (carry, ys), product_inputs

  out, pull, product_inputs = jax.vjp(run, shared, carry, xs, extra, has_aux=True)
  # The gradient needs only the matrices' types, so these arrays are empty.
  return out, (pull, product_inputs, {name: jnp.zeros((0,) * w.ndim, w.dtype) for name, w in matrices.items()})


def _backward(body: Callable[..., Any], dtype: str, residuals: tuple[Any, ...], gradients: Any) -> tuple[Any, ...]:
  del body
  pull, product_inputs, types = residuals
  dshared, dcarry, dxs, dextra = pull(gradients)
  dmatrices = {
    name: jnp.einsum(
      _BACKWARD[w.ndim], product_inputs[name], dextra[name].astype(dtype), preferred_element_type=jnp.float32
    ).astype(w.dtype)
    for name, w in types.items()
  }
  return dmatrices, dshared, dcarry, dxs, None


_scan.defvjp(_forward, _backward)
