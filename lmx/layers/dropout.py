"""Dropout with explicit keys (Srivastava et al. 2014); its mask is a hash (lmx/kernels/hash_dropout.py)."""

from __future__ import annotations

import jax

from lmx.kernels.hash_dropout import drop, seed
from lmx.types import Array


def dropout(x: Array, rate: float, key: Array | None) -> Array:
  """Zero each element with probability `rate` and scale the others by 1 / (1 - rate); key=None returns x."""
  return x if key is None else drop(x, rate, seed(key))


def split(key: Array | None, n: int) -> list[Array | None]:
  """Split a key into `n`; None gives `n` times None."""
  return [None] * n if key is None else list(jax.random.split(key, n))
