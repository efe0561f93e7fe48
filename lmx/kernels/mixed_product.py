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

from lmx.types import Array


def einsum(axes: str, x: Array, y: Array) -> Array:
  """Return the `einsum` of x and y, accumulated in float32.

  Args:
    axes: such as 'BTHK,BSHK->BHTS' or '...D,VD->...V'; an axis of one operand is in the other or in the result.
    x: first operand.
    y: second operand, of the same type.
  """
  if x.dtype == jnp.float32 or x.dtype != y.dtype:
    return jnp.einsum(axes, x, y, preferred_element_type=jnp.float32)
  return _einsum(_explicit(axes, x.ndim, y.ndim), x, y)


def _explicit(axes: str, *sizes: int) -> str:
  """Return `axes` with letters for an ellipsis, given the number of dimensions of each operand."""
  terms = axes.partition('->')[0].split(',')
  hidden = max(n - len(term.replace('...', '')) for n, term in zip(sizes, terms, strict=True))
  free = [letter for letter in string.ascii_letters if letter not in axes]
  return axes.replace('...', ''.join(free[:hidden]))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _einsum(axes: str, x: Array, y: Array) -> Array:
  return jnp.einsum(axes, x, y, preferred_element_type=jnp.float32)


def _forward(axes: str, x: Array, y: Array) -> tuple[Array, tuple[Array, Array]]:
  return _einsum(axes, x, y), (x, y)


def _backward(axes: str, operands: tuple[Array, Array], gradient: Array) -> tuple[Any, Any]:
  (x, y), (inputs, result) = operands, axes.split('->')
  first, second = inputs.split(',')
  gradient = gradient.astype(x.dtype)
  product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
  dx = product(f'{result},{second}->{first}', gradient, y)
  dy = product(f'{result},{first}->{second}', gradient, x)
  return dx.astype(x.dtype), dy.astype(y.dtype)


_einsum.defvjp(_forward, _backward)
