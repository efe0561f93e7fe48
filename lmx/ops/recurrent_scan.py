"""Loops over time with more than a cell per step, such as a decoder with attention between its products.

Axes: X and Y the two sides of a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jax import lax

from lmx.ops.operation import Operation
from lmx.types import Array

Matrices = Mapping[str, Array]  # (X, Y), or (B, X, Y) with a separate matrix for each row


@Operation
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
  """Run `carry, y = body(dot, shared, constant, carry, x, now)` over time, such as a decoder with attention.

  Args:
    body: uses its matrices only through `dot(name, x_BX)`, each name once a step; closes over no arrays.
    matrices: by name. A name that the body does not use is an error.
    shared: small arrays that every step reads.
    carry: float arrays with a leading batch axis.
    xs: float arrays with a leading time axis.
    fixed: (constant, per step): inputs without gradients, such as masks and keys.
    dtype: type of the products; they are accumulated in float32.

  Returns:
    (carry, ys with a leading time axis).
  """
  matrices = {name: matrix.astype(dtype) for name, matrix in matrices.items()}
  step_dot = lambda name, x_BX: matrix_product(x_BX.astype(dtype), matrices[name])

  def step(carry: Any, inputs: tuple[Any, Any]) -> tuple[Any, Any]:
    x, now = inputs
    return body(step_dot, shared, fixed[0], carry, x, now)

  return lax.scan(step, carry, (xs, fixed[1]))


def matrix_product(x_BX: Array, matrix: Array) -> Array:
  """Return x times a matrix (X, Y) or (B, X, Y), accumulated in float32."""
  axes = 'BX,XY->BY' if matrix.ndim == 2 else 'BX,BXY->BY'
  return jnp.einsum(axes, x_BX.astype(matrix.dtype), matrix, preferred_element_type=jnp.float32)
