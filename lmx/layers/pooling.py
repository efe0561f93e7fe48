"""Pooling over a row's valid positions."""

from __future__ import annotations

import jax.numpy as jnp

from lmx.types import Array


def pool(kind: str, x_BTD: Array, pooled_BT: Array) -> Array:
  """Pool over time.

  Args:
    kind: 'concat' is [last; max; mean] (Howard and Ruder 2018, arXiv 1801.06146, section 3.3), the others are its
      parts, the vector of the 'first' position, and 'min'.
    x_BTD: vectors.
    pooled_BT: bool, True at pooled positions, which are contiguous. A row without any is zero.

  Returns:
    float32 (B, D), for 'concat' (B, 3D).
  """
  if kind == 'concat':
    return jnp.concatenate([pool(part, x_BTD, pooled_BT) for part in ('last', 'max', 'mean')], axis=-1)
  x_BTD = x_BTD.astype(jnp.float32)
  some_B1 = pooled_BT.any(axis=1)[:, None]
  if kind == 'max':
    return jnp.where(some_B1, jnp.max(jnp.where(pooled_BT[..., None], x_BTD, -jnp.inf), axis=1), 0.0)
  if kind == 'min':
    return -pool('max', -x_BTD, pooled_BT)
  if kind == 'mean':
    count_B1 = jnp.maximum(jnp.sum(pooled_BT, axis=1, dtype=jnp.float32), 1.0)[:, None]
    return jnp.sum(jnp.where(pooled_BT[..., None], x_BTD, 0.0), axis=1) / count_B1
  T = pooled_BT.shape[1]
  at_B = jnp.argmax(pooled_BT, axis=1) if kind == 'first' else T - 1 - jnp.argmax(pooled_BT[:, ::-1], axis=1)
  return jnp.where(some_B1, jnp.take_along_axis(x_BTD, at_B[:, None, None], axis=1)[:, 0], 0.0)
