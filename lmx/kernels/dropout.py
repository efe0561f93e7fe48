"""Dropout that recomputes its mask in the backward pass instead of storing it."""

from __future__ import annotations

import functools

import jax

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
