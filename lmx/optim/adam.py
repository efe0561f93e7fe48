"""Variants of Adam that papers used and optax lacks.

Kingma and Ba 2015, arXiv 1412.6980. With m and v the running means of the gradient and its square after t updates,
c1 = 1 - b1**t and c2 = 1 - b2**t, the update (before the learning rate) is
  optax, PyTorch, algorithm 1            (m / c1) / (sqrt(v / c2) + eps)
  TensorFlow, released GPT, section 2    (m * sqrt(c2) / c1) / (sqrt(v) + eps)
  released BERT, XLNet                   m / (sqrt(v) + eps)
The last has no bias correction (google-research/bert, `AdamWeightDecayOptimizer`). So its first updates are larger,
by up to (1 - b1) / sqrt(1 - b2), which is 3.2 for (0.9, 0.999).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from lmx.types import Array


def bias_correction(b1: float, b2: float, count: Array) -> Array:
  """Return sqrt(c2) / c1 at update `count`, 1 for the first: the factor of the rate in TensorFlow's form."""
  t = jnp.asarray(count, jnp.float32)
  return jnp.sqrt(1.0 - b2**t) / (1.0 - b1**t)


def scale_by_raw_adam(b1: float, b2: float, eps: float, *, corrected: bool) -> optax.GradientTransformation:
  """Return Adam with `eps` added to the uncorrected square root.

  Args:
    b1: decay of the mean of the gradient.
    b2: decay of the mean of its square.
    eps: added to sqrt(v).
    corrected: True for TensorFlow's form, False for BERT's.
  """

  def init(params: Any) -> Any:
    zeros = lambda: jax.tree.map(jnp.zeros_like, params)
    return optax.ScaleByAdamState(jnp.zeros((), jnp.int32), zeros(), zeros())

  def update(updates: Any, state: Any, params: Any = None) -> Any:
    del params
    count = optax.safe_increment(state.count)
    mu = jax.tree.map(lambda g, m: b1 * m + (1.0 - b1) * g, updates, state.mu)
    nu = jax.tree.map(lambda g, v: b2 * v + (1.0 - b2) * jnp.square(g), updates, state.nu)
    scale = bias_correction(b1, b2, count) if corrected else jnp.float32(1)
    updates = jax.tree.map(lambda m, v: scale * m / (jnp.sqrt(v) + eps), mu, nu)
    return updates, optax.ScaleByAdamState(count, mu, nu)

  return optax.GradientTransformation(init, update)
