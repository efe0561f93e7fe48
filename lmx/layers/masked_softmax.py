"""Softmax over unmasked positions."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lmx.types import Array


def masked_softmax(scores: Array, mask: Array) -> Array:
  """Return the softmax over the last axis where `mask` is True, in at least float32; 0 elsewhere.

  Args:
    scores: scores of any shape.
    mask: bool of the same shape. A fully masked row gives zeros.
  """
  scores = scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
  highest = jnp.max(jnp.where(mask, scores, -jnp.inf), axis=-1, keepdims=True)
  highest = jax.lax.stop_gradient(jnp.where(jnp.isfinite(highest), highest, 0.0))
  # Masked scores are replaced before exp, so they cannot overflow into the gradient.
  exponentials = jnp.where(mask, jnp.exp(jnp.where(mask, scores - highest, 0.0)), 0.0)
  total = jnp.sum(exponentials, axis=-1, keepdims=True)
  return exponentials / jnp.where(total > 0, total, 1.0)
