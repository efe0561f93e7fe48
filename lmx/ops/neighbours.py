"""Sums over the neighbours of centres, word2vec's windows.

With `pairs_ST` 1 where slot s is in the window of centre t, `gather` is `einsum('ST,SD->TD')` and `spread`
`einsum('ST,TD->SD')`, each the gradient of the other. Only the slots that can be neighbours are read.

Axes: T centres; S = T + W context slots, of which slot t + W / 2 is centre t; W neighbours of a centre in their order.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import jax.numpy as jnp

from lmx.ops.operation import Operation
from lmx.types import Array


def offsets(neighbours: int) -> Iterator[tuple[int, int]]:
  """Yield each of the W neighbours with its slot, relative to the first slot of the window."""
  for w in range(neighbours):
    yield w, w + (w >= neighbours // 2)


@Operation
def gather(near_BWT: Array, x_BSD: Array) -> Array:
  """Return each centre's sum over its neighbours, (..., T, D).

  Args:
    near_BWT: weight of each neighbour, (..., W, T); it gets no gradient.
    x_BSD: vectors of the slots, (..., S, D).
  """
  W, T = near_BWT.shape[-2:]
  parts = [near_BWT[..., w, :, None] * x_BSD[..., slot : slot + T, :] for w, slot in offsets(W)]
  return functools.reduce(jnp.add, parts)


@Operation
def spread(near_BWT: Array, y_BTD: Array) -> Array:
  """Return each slot's sum over the centres whose neighbour it is, (..., S, D).

  Args:
    near_BWT: weight of each neighbour, (..., W, T); it gets no gradient.
    y_BTD: vectors of the centres, (..., T, D).
  """
  return spread_padded(*pad(near_BWT, y_BTD))


def pad(near_BWT: Array, y_BTD: Array) -> tuple[Array, Array]:
  """Return both operands of `spread` with W zeros on each side of the centres."""
  W = near_BWT.shape[-2]
  fill = [(0, 0)] * (near_BWT.ndim - 2)
  return jnp.pad(near_BWT, [*fill, (0, 0), (W, W)]), jnp.pad(y_BTD, [*fill, (W, W), (0, 0)])


def spread_padded(near: Array, y: Array) -> Array:
  """Return `spread` of operands from `pad`."""
  W = near.shape[-2]
  S = y.shape[-2] - W
  first = ((w, W - slot) for w, slot in offsets(W))
  parts = [near[..., w, at : at + S, None] * y[..., at : at + S, :] for w, at in first]
  return functools.reduce(jnp.add, parts)
