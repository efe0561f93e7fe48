"""Parameters for tests drawn by NumPy: what `jax.random` draws is compiled first, a program for each shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

UNIT = ('scale', 'variance')


def params(init: Callable[..., Any], *args: Any, std: float = 0.2, seed: int = 0) -> Any:
  """Return parameters of the structure that `init(*args, key)` has: normal, scales and variances about 1."""
  rng = np.random.default_rng(seed)

  def leaf(path, x):
    noise = std * rng.standard_normal(x.shape)
    return (1 + np.abs(noise) if path and getattr(path[-1], 'key', '') in UNIT else noise).astype(x.dtype)

  shapes = jax.eval_shape(lambda key: init(*args, key), jax.random.key(0))
  return jax.tree_util.tree_map_with_path(leaf, shapes)
