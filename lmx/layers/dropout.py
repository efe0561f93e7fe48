"""Dropout with explicit keys (Srivastava et al. 2014); its mask is a hash (lmx/kernels/hash_dropout.py)."""

from __future__ import annotations

import jax

from lmx.kernels.hash_dropout import drop, seed
from lmx.types import Array


def dropout(x: Array, rate: float, key: Array | None) -> Array:
  """Zero each element with probability `rate` and divide the others by 1 - rate; key=None changes nothing."""
  return x if key is None else drop(x, rate, seed(key))


def split(key: Array | None, n: int) -> list[Array | None]:
  """`n` keys from one; `n` times None from None."""
  return [None] * n if key is None else list(jax.random.split(key, n))
