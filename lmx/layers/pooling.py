"""One vector for a row of vectors, over the positions that hold a token."""

from __future__ import annotations

import jax.numpy as jnp

from lmx.types import Array

POOLINGS = ('concat', 'last', 'max', 'mean', 'first')


def pool(kind: str, x_BTD: Array, kept_BT: Array) -> Array:
  """Pools over time.

  Args:
    kind: 'concat' is [last; max; mean] (Howard and Ruder 2018, arXiv 1801.06146, section 3.3), the others are its parts
      and the vector of the first position.
    x_BTD: vectors.
    kept_BT: bool, the positions that count, in one run; those before and behind it are ignored. A row without any gives
      zeros.

  Returns:
    float32 (B, D), for 'concat' (B, 3D).
  """
  if kind == 'concat':
    return jnp.concatenate([pool(part, x_BTD, kept_BT) for part in ('last', 'max', 'mean')], axis=-1)
  x_BTD = x_BTD.astype(jnp.float32)
  some_B1 = kept_BT.any(axis=1)[:, None]
  if kind == 'max':
    return jnp.where(some_B1, jnp.max(jnp.where(kept_BT[..., None], x_BTD, -jnp.inf), axis=1), 0.0)
  if kind == 'mean':
    count_B1 = jnp.maximum(jnp.sum(kept_BT, axis=1, dtype=jnp.float32), 1.0)[:, None]
    return jnp.sum(jnp.where(kept_BT[..., None], x_BTD, 0.0), axis=1) / count_B1
  T = kept_BT.shape[1]
  at_B = jnp.argmax(kept_BT, axis=1) if kind == 'first' else T - 1 - jnp.argmax(kept_BT[:, ::-1], axis=1)
  return jnp.where(some_B1, jnp.take_along_axis(x_BTD, at_B[:, None, None], axis=1)[:, 0], 0.0)
