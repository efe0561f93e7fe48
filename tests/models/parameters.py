"""Random parameters of a model, drawn by NumPy so that no program is compiled for them."""

from __future__ import annotations

import functools

import jax
import numpy as np


@functools.cache
def shapes(model, cfg):
  """The tree of `model.init`, shapes alone."""
  return jax.eval_shape(lambda: model.init(cfg, jax.random.key(0)))


def draw(model, cfg, seed=0, spread=1.0):
  """Normal parameters in the tree of `model.init`: gains about 1, biases about 0, none of them at its start.

  Args:
    model: module of a model.
    cfg: its config.
    seed: of the draw.
    spread: factor on the deviations: 0.1 of vectors, one over the root of the longest axis of everything else.
  """
  rng = np.random.default_rng(seed)

  def leaf(path, x):
    deviation = spread * (0.1 if x.ndim < 2 else max(x.shape) ** -0.5)
    return np.asarray((path[-1].key == 'scale') + deviation * rng.standard_normal(x.shape), x.dtype)

  return jax.tree_util.tree_map_with_path(leaf, shapes(model, cfg))
