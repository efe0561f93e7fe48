"""Products accumulated in float32 whose gradients are products in the type of the operands.

JAX's gradient of `einsum(..., preferred_element_type=float32)` multiplies the float32 cotangent by an operand of, say,
bfloat16, and both in float32. That is several times slower on an accelerator. Here the cotangent is rounded to the
operands' type before it is multiplied, as in mixed-precision training (Micikevicius et al. 2018, arXiv 1710.03740).
For float32 operands it is the `einsum` itself.
"""

from __future__ import annotations

import functools
import string
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from lmx import placement
from lmx.kernels.rematerialisation import PROJECTION
from lmx.types import Array


def einsum(axes: str, x: Array, y: Array) -> Array:
  """Return the `einsum` of x and y, accumulated in float32.

  Args:
    axes: such as 'BTHK,BSHK->BHTS' or '...D,VD->...V'; an axis of one operand is in the other or in the result.
    x: first operand.
    y: second operand; one in float32 is rounded to the type of x, and has its gradient in float32.
  """
  if x.dtype == jnp.float32 or y.dtype not in (x.dtype, jnp.float32):
    return jnp.einsum(axes, x, y, preferred_element_type=jnp.float32)
  return _einsum(_explicit(axes, x.ndim, y.ndim), x, y)


def dot(x_RX: Array, kernel_XY: Array, axes: int) -> Array:
  """Return x · kernel in the type of x; the gradient of the kernel is accumulated and returned in the kernel's type.

  So of float32 parameters the gradient is reduced over devices in float32, though the operands are bfloat16.

  Args:
    x_RX: rows, and the axes that are contracted.
    kernel_XY: these axes, and those of the result.
    axes: number of axes in X.
  """
  product = _dot if x_RX.dtype == kernel_XY.dtype else _mixed_dot
  return checkpoint_name(product(x_RX, kernel_XY, axes), PROJECTION)


def add(x: Array, parameter: Array) -> Array:
  """Return x + parameter in the type of x; the parameter's gradient is summed over x's other axes in its own type."""
  return x + jnp.broadcast_to(parameter, x.shape).astype(x.dtype)


def _dot(x_RX: Array, kernel_XY: Array, axes: int) -> Array:
  contracted = tuple(range(x_RX.ndim - axes, x_RX.ndim)), tuple(range(axes))
  return jax.lax.dot_general(x_RX, kernel_XY, (contracted, ((), ())))


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _mixed_dot(x_RX: Array, kernel_XY: Array, axes: int) -> Array:
  return _dot(x_RX, kernel_XY.astype(x_RX.dtype), axes)


def _dot_forward(x_RX: Array, kernel_XY: Array, axes: int) -> tuple[Array, tuple[Array, Array]]:
  return _mixed_dot(x_RX, kernel_XY, axes), (x_RX, kernel_XY)


def _dot_backward(axes: int, operands: tuple[Array, Array], gradient_RY: Array) -> tuple[Array, Array]:
  x_RX, kernel_XY = operands
  rows = tuple(range(x_RX.ndim - axes))
  last = lambda x, n: tuple(range(x.ndim - n, x.ndim))
  outputs = kernel_XY.ndim - axes
  contracted = last(gradient_RY, outputs), last(kernel_XY, outputs)
  dx_RX = jax.lax.dot_general(gradient_RY, kernel_XY.astype(x_RX.dtype), (contracted, ((), ())))
  x_RX, gradient_RY = _operands(x_RX, gradient_RY)
  over_rows = (rows, rows), ((), ())
  dkernel_XY = jax.lax.dot_general(x_RX, gradient_RY, over_rows, preferred_element_type=kernel_XY.dtype)
  return dx_RX, dkernel_XY


_mixed_dot.defvjp(_dot_forward, _dot_backward)


def _operands(*arrays: Array) -> tuple[Array, ...]:
  """Return the operands of a product that is accumulated in float32.

  On a CPU XLA has such products of some shapes only. There they are converted first, which is exact.
  """
  if placement.is_platform('tpu') or placement.is_platform('gpu'):
    return arrays
  return tuple(x.astype(jnp.float32) for x in arrays)


def _explicit(axes: str, *sizes: int) -> str:
  """Return `axes` with letters for an ellipsis, given the number of dimensions of each operand."""
  terms = axes.partition('->')[0].split(',')
  hidden = max(n - len(term.replace('...', '')) for n, term in zip(sizes, terms, strict=True))
  free = [letter for letter in string.ascii_letters if letter not in axes]
  return axes.replace('...', ''.join(free[:hidden]))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _einsum(axes: str, x: Array, y: Array) -> Array:
  return jnp.einsum(axes, x, y.astype(x.dtype), preferred_element_type=jnp.float32)


def _forward(axes: str, x: Array, y: Array) -> tuple[Array, tuple[Array, Array]]:
  return _einsum(axes, x, y), (x, y)


def _backward(axes: str, operands: tuple[Array, Array], gradient: Array) -> tuple[Any, Any]:
  (x, y), (inputs, result) = operands, axes.split('->')
  first, second = inputs.split(',')
  gradient, x, y = _operands(gradient.astype(x.dtype), x, y.astype(x.dtype))
  product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
  dx = product(f'{result},{second}->{first}', gradient, y)
  dy = product(f'{result},{first}->{second}', gradient, x)
  return dx.astype(operands[0].dtype), dy.astype(operands[1].dtype)


_einsum.defvjp(_forward, _backward)
