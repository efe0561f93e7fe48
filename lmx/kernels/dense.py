"""Products accumulated in float32 whose gradients are products in the type of the operands.

JAX's gradient of `einsum(..., preferred_element_type=float32)` multiplies the float32 cotangent by an operand of, say,
bfloat16, and both in float32. That is several times slower on an accelerator. Here the cotangent is rounded to the
operands' type before it is multiplied, as in mixed-precision training (Micikevicius et al. 2018, arXiv 1710.03740).
For float32 operands it is the `einsum` itself. lmx/ops/dense.py has the equations.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import string
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from lmx import placement
from lmx.kernels import devices, implementations
from lmx.ops import dense
from lmx.ops.rematerialisation import PROJECTION
from lmx.placement import Placement
from lmx.types import Array, Params

MOST_BYTES, ROWS, LEAST_KERNEL = 2**31, (2, 16), 2**19  # of `for_decoding`; elements of a kernel


def einsum(axes: str, x: Array, y: Array, dtype: Any = jnp.float32) -> Array:
  """Compute `dense.einsum`; the gradient of a float32 y is in float32, and a bfloat16 product may be in `dtype`."""
  if x.dtype == jnp.float32 or y.dtype not in (x.dtype, jnp.float32):
    return dense.einsum.equation(axes, x, y)
  return _einsum(_explicit(axes, x.ndim, y.ndim), dtype, x, y)


def dot(x_RX: Array, kernel_XY: Array, axes: int) -> Array:
  """Compute `dense.dot`; the gradient of the kernel is accumulated in the kernel's type.

  So gradients of float32 parameters are added over devices in float32, although the operands are bfloat16, unless
  `devices.reduce_dtype` is bfloat16.
  """
  product = _dot if x_RX.dtype == kernel_XY.dtype else _mixed_dot
  return checkpoint_name(product(x_RX, kernel_XY, axes), PROJECTION)


def for_decoding(params: Params) -> Placement | None:
  """Return the current placement for a decoding loop: `dense.dot` of a few rows reads kernels stored by their outputs.

  For CPUs only. The kernels become the left operand (`of_few_rows`): with GPT-2's kernels this is twice as fast for 8
  rows, and equal for 1 or 32. XLA transposes them once, before the loop, so they are in memory twice; parameters above
  MOST_BYTES are not transposed.
  """
  here = placement.current()
  size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(params))
  if here is None or here.platform != 'cpu' or size > MOST_BYTES:
    return here
  return dataclasses.replace(here, implementation=_find_in_loop)


def _find_in_loop(operation: Any) -> Any:
  return _dot_in_loop if operation is dense.dot else implementations.find(operation)


def _dot_in_loop(x_RX: Array, kernel_XY: Array, axes: int) -> Array:
  return (_dot_by_outputs if _has_few_rows(x_RX, kernel_XY, axes) else dot)(x_RX, kernel_XY, axes)


def dots_with_memory(memory_BMX: Array | None, x_BTX: Array, kernel_XCY: Array, length: int) -> tuple[Array, ...]:
  """Compute `dense.dots_with_memory`, so that each kernel's gradient is reduced over devices once.

  Under tensor also the gradient of x: its products with all kernels are one, whose shards are added once.
  """
  if devices.is_tensor_sharded():
    memory_BMX = x_BTX[:, :0] if memory_BMX is None else memory_BMX.astype(x_BTX.dtype)
    return tuple(checkpoint_name(y, PROJECTION) for y in _dots_with_memory(memory_BMX, x_BTX, kernel_XCY, length))
  one = functools.partial(_with_memory, memory_BMX, x_BTX[:, :length])
  return dense.dot(x_BTX, kernel_XCY[:, 0], 1), *(one(kernel_XCY[:, c]) for c in range(1, kernel_XCY.shape[1]))


def _with_memory(memory_BMX: Array | None, x_BTX: Array, kernel_XY: Array) -> Array:
  if memory_BMX is None:
    return dense.dot(x_BTX, kernel_XY, 1)
  return checkpoint_name(_dot_with_memory(memory_BMX.astype(x_BTX.dtype), x_BTX, kernel_XY), PROJECTION)


def dot_per_shard(x_RX: Array, kernel_XY: Array, axes: str) -> Array:
  """Return x · kernel in the type of x, a copy for each of G shards of the batch's rows: (G, R, ...).

  For an x that all rows of the batch share and that has no gradient. If the product were shared too, XLA would reduce
  its gradient over devices at each use. This way it reduces only the kernel gradient, in the kernel's type. Under fsdp
  the kernel is gathered in the type of x.

  Args:
    x_RX: rows shared by the batch.
    kernel_XY: kernel, contracted over its first axis.
    axes: letters of the kernel's axes, for the copies (`devices.copies`).
  """
  return checkpoint_name(_dot_per_shard(jax.lax.stop_gradient(x_RX), kernel_XY, axes), PROJECTION)


def affine(x: Array, kernel_XY: Array, bias_Y: Array | None, axes: int) -> Array:
  """Compute `dense.affine` over rows of one axis.

  To sum a gradient over two row axes, XLA on a CPU transposes an operand and takes twice as long.
  """
  rows = x.shape[: x.ndim - axes]
  x_RX = x.reshape(-1, *kernel_XY.shape[:axes])
  if devices.is_platform('gpu') and bias_Y is not None:  # cuBLAS adds only a bias of one axis
    y_RY = dense.add(dense.dot(x_RX, kernel_XY.reshape(*kernel_XY.shape[:axes], -1), axes), bias_Y.reshape(-1))
    return y_RY.reshape(*rows, *kernel_XY.shape[axes:])
  y = dense.dot(x_RX, kernel_XY, axes).reshape(*rows, *kernel_XY.shape[axes:])
  return y if bias_Y is None else dense.add(y, bias_Y)


def layer_norm(x_BTD: Array, scale_D: Array, bias_D: Array | None, eps: float) -> Array:
  """Compute `dense.layer_norm`; on a GPU the backward pass reads x and the gradient once for each of two sums."""
  if not devices.is_platform('gpu'):
    return dense.layer_norm.equation(x_BTD, scale_D, bias_D, eps)
  y_BTD = _layer_norm(eps, x_BTD, scale_D)
  return y_BTD if bias_D is None else y_BTD + bias_D.reshape((1,) * (x_BTD.ndim - 1) + (-1,))


def activate(x: Array, function: Callable[[Array], Array]) -> Array:
  """Compute `dense.activate`; on a GPU the backward pass reads only x, and no value that the forward pass stored."""
  return _activate(function, x) if devices.is_platform('gpu') else dense.activate.equation(x, function)


def split_affine(x: Array, kernel_XCY: Array, bias_CY: Array | None, axes: int, idle: int | None) -> tuple[Array, ...]:
  """Compute `dense.split_affine`; on TPUs and GPUs as separate products, because splitting one result copies it."""
  biases = None if bias_CY is None else dense.split_biases(bias_CY, idle)
  if devices.is_tensor_sharded() or (devices.is_platform('gpu') and devices.is_sharded()):
    return _split(axes, x, kernel_XCY, None if biases is None else jnp.stack(biases))
  if devices.is_platform('tpu') and devices.is_parameter_sharded() and devices.placed().mesh.shape['tensor'] == 1:
    kernel_XCY = _gather(kernel_XCY)
  if devices.is_platform('tpu') or devices.is_platform('gpu'):
    return _separate(axes, x, kernel_XCY, biases)
  y = affine(x, kernel_XCY, None if biases is None else jnp.stack(biases), axes)
  return tuple(_part(y, x.ndim - axes, i) for i in range(kernel_XCY.shape[axes]))


@jax.custom_vjp
def _gather(kernel_XCY: Array) -> Array:
  """Gather a kernel whole, because libtpu all-reduces small gathers, such as those of its matrices (5 MB, not 15)."""
  return placement.constrain(kernel_XCY, '')


_gather.defvjp(lambda kernel_XCY: (_gather(kernel_XCY), None), lambda _, bar_XCY: (bar_XCY,))


def _part(array: Array, axis: int, i: int) -> Array:
  return jax.lax.index_in_dim(array, i, axis, keepdims=False)


def _separate(axes: int, x: Array, kernel_XCY: Array, biases: Any) -> tuple[Array, ...]:
  """Return the product with each matrix, plus its bias."""
  bias = lambda i: None if biases is None else biases[i]
  return tuple(affine(x, _part(kernel_XCY, axes, i), bias(i), axes) for i in range(kernel_XCY.shape[axes]))


def _has_few_rows(x_RX: Array, kernel_XY: Array, axes: int) -> bool:
  rows = math.prod(x_RX.shape[: x_RX.ndim - axes])
  is_few = ROWS[0] <= rows <= ROWS[1] and kernel_XY.size >= LEAST_KERNEL
  return is_few and x_RX.dtype == kernel_XY.dtype == jnp.float32


def of_few_rows(x_RX: Array, kernel_YX: Array) -> Array:
  """Return x · kernel, (R, Y) float32, for a few rows and a kernel stored by its outputs.

  A CPU packs a product's right operand before multiplying: here x instead of the kernel. XLA would swap the operands
  back if it saw the transpose.
  """
  return jax.lax.optimization_barrier(einsum('YX,RX->YR', kernel_YX, x_RX)).T


def _dot_by_outputs(x_RX: Array, kernel_XY: Array, axes: int) -> Array:
  """Return `_dot`; the barrier makes XLA transpose the kernel once, before the loop."""
  X, Y = kernel_XY.shape[:axes], kernel_XY.shape[axes:]
  kernel_YX = jax.lax.optimization_barrier(kernel_XY.reshape(math.prod(X), math.prod(Y)).T)
  y_RY = of_few_rows(x_RX.reshape(-1, math.prod(X)), kernel_YX)
  return y_RY.reshape(*x_RX.shape[: x_RX.ndim - axes], *Y)


def _dot(x_RX: Array, kernel_XY: Array, axes: int) -> Array:
  if devices.is_one_device('cpu'):
    # As matrices, because with more axes XLA on a CPU transposes the kernel and its gradient.
    rows, X, Y = x_RX.shape[: x_RX.ndim - axes], kernel_XY.shape[:axes], kernel_XY.shape[axes:]
    y_RY = x_RX.reshape(math.prod(rows), math.prod(X)) @ kernel_XY.reshape(math.prod(X), math.prod(Y))
    return y_RY.reshape((*rows, *Y))
  contracted = tuple(range(x_RX.ndim - axes, x_RX.ndim)), tuple(range(axes))
  return jax.lax.dot_general(x_RX, kernel_XY, (contracted, ((), ())))


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _mixed_dot(x_RX: Array, kernel_XY: Array, axes: int) -> Array:
  return _dot(x_RX, kernel_XY.astype(x_RX.dtype), axes)


def _dot_forward(x_RX: Array, kernel_XY: Array, axes: int) -> tuple[Array, tuple[Array, Array]]:
  return _mixed_dot(x_RX, kernel_XY, axes), (x_RX, kernel_XY)


def _dot_backward(axes: int, operands: tuple[Array, Array], gradient_RY: Array) -> tuple[Array, Array]:
  x_RX, kernel_XY = operands
  return _dot_inputs(gradient_RY, kernel_XY, axes), _dot_kernel(x_RX, gradient_RY, axes, kernel_XY.dtype)


def _dot_inputs(gradient_RY: Array, kernel_XY: Array, axes: int) -> Array:
  """Return the gradient of x, in the type of the result's."""
  last = lambda x, n: tuple(range(x.ndim - n, x.ndim))
  outputs = kernel_XY.ndim - axes
  contracted = last(gradient_RY, outputs), last(kernel_XY, outputs)
  return jax.lax.dot_general(gradient_RY, kernel_XY.astype(gradient_RY.dtype), (contracted, ((), ())))


