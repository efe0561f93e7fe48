"""Learned mix of a model's layers (Peters et al. 2018, arXiv 1802.05365, equation 1)."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from lmx.types import Array, Params


def init(layers: int) -> Params:
  """Initialise equal weights: {'weights': zeros (layers,), 'gamma': 1}; without weights for 0 layers."""
  weights = {'weights': jnp.zeros(layers, jnp.float32)} if layers else {}
  return {**weights, 'gamma': jnp.ones((), jnp.float32)}


def mix(params: Params, layers: Sequence[Array], valid_BT: Array | None = None, *, normalise: bool = False) -> Array:
  """Return the mix of layers of equation 1, gamma * sum_j s_j h_j with s = softmax(w), (B, T, D) float32.

  "In some cases it also helped to apply layer normalization to each biLM layer before weighting". AllenNLP computes the
  mean and variance over all valid positions and features of the batch. Deviation: here they are per row, so that a
  row does not depend on its batch.

  Args:
    params: from `init`; without weights only the last layer is read.
    layers: each (B, T, D).
    valid_BT: bool, positions included in the normalisation; None: all.
    normalise: apply layer normalisation to each layer, without gain and bias.
  """
  if 'weights' not in params:
    layers = layers[-1:]
  share = jax.nn.softmax(params['weights']) if 'weights' in params else (1.0,)
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
  return (x_BTD - mean) * jax.lax.rsqrt(variance + 1e-12)
