"""Parts of dense layers: products with parameters, sums with them, layer normalisation and activations.

Activations are in the compute type, such as bfloat16. Parameters are in float32 and are rounded to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from lmx.ops.operation import Operation
from lmx.ops.rematerialisation import PROJECTION
from lmx.types import Array


@Operation
def einsum(axes: str, x: Array, y: Array) -> Array:
  """Return the `einsum` of x and y, accumulated in float32.

  Args:
    axes: such as 'BTHK,BSHK->BHTS' or '...D,VD->...V'; an axis of one operand is in the other or in the result.
    x: first operand.
    y: second operand; one in float32 is rounded to the type of x.
  """
  y = y.astype(x.dtype) if y.dtype == jnp.float32 else y
  return jnp.einsum(axes, x, y, preferred_element_type=jnp.float32)


@Operation
def dot(x_RX: Array, kernel_XY: Array, axes: int) -> Array:
  """Return x · kernel in the type of x, over the last `axes` axes of x and the first of the kernel."""
  return checkpoint_name(jnp.tensordot(x_RX, kernel_XY.astype(x_RX.dtype), axes), PROJECTION)


@Operation
def dots_with_memory(memory_BMX: Array | None, x_BTX: Array, kernel_XCY: Array, length: int) -> tuple[Array, ...]:
  """Return x · kernel 0, and [memory; `length` rows of x] · kernel 1, 2 ...; no gradient flows into the memory."""
  y_BSX = x_BTX[:, :length]
  if memory_BMX is not None:
    y_BSX = jnp.concatenate([jax.lax.stop_gradient(memory_BMX).astype(x_BTX.dtype), y_BSX], axis=1)
  return dot(x_BTX, kernel_XCY[:, 0], 1), *(dot(y_BSX, kernel_XCY[:, c], 1) for c in range(1, kernel_XCY.shape[1]))


@Operation
def affine(x: Array, kernel_XY: Array, bias_Y: Array | None, axes: int) -> Array:
  """Return x · kernel + bias, over the last `axes` axes of x."""
  y = dot(x, kernel_XY, axes)
  return y if bias_Y is None else add(y, bias_Y)


@Operation
def split_affine(x: Array, kernel_XCY: Array, bias_CY: Array | None, axes: int, idle: int | None) -> tuple[Array, ...]:
  """Return `affine` for each of the C matrices of a kernel.

  Args:
    x: rows, and the axes that are contracted.
    kernel_XCY: these axes, the matrices' axis, and the axes of the results.
    bias_CY: bias of each matrix.
    axes: number of axes in X.
    idle: index of a matrix whose bias gets no gradient, if any.
  """
  if bias_CY is not None:
    bias_CY = jnp.stack(split_biases(bias_CY, idle))
  y = affine(x, kernel_XCY, bias_CY, axes)
  return tuple(jnp.moveaxis(y, x.ndim - axes, 0))


def split_biases(bias_CY: Array, idle: int | None) -> list[Any]:
  """Return the bias of each matrix, without a gradient for the matrix `idle`."""
  return [jax.lax.stop_gradient(bias_Y) if c == idle else bias_Y for c, bias_Y in enumerate(bias_CY)]


def add(x: Array, parameter: Array) -> Array:
  """Return x + parameter in the type of x; the parameter's gradient is summed over x's other axes in its own type."""
  return x + jnp.broadcast_to(parameter, x.shape).astype(x.dtype)


@Operation
def layer_norm(x_BTD: Array, scale_D: Array, bias_D: Array | None, eps: float) -> Array:
  """Return (x - mean) / sqrt(variance + eps) * scale + bias over the last axis, float32; without a bias if None."""
  x_BTD = x_BTD.astype(jnp.float32)
  lift = (1,) * (x_BTD.ndim - 1) + (-1,)
  centred_BTD = x_BTD - jnp.mean(x_BTD, axis=-1, keepdims=True)
  inverse_BT1 = jax.lax.rsqrt(jnp.mean(jnp.square(centred_BTD), axis=-1, keepdims=True) + eps)
  scaled_BTD = centred_BTD * inverse_BT1 * scale_D.reshape(lift)
  return scaled_BTD if bias_D is None else scaled_BTD + bias_D.reshape(lift)


@Operation
def activate(x: Array, function: Callable[[Array], Array]) -> Array:
  """Return `function` of each element of x."""
  return function(x)
