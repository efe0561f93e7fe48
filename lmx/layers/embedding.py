"""Embedding tables: lookup by token, by position, by type; and positions that are not learned, but sinusoids.

Ids must be checked on the host: an id outside the table is clipped here without a word.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lmx.types import Array, Rows


def table(key: Array, rows: int, width: int, std: float, *, truncated: bool = False) -> Array:
  """A float32 (rows, width) table, normal or truncated normal (at two deviations) with deviation `std`."""
  if truncated:
    return std * jax.random.truncated_normal(key, -2.0, 2.0, (rows, width), jnp.float32)
  return std * jax.random.normal(key, (rows, width), jnp.float32)


def lookup(table_VD: Array | Rows, ids_BT: Any, dtype: str) -> Any:
  """Rows of a table, (B, T, D) in `dtype`; for a tuple of ids a tuple.

  A step that has read the rows already gives them as `Rows` instead of the table.
  """
  if isinstance(table_VD, Rows):
    return jax.tree.map(lambda x: x.astype(dtype), table_VD.values)
  return jax.tree.map(lambda ids: jnp.take(table_VD, ids, axis=0, mode='clip').astype(dtype), ids_BT)


def positions(table_TD: Array, position_BT: Array | None, length: int, dtype: str) -> Array:
  """Learned positions: rows 0 .. length-1 as (1, T, D), or the rows at `position_BT` as (B, T, D)."""
  if position_BT is None:
    return table_TD[None, :length].astype(dtype)
  return lookup(table_TD, position_BT, dtype)


SINUSOIDS = ('interleaved', 'halves', 'tensor2tensor')


def sinusoids(length: int, width: int, layout: str) -> np.ndarray:
  """Sines and cosines of each position (Vaswani et al. 2017, section 3.5).

  Args:
    length: positions 0 .. length-1.
    width: D, even.
    layout: 'interleaved': the paper's equations, PE(t, 2i) = sin(t / 10000^(2i/D)) and PE(t, 2i+1) the cosine;
      'halves': the same with all sines first (Marian); 'tensor2tensor': all sines first too, and exponents i/(D/2 - 1)
      in the place of 2i/D, so that the longest wavelength is 10000 times 2 pi.

  Returns:
    float32 (length, D), computed in float64.
  """
  half = width // 2
  exponents = np.arange(half) / (max(half - 1, 1) if layout == 'tensor2tensor' else half)
  angles = np.arange(length)[:, None] / 10_000.0**exponents
  axis = 2 if layout == 'interleaved' else 1
  return np.stack([np.sin(angles), np.cos(angles)], axis=axis).reshape(length, width).astype(np.float32)


def with_sinusoids(
  table_VD: Array, tokens_BT: Array, layout: str, position_BT: Array | None = None, length: int = 0
) -> Array:
  """sqrt(D) times the token's row, plus its position's sinusoids (Vaswani et al. 2017, sections 3.4 and 3.5), float32.

  Args:
    table_VD: rows of the tokens.
    tokens_BT: ids.
    layout: one of SINUSOIDS.
    position_BT: position of each token; None for 0 .. T-1.
    length: positions there are, where they are given.
  """
  D = table_VD.shape[1]
  table_TD = jnp.asarray(sinusoids(length or tokens_BT.shape[1], D, layout))
  x_BTD = D**0.5 * lookup(table_VD, tokens_BT, 'float32')
  return x_BTD + positions(table_TD, position_BT, tokens_BT.shape[1], 'float32')
