"""Parameters for tests drawn by NumPy: what `jax.random` draws is compiled first, a program for each shape."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

GAINS = ('scale', 'gamma')


@functools.lru_cache(64)
def shapes(init: Callable[..., Any], *args: Any) -> Any:
  """The tree that `init(*args, key)` returns, shapes alone."""
  return jax.eval_shape(lambda key: init(*args, key), jax.random.key(0))


def by_size(spread: float = 1.0) -> Callable[[tuple[int, ...]], float]:
  """Deviations for `params`: 0.1 of vectors, one over the root of the longest axis of all else, times `spread`."""
  return lambda shape: spread * (0.1 if len(shape) < 2 else max(shape) ** -0.5)


def params(
  init: Callable[..., Any], *args: Any, std: float | Callable[[tuple[int, ...]], float] = 0.2, seed: int = 0
) -> Any:
  """Normal parameters in the tree that `init(*args, key)` returns; gains are about 1, variances above.

  Args:
    init: takes a key last.
    args: hashable arguments before it.
    std: deviation, or a function of the shape.
    seed: of the draw.
  """
  rng = np.random.default_rng(seed)

  def leaf(path, x):
    noise = (std(x.shape) if callable(std) else std) * rng.standard_normal(x.shape)
    name = getattr(path[-1], 'key', '') if path else ''
    return np.asarray(1 + np.abs(noise) if name == 'variance' else (name in GAINS) + noise, x.dtype)

  return jax.tree_util.tree_map_with_path(leaf, shapes(init, *args))
