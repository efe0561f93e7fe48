"""Random orthogonal matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from lmx.types import Array


def draw(key: Array, rows: int, columns: int, count: int) -> Array:
  """Return the matrices of `jax.random.orthogonal`, (count, rows, columns), with orthonormal rows or columns.

  They are decomposed one after another, because XLA's batched decompositions can wait for each other on two cores.
  """
  normal = jax.random.normal(key, (count, max(rows, columns), min(rows, columns)))

  def decompose(x: Array) -> Array:
    q, r = jnp.linalg.qr(x)
    d = jnp.diagonal(r)
    return q * jnp.where(d == 0, 1, d / jnp.abs(d))

  x = lax.map(decompose, normal)
  return x if rows >= columns else x.mT
