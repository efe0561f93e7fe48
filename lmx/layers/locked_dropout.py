"""Dropout with one mask for all positions of a text (variational; Gal and Ghahramani 2016, arXiv 1512.05287)."""

from __future__ import annotations

import jax.numpy as jnp

from lmx.ops.dropout import dropout
from lmx.types import Array


def locked_dropout(x: Array, rate: float, key: Array | None, axis: int = 1) -> Array:
  """Zero each element with probability `rate`, with the same mask at all positions of `axis`; key=None returns x."""
  if key is None or rate == 0.0:
    return x
  return x * dropout(jnp.ones((*x.shape[:axis], 1, *x.shape[axis + 1 :]), x.dtype), rate, key)
