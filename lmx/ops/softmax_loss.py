"""Softmax losses of many tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lmx.ops.operation import Operation
from lmx.types import Array


@Operation
def target_logits(logits_BTV: Array, targets_BT: Array) -> Array:
  """Return the logit of each target, (B, T)."""
  return jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)[..., 0]


@Operation
def log_normalizer(logits_BTV: Array) -> Array:
  """Return log(sum(exp(logits))) over the vocabulary, (B, T)."""
  return jax.nn.logsumexp(logits_BTV, axis=-1)


@Operation
def is_best(logits_BTV: Array, targets_BT: Array) -> Array:
  """Return argmax(logits) == targets, (B, T) float32; ties go to the first token."""
  return (jnp.argmax(logits_BTV, axis=-1) == targets_BT).astype(jnp.float32)


@Operation
def token_losses(score: Callable[[Array, Array], Any], x_BTD: Array, targets_BT: Array) -> Any:
  """Return `score(x_BTD, targets_BT)`, the loss of every token, a pytree of (B, T) arrays.

  Args:
    score: loss of tokens that does not depend on the others, so it may be applied to (B, M) of them at a time.
    x_BTD: last hidden layer.
    targets_BT: labels.
  """
  return score(x_BTD, targets_BT)


@Operation
def weighted_sum(
  score: Callable[[Array, Array], tuple[Array, Any]], x_BTD: Array, targets_BT: Array, weights_BT: Array
) -> tuple[Array, Any]:
  """Return a weighted sum of losses in float32, and metrics (B, T) without gradients.

  Args:
    score: function of `x_BMD` and `targets_BM` to (losses, a pytree of metrics), each (B, M), of any M tokens.
    x_BTD: last hidden layer.
    targets_BT: labels.
    weights_BT: weights of the losses, without gradients.
  """
  losses_BT, metrics = score(x_BTD, targets_BT)
  return jnp.sum(losses_BT * weights_BT, dtype=jnp.float32), jax.lax.stop_gradient(metrics)