def _dot_kernel(x_RX: Array, gradient_RY: Array, axes: int, dtype: Any) -> Array:
  """Return the gradient of the kernel, accumulated in `dtype` on each device and added over them in `reduce_dtype`."""
  rows = tuple(range(x_RX.ndim - axes))
  product = functools.partial(jax.lax.dot_general, dimension_numbers=((rows, rows), ((), ())))
  return _parameter_gradient(product, x_RX, gradient_RY, dtype)


def _parameter_gradient(product: Callable[..., Array], x: Array, y: Array, dtype: Any) -> Array:
  """Return a product, accumulated in `dtype`, as the gradient of a parameter of this type.

  XLA adds it over devices in the type of the product, so that is `reduce_dtype`.
  """
  if devices.reduce_dtype(dtype) == x.dtype:
    return product(x, y).astype(dtype)
  x, y = _operands(x, y)
  return product(x, y, preferred_element_type=dtype)


_mixed_dot.defvjp(_dot_forward, _dot_backward)


@jax.custom_vjp
def _dot_with_memory(memory_BMX: Array, x_BTX: Array, kernel_XY: Array) -> Array:
  return _dot(jnp.concatenate([memory_BMX, x_BTX], axis=1), kernel_XY.astype(x_BTX.dtype), 1)


