"""ELMo's mix of layers (Peters et al. 2018, arXiv 1802.05365, section 3.2, equation 1).

gamma * sum_j s_j h_j with s = softmax(w); "in some cases it also helped to apply layer normalization to each biLM
layer before weighting". As in AllenNLP the normalisation is over all valid positions and features of the batch's row
set. Deviation: ours is over the positions of one row, so that a row does not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from lmx.types import Array, Params

_EPS = 1e-12


def init(layers: int) -> Params:
  """Equal weights: {'weights': zeros (layers,), 'gamma': 1}."""
  return {'weights': jnp.zeros(layers, jnp.float32), 'gamma': jnp.ones((), jnp.float32)}


def apply(params: Params, layers: Sequence[Array], valid_BT: Array | None = None, *, normalise: bool = False) -> Array:
  """The mix, (B, T, D) float32.

  Args:
    params: of `init`.
    layers: each (B, T, D).
    valid_BT: bool, positions that the normalisation counts; None: all.
    normalise: layer normalisation of each layer, without gain and bias.
  """
  share = jax.nn.softmax(params['weights'])
  mask_BT1 = None if valid_BT is None else valid_BT[..., None].astype(jnp.float32)
  total = 0.0
  for s, x_BTD in zip(share, layers, strict=True):
    x_BTD = x_BTD.astype(jnp.float32)
    total = total + s * (_normalised(x_BTD, mask_BT1) if normalise else x_BTD)
  return params['gamma'] * total


def _normalised(x_BTD: Array, mask_BT1: Array | None) -> Array:
  mask_BT1 = jnp.ones((*x_BTD.shape[:2], 1), jnp.float32) if mask_BT1 is None else mask_BT1
  count = jnp.maximum(jnp.sum(mask_BT1, axis=(1, 2), keepdims=True), 1.0) * x_BTD.shape[-1]
  mean = jnp.sum(x_BTD * mask_BT1, axis=(1, 2), keepdims=True) / count
  variance = jnp.sum(((x_BTD - mean) * mask_BT1) ** 2, axis=(1, 2), keepdims=True) / count
  return (x_BTD - mean) * jax.lax.rsqrt(variance + _EPS)
