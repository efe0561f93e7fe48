"""Sinusoidal positions (Vaswani et al. 2017, arXiv 1706.03762, section 3.5)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from lmx.layers import embedding
from lmx.types import Array

LAYOUTS = ('interleaved', 'halves', 'tensor2tensor')


def table(length: int, width: int, layout: str) -> np.ndarray:
  """Return sines and cosines of each position (Vaswani et al. 2017, section 3.5).

  Args:
    length: positions 0 .. length-1.
    width: D, even.
    layout: 'interleaved': the paper's equations, PE(t, 2i) = sin(t / 10000^(2i/D)) and PE(t, 2i+1) the cosine;
      'halves': the same with all sines first (Marian); 'tensor2tensor': all sines first, with exponents i/(D/2 - 1)
      instead of 2i/D, so that the longest wavelength is 10000 times 2 pi.

  Returns:
    float32 (length, D), computed in float64.
  """
  half = width // 2
  exponents = np.arange(half) / (max(half - 1, 1) if layout == 'tensor2tensor' else half)
  angles = np.arange(length)[:, None] / 10_000.0**exponents
  axis = 2 if layout == 'interleaved' else 1
  return np.stack([np.sin(angles), np.cos(angles)], axis=axis).reshape(length, width).astype(np.float32)


def embed(table_VD: Array, tokens_BT: Array, layout: str, position_BT: Array | None = None, length: int = 0) -> Array:
  """Return sqrt(D) times the token embedding plus the sinusoids of its position (sections 3.4 and 3.5), float32.

  Args:
    table_VD: embedding table.
    tokens_BT: ids.
    layout: one of LAYOUTS.
    position_BT: position of each token; None for 0 .. T-1.
    length: number of positions, needed with `position_BT`.
  """
  x_BTD = embedding.lookup(table_VD, tokens_BT, 'float32')
  D = x_BTD.shape[-1]
  table_TD = jnp.asarray(table(length or tokens_BT.shape[1], D, layout))
  return embedding.add_positions(D**0.5 * x_BTD, table_TD, position_BT)
