"""Neighbour sums (lmx/ops/neighbours.py) and their gradients, which XLA on a CPU must not fuse with other operations.

As a matrix product, either sum multiplies each of T centres with S slots, at most W of which are neighbours (with 32
centres 10 of 42). As W multiplications of neighbouring rows in one pass, they take 13 and 16 microseconds on a core
instead of 57 and 41 (8 rows of 32 centres, D 100).

Axes: as in lmx/ops/neighbours.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.experimental import xla_metadata

from lmx.kernels import devices
from lmx.ops import neighbours
from lmx.types import Array


@jax.custom_vjp
def gather(near_BWT: Array, x_BSD: Array) -> Array:
  """Compute `neighbours.gather`."""
  return _unfused(neighbours.gather.equation, near_BWT, x_BSD)


@jax.custom_vjp
def spread(near_BWT: Array, y_BTD: Array) -> Array:
  """Compute `neighbours.spread`."""
  return _unfused(neighbours.spread_padded, *_unfused(neighbours.pad, near_BWT, y_BTD))


def _unfused(f: Callable[..., Any], *args: Any) -> Any:
  """Apply a function on a CPU as a separate call, which XLA cannot fuse; fused, it would be recomputed."""
  if not devices.is_one_device('cpu'):
    return f(*args)
  with xla_metadata.set_xla_metadata(inlineable='false'):
    return jax.jit(f)(*args)


def _gather_forward(near_BWT: Any, x_BSD: Any) -> Any:
  return gather(near_BWT, x_BSD), near_BWT


def _gather_backward(near_BWT: Any, dy_BTD: Any) -> Any:
  return None, spread(near_BWT, dy_BTD)


def _spread_forward(near_BWT: Any, y_BTD: Any) -> Any:
  return spread(near_BWT, y_BTD), near_BWT


def _spread_backward(near_BWT: Any, dx_BSD: Any) -> Any:
  return None, gather(near_BWT, dx_BSD)


gather.defvjp(_gather_forward, _gather_backward)
spread.defvjp(_spread_forward, _spread_backward)
