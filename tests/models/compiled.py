"""Models run as one program: operation by operation, JAX compiles each of them alone."""

from __future__ import annotations

import functools

import jax
import numpy as np


@functools.partial(jax.jit, static_argnums=(0, 1))
def run(model, cfg, params, batch, state):
  """(logits, state) of a model's module."""
  features, state = model.apply(cfg, params, batch, state)
  return model.logits(cfg, params, features), state


def logits(model, cfg, params, batch, state=()):
  """(logits as a NumPy array, state) of a model's module."""
  found, state = run(model, cfg, params, batch, state)
  return np.asarray(found), state