def _memory_forward(memory_BMX: Array, x_BTX: Array, kernel_XY: Array) -> tuple[Array, tuple[Array, Array, Array]]:
  return _dot_with_memory(memory_BMX, x_BTX, kernel_XY), (memory_BMX, x_BTX, kernel_XY)


def _memory_backward(operands: tuple[Array, Array, Array], gradient_BSY: Array) -> tuple[None, Array, Array]:
  memory_BMX, x_BTX, kernel_XY = operands
  x_BSX = jnp.concatenate([memory_BMX, x_BTX], axis=1)
  dx_BTX = _dot_inputs(gradient_BSY[:, memory_BMX.shape[1] :], kernel_XY, 1)
  return None, dx_BTX, _dot_kernel(x_BSX, gradient_BSY, 1, kernel_XY.dtype)


_dot_with_memory.defvjp(_memory_forward, _memory_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _dots_with_memory(memory_BMX: Array, x_BTX: Array, kernel_XCY: Array, length: int) -> tuple[Array, ...]:
  y_BSX = jnp.concatenate([memory_BMX, x_BTX[:, :length]], axis=1)
  kernels = [kernel_XCY[:, c].astype(x_BTX.dtype) for c in range(kernel_XCY.shape[1])]
  return _dot(x_BTX, kernels[0], 1), *(_dot(y_BSX, kernel_XY, 1) for kernel_XY in kernels[1:])


def _dots_forward(memory_BMX: Array, x_BTX: Array, kernel_XCY: Array, length: int) -> tuple[Any, Any]:
  return _dots_with_memory(memory_BMX, x_BTX, kernel_XCY, length), (memory_BMX, x_BTX, kernel_XCY)


def _dots_backward(length: int, operands: tuple[Array, Array, Array], gradients: Any) -> tuple[None, Array, Array]:
  (memory_BMX, x_BTX, kernel_XCY), (query_BTY, *others) = operands, gradients
  parts = [query_BTY[:, :length], *(gradient_BSY[:, memory_BMX.shape[1] :] for gradient_BSY in others)]
  dx_BTX = _dot_inputs(jnp.stack(parts, axis=2), kernel_XCY, 1)
  if length < x_BTX.shape[1]:
    dx_BTX = jnp.concatenate([dx_BTX, _dot_inputs(query_BTY[:, length:], kernel_XCY[:, 0], 1)], axis=1)
  y_BSX = jnp.concatenate([memory_BMX, x_BTX[:, :length]], axis=1)
  rows = [(x_BTX, query_BTY), *((y_BSX, gradient_BSY) for gradient_BSY in others)]
  dkernels = [_dot_kernel(*pair, 1, kernel_XCY.dtype) for pair in rows]
  return None, dx_BTX, jnp.stack(dkernels, axis=1)


_dots_with_memory.defvjp(_dots_forward, _dots_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _dot_per_shard(x_RX: Array, kernel_XY: Array, axes: str) -> Array:
  kernel_XY = kernel_XY.astype(x_RX.dtype)
  kernel_GXY = devices.copies(kernel_XY, axes)
  if kernel_GXY is None:
    return _dot(x_RX, kernel_XY, 1)[None]
  return jax.vmap(functools.partial(_dot, axes=1), (None, 0))(x_RX, kernel_GXY)


def _shard_forward(x_RX: Array, kernel_XY: Array, axes: str) -> tuple[Array, tuple[Array, Array]]:
  return _dot_per_shard(x_RX, kernel_XY, axes), (x_RX, jnp.zeros(0, kernel_XY.dtype))


def _shard_backward(axes: str, residuals: tuple[Array, Array], gradient_GRY: Array) -> tuple[None, Array]:
  x_RX, empty = residuals
  dkernel = functools.partial(_dot_kernel, axes=1, dtype=empty.dtype)
  dkernel_GXY = jax.vmap(dkernel, (None, 0))(x_RX, gradient_GRY)
  return None, devices.sum_shards(dkernel_GXY, axes)


_dot_per_shard.defvjp(_shard_forward, _shard_backward)


def _operands(*arrays: Array) -> tuple[Array, ...]:
  """Return the operands of a product that is accumulated in float32.

  On a CPU, XLA supports such products only for some shapes. For others the operands are converted first, which is
  exact.
  """
  if devices.is_platform('tpu') or devices.is_platform('gpu'):
    return arrays
  return tuple(x.astype(jnp.float32) for x in arrays)


def _explicit(axes: str, *sizes: int) -> str:
  """Return `axes` with letters for an ellipsis, given the number of dimensions of each operand."""
  terms = axes.partition('->')[0].split(',')
  hidden = max(n - len(term.replace('...', '')) for n, term in zip(sizes, terms, strict=True))
  free = [letter for letter in string.ascii_letters if letter not in axes]
  return axes.replace('...', ''.join(free[:hidden]))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _einsum(axes: str, dtype: Any, x: Array, y: Array) -> Array:
  return jnp.einsum(axes, x, y.astype(x.dtype), preferred_element_type=dtype)


def _forward(axes: str, dtype: Any, x: Array, y: Array) -> tuple[Array, tuple[Array, Array]]:
  return _einsum(axes, dtype, x, y), (x, y)


def _backward(axes: str, dtype: Any, operands: tuple[Array, Array], gradient: Array) -> tuple[Any, Any]:
  del dtype
  (x, y), (inputs, result) = operands, axes.split('->')
  first, second = inputs.split(',')
  gradient = gradient.astype(x.dtype)
  product = lambda axes: functools.partial(jnp.einsum, axes)
  left, right = _operands(gradient, y.astype(x.dtype))
  # XLA adds shards of a contracted axis, such as a vocabulary under tensor, in the type of the product.
  added = left.dtype if devices.is_tensor_sharded() else jnp.float32
  dx = product(f'{result},{second}->{first}')(left, right, preferred_element_type=added)
  dy = _parameter_gradient(product(f'{result},{first}->{second}'), gradient, x, jnp.float32)
  return dx.astype(operands[0].dtype), dy.astype(operands[1].dtype)


_einsum.defvjp(_forward, _backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _layer_norm(eps: float, x_BTD: Array, scale_D: Array) -> Array:
  return dense.layer_norm.equation(x_BTD, scale_D, None, eps)


def _norm_forward(eps: float, x_BTD: Array, scale_D: Array) -> tuple[Array, tuple[Array, Array]]:
  return _layer_norm(eps, x_BTD, scale_D), (x_BTD, scale_D)


def _norm_backward(eps: float, residuals: tuple[Array, Array], bar_BTD: Array) -> tuple[Array, Array]:
  """Compute the gradients in three passes: means and deviations, sums over rows, and the gradient of x.

  Without the barriers, XLA computes means and deviations in each pass, and stores a float32 array between them.
  """
  x_BTD, scale_D = residuals
  mean = functools.partial(jnp.mean, axis=-1, keepdims=True)
  x_BTD = jax.lax.optimization_barrier(x_BTD).astype(jnp.float32)
  shifted_BTD = x_BTD - x_BTD[..., :1]  # by an element, so that the difference of squares is exact to D roundings
  mean_BT1 = mean(shifted_BTD)
  inverse_BT1 = jax.lax.rsqrt(jnp.maximum(mean(jnp.square(shifted_BTD)) - jnp.square(mean_BT1), 0.0) + eps)
  mean_BT1, inverse_BT1 = jax.lax.optimization_barrier((mean_BT1 + x_BTD[..., :1], inverse_BT1))
  normal_BTD = (x_BTD - mean_BT1) * inverse_BT1
  scaled_BTD = bar_BTD * scale_D
  dx_BTD = (scaled_BTD - mean(scaled_BTD) - normal_BTD * mean(scaled_BTD * normal_BTD)) * inverse_BT1
  return dx_BTD.astype(residuals[0].dtype), jnp.sum(bar_BTD * normal_BTD, axis=tuple(range(x_BTD.ndim - 1)))


_layer_norm.defvjp(_norm_forward, _norm_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _activate(function: Callable[[Array], Array], x: Array) -> Array:
  return function(x)


def _activate_forward(function: Callable[[Array], Array], x: Array) -> tuple[Array, Array]:
  return function(x), x


def _activate_backward(function: Callable[[Array], Array], x: Array, bar: Array) -> tuple[Array]:
  # Behind the barrier, XLA does not see that the forward pass computed the same values, and does not store them.
  return jax.vjp(function, jax.lax.optimization_barrier(x))[1](bar)


_activate.defvjp(_activate_forward, _activate_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _split(axes: int, x: Array, kernel_XCY: Array, bias_CY: Array | None) -> tuple[Array, ...]:
  """Compute `_separate`, whose gradients are those of one product.

  If each matrix had its own, XLA would reduce them over the devices in every microbatch instead of once in a step, and
  under tensor add the gradient of x for each matrix.
  """
  return _separate(axes, x, kernel_XCY, bias_CY)


def _split_forward(axes: int, x: Array, kernel_XCY: Array, bias_CY: Array | None) -> tuple[Any, Any]:
  return _split(axes, x, kernel_XCY, bias_CY), (x, kernel_XCY, bias_CY)


def _split_backward(axes: int, operands: Any, bars: tuple[Array, ...]) -> tuple[Any, ...]:
  x, kernel_XCY, bias_CY = operands
  rows = x.ndim - axes
  bar = jnp.stack(bars, axis=rows)
  dbias_CY = None if bias_CY is None else jnp.sum(bar, axis=tuple(range(rows)), dtype=bias_CY.dtype)
  dx, dkernel_XCY = _dot_backward(axes, (x, kernel_XCY), bar)
  return dx, dkernel_XCY, dbias_CY


_split.defvjp(_split_forward, _split_backward)
