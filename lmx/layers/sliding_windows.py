"""Scores of the pixels of images from overlapping windows at several scales, as in the code released with CFNet
(zhanghang1989/PyTorch-Encoding, encoding/models/sseg/base.py, `MultiEvalModule`, lines 111-253).

At each scale the longer side of an image has ceil(base · scale) pixels. Square windows of side W start every
int(2 W / 3) pixels; what lies outside the image is 0, black. The logits of a window and of its mirrored image are
added. The scores are their exponentials, not normalised: they are averaged over the windows of a pixel, interpolated to
the original size, and added over scales.

The images of a batch differ in size: `sizes_B2` has the (rows, columns) of each, at the upper left of a common canvas.
All interpolations are matrices of the sizes. So one program serves every image that fits in the canvas, and the
network is compiled once, for the window.

Deviation: where a logit exceeds 80, all logits of that image and scale are lowered by the same amount, and so are the
scores before it. The released float32 sums overflow from 88 on; the order of the classes is the same.

Axes: W side of a window, R rows of the output of an interpolation, S rows of its input, K scales and windows.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lmx.types import Array

_STRIDE = 2.0 / 3.0  # stride_rate
_HIGHEST_LOGIT = 80.0  # exp(88.7) is the largest float32

Read = Callable[[Array], dict[str, Array]]


class Sampling(NamedTuple):
  """Settings of the evaluation.

  Attributes:
    window: side of a window in pixels.
    base: longer side of an image at scale 1, in pixels.
    scales: factors of `base`.
    flip: also read mirrored windows.
    align_corners: see lmx/layers/interpolation.py.
  """

  window: int
  base: int
  scales: tuple[float, ...]
  flip: bool
  align_corners: bool

  @property
  def longest(self) -> int:
    """Longer side in pixels at the largest scale."""
    return max(math.ceil(self.base * scale) for scale in self.scales)

  @property
  def stride(self) -> int:
    """Pixels from one window to the next."""
    return max(1, int(self.window * _STRIDE))

  def steps(self) -> np.ndarray:
    """Return (longer side, row of windows, column of windows) of every window that a square image has, (K, 3)."""
    steps: list[tuple[int, int, int]] = []
    for scale in self.scales:
      longest = math.ceil(self.base * scale)
      count = -(-max(longest - self.window, 0) // self.stride) + 1
      steps += [(longest, row, column) for row, column in itertools.product(range(count), repeat=2)]
    return np.array(steps, np.int32)


def log_scores(cfg: Sampling, read: Read, images_BYXC: Array, sizes_B2: Array) -> dict[str, Array]:
  """Return log scores by term, (B, Y, X, C) float32, up to a constant of each image; arbitrary outside the images.

  Args:
    cfg: settings.
    read: function of windows (rows, W, W, 3), float32 of 0 to 255, to logits of their pixels by term, with two rows for
      each image if `cfg.flip`.
    images_BYXC: the images on their canvas.
    sizes_B2: rows and columns of each image, at least 1.
  """
  B, Y, X, _ = images_BYXC.shape
  mirror = 2 if cfg.flip else 1
  shapes = jax.eval_shape(read, jax.ShapeDtypeStruct((B * mirror, cfg.window, cfg.window, 3), jnp.float32))
  empty = {name: jnp.zeros((B, Y, X, shape.shape[-1]), jnp.float32) for name, shape in shapes.items()}
  shifts = {name: jnp.zeros(B, jnp.float32) for name in shapes}
  images_BYXC = images_BYXC.astype(jnp.float32)

  def add(carry: Any, step: Array) -> tuple[Any, None]:
    scaled_B2 = _scaled(sizes_B2, step[0])
    count_B2 = -(-jnp.maximum(scaled_B2 - cfg.window, 0) // cfg.stride) + 1
    live_B = jnp.all(step[1:] < count_B2, axis=1)
    window = functools.partial(_add_window, cfg, read, images_BYXC, sizes_B2, scaled_B2, count_B2, step[1:], live_B)
    return jax.lax.cond(jnp.any(live_B), window, lambda carry: carry, carry), None

  (totals, _), _ = jax.lax.scan(add, (empty, shifts), jnp.asarray(cfg.steps()))
  smallest = jnp.finfo(jnp.float32).tiny
  return {name: jnp.log(jnp.maximum(total_BYXC, smallest)) for name, total_BYXC in totals.items()}


def _scaled(sizes_B2: Array, longest: Array) -> Array:
  """Return the rows and columns of images at a scale, (B, 2): the shorter side is rounded half up."""
  long_B1 = jnp.max(sizes_B2, axis=1, keepdims=True)
  return jnp.maximum((2 * sizes_B2 * longest + long_B1) // (2 * long_B1), 1)


def _add_window(
  cfg: Sampling,
  read: Read,
  images_BYXC: Array,
  sizes_B2: Array,
  scaled_B2: Array,
  count_B2: Array,
  place: Array,
  live_B: Array,
  carry: Any,
) -> Any:
  """Return (scores, shifts) by term with those of one window of each image.

  Args:
    scaled_B2: rows and columns of the images at the scale.
    count_B2: rows and columns of windows that they have.
    place: row and column of the window among them.
    live_B: the image has this window.
  """
  B, Y, X, _ = images_BYXC.shape
  inside_W, down, up = jnp.arange(cfg.window), [], []
  for axis, side in enumerate((Y, X)):
    size_B, new_B, position_W = sizes_B2[:, axis], scaled_B2[:, axis], place[axis] * cfg.stride + inside_W
    down.append(_matrix(size_B, new_B, position_W, jnp.arange(side), align_corners=cfg.align_corners))
    up_BRW = _matrix(new_B, size_B, jnp.arange(side), position_W, align_corners=cfg.align_corners)
    up.append(up_BRW / _windows_over(cfg, count_B2[:, axis, None], position_W)[:, None])
  product = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
  windows_BWVC = product('BWY,BYXC,BVX->BWVC', down[0], images_BYXC, down[1])
  if cfg.flip:
    both = jnp.stack([windows_BWVC, windows_BWVC[:, :, ::-1]], axis=1)  # adjacent rows, which stay on one device
    logits = {name: x.reshape(B, 2, *x.shape[1:]) for name, x in read(both.reshape(-1, *both.shape[2:])).items()}
    logits = {name: x[:, 0] + x[:, 1, :, ::-1] for name, x in logits.items()}
  else:
    logits = read(windows_BWVC)
  totals, shifts = dict(carry[0]), dict(carry[1])
  for name, x_BWVC in logits.items():
    shift_B = jnp.maximum(shifts[name], jnp.max(x_BWVC, axis=(1, 2, 3)) - _HIGHEST_LOGIT)
    scores_BWVC = jnp.exp(x_BWVC - shift_B[:, None, None, None]) * live_B[:, None, None, None]
    lowered = jnp.exp(shifts[name] - shift_B)[:, None, None, None]
    totals[name] = totals[name] * lowered + product('BYW,BWVC,BXV->BYXC', up[0], scores_BWVC, up[1])
    shifts[name] = shift_B
  return totals, shifts


def _matrix(size_B: Array, new_B: Array, row_R: Array, column_S: Array, *, align_corners: bool) -> Array:
  """Return rows and columns of the interpolation matrices of lines from `size` to `new` pixels, (B, R, S) float32.

  Rows from `new` on are 0. Positions are fractions of integers, so that they are exact.
  """
  size_B1, new_B1 = size_B[:, None], new_B[:, None]
  if align_corners:
    above_BR, below_B1 = row_R * (size_B1 - 1), jnp.maximum(new_B1 - 1, 1)
  else:
    below_B1 = 2 * new_B1
    above_BR = jnp.clip((2 * row_R + 1) * size_B1 - new_B1, 0, below_B1 * (size_B1 - 1))
  low_BR1 = (above_BR // below_B1)[..., None]
  share_BR1 = ((above_BR % below_B1) / below_B1)[..., None]
  matrix_BRS = jnp.where(column_S == low_BR1, 1 - share_BR1, 0.0) + jnp.where(column_S == low_BR1 + 1, share_BR1, 0.0)
  return jnp.where((row_R < new_B1)[..., None], matrix_BRS, 0.0)


def _windows_over(cfg: Sampling, count_B1: Array, position_W: Array) -> Array:
  """Return the number of windows that contain each position of a line, (B, W)."""
  last = jnp.minimum(position_W // cfg.stride, count_B1 - 1)
  first = jnp.maximum((position_W - cfg.window) // cfg.stride + 1, 0)
  return jnp.maximum(last - first + 1, 1)
