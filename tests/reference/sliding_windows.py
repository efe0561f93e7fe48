"""Evaluation by windows at several scales of PyTorch-Encoding's `MultiEvalModule`, one image and window at a time."""

from __future__ import annotations

import math

import numpy as np


def resize(image_YXC, rows, columns):
  """Interpolate linearly; the corner pixels of both sizes coincide."""
  for axis, new in ((0, rows), (1, columns)):
    size = image_YXC.shape[axis]
    position = np.arange(new) * (size - 1) / max(new - 1, 1)
    low = np.minimum(np.floor(position).astype(int), size - 1)
    share = (position - low).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
    parts = (np.take(image_YXC, np.minimum(low + k, size - 1), axis) for k in (0, 1))
    image_YXC = next(parts) * (1 - share) + next(parts) * share
  return image_YXC


def pad(image_YXC, side):
  """Add black on the right and below up to `side`."""
  rows, columns = (max(side - size, 0) for size in image_YXC.shape[:2])
  return np.pad(image_YXC, ((0, rows), (0, columns), (0, 0)))


def scores(network, image_YXC, *, window, base, scales, flip):
  """Return the sum of the scales' scores, (Y, X, C); `network` maps a window to its logits."""

  def read(window_YXC):
    logits = network(window_YXC)
    return np.exp(logits + network(window_YXC[:, ::-1])[:, ::-1] if flip else logits)

  Y, X, _ = image_YXC.shape
  total, stride = 0.0, int(window * (2.0 / 3.0))
  for scale in scales:
    longest = math.ceil(base * scale)
    height, width = (longest, int(X * longest / Y + 0.5)) if Y > X else (int(Y * longest / X + 0.5), longest)
    padded = pad(resize(image_YXC.astype(np.float64), height, width), window)
    tall, wide, _ = padded.shape
    sums, counts = 0.0, np.zeros((tall, wide, 1))
    for i in range(math.ceil((tall - window) / stride) + 1):
      for j in range(math.ceil((wide - window) / stride) + 1):
        place = slice(i * stride, i * stride + window), slice(j * stride, j * stride + window)
        part = padded[place]
        found = read(pad(part, window))[: part.shape[0], : part.shape[1]]
        sums = sums + np.zeros((tall, wide, found.shape[-1]))
        sums[place] += found
        counts[place] += 1
    total = total + resize((sums / counts)[:height, :width], Y, X)
  return total
