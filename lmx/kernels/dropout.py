"""Dropout that recomputes its mask in the backward pass instead of storing it, and the mask with fewer operations."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from lmx.ops import dropout
from lmx.types import Array


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _drop(rate: float, x: Array, seed_2: Array) -> Array:
  return dropout.drop.equation(x, rate, seed_2)


def _drop_forward(rate: float, x: Array, seed_2: Array) -> tuple[Array, Array]:
  return _drop(rate, x, seed_2), seed_2


def _drop_backward(rate: float, seed_2: Array, g: Array) -> tuple[Array, None]:
  return _drop(rate, g, seed_2), None


_drop.defvjp(_drop_forward, _drop_backward)


def drop(x: Array, rate: float, seed_2: Array | None) -> Array:
  """Compute `dropout.drop`."""
  return x if seed_2 is None or rate == 0.0 else _drop(rate, x, seed_2)


def mask_of_columns(words: tuple[Array, Array], rate: float, rows: Array, columns: Array) -> Array:
  """Return `dropout.mask` of rows and columns that broadcast, such as (R, 1) and (R, S), from the words of a seed.

  The hash ends with x ^ (x >> 16), for which x ^ (limit >> 16) does: unless the upper halves of x and limit are equal,
  they decide. Inverting the first bit of both sides makes the comparison one of signed words.
  """
  limit = min(round(rate * 2**32), 2**32 - 1)
  start = dropout.mix(rows ^ words[0])
  x = start + (dropout.mix(start ^ words[1]) | jnp.uint32(1)) * columns
  x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
  x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B) ^ jnp.uint32((limit >> 16) ^ 2**31)
  return jax.lax.bitcast_convert_type(x, jnp.int32) >= jnp.int32(limit - 2**31)
