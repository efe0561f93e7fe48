"""Bilinear interpolation of images and feature maps to another size, as in PyTorch's `interpolate`.

Rows and columns are interpolated in turn, each by a matrix with at most two nonzero weights per row. With
`align_corners` the centres of the corner pixels of both sizes coincide; without it their outer edges do, and positions
outside the outermost centres take the nearest pixel. Downsampling applies no antialiasing.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from lmx.types import Array


def weights(size: int, new: int, *, align_corners: bool) -> np.ndarray:
  """Return the interpolation matrix of a line from `size` to `new` pixels, (new, size) float32."""
  if align_corners:
    position = np.arange(new) * ((size - 1) / max(new - 1, 1))
  else:
    position = np.clip((np.arange(new) + 0.5) * (size / new) - 0.5, 0, size - 1)
  low = np.minimum(position.astype(np.int64), size - 1)
  share = position - low
  matrix = np.zeros((new, size), np.float32)
  matrix[np.arange(new), low] = 1 - share
  matrix[np.arange(new), np.minimum(low + 1, size - 1)] += share
  return matrix


def bilinear(x_BYXC: Array, size: tuple[int, int], *, align_corners: bool) -> Array:
  """Resize a feature map or image to `size` (rows, columns), in its own type; a no-op at equal size."""
  for axis, new in ((1, size[0]), (2, size[1])):
    if x_BYXC.shape[axis] != new:
      matrix = jnp.asarray(weights(x_BYXC.shape[axis], new, align_corners=align_corners), x_BYXC.dtype)
      x_BYXC = jnp.moveaxis(jnp.tensordot(matrix, x_BYXC, (1, axis)), 0, axis)
  return x_BYXC
