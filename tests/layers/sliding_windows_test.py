"""Evaluation by windows at several scales, compared with restatements of PyTorch-Encoding's `MultiEvalModule`."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.layers import interpolation, sliding_windows
from tests.reference import sliding_windows as reference

SIZES = ((24, 40), (37, 21), (32, 32), (9, 48))  # (rows, columns)
CFG = sliding_windows.Sampling(18, 30, (0.5, 1.0, 1.25, 1.75), True, True)
KERNEL = np.random.default_rng(3).normal(0, 0.02, (3, 3, 3, 4)).astype(np.float32)


def network(images_BYXC, kernel=KERNEL):
  """Return logits that depend on neighbours, on the mean of the window and on the column: (B, Y, X, 4)."""
  x_BYXC = images_BYXC - 90.0
  y_BYXC = jax.lax.conv_general_dilated(x_BYXC, kernel, (1, 1), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC'))
  mean_B11C = jnp.mean(x_BYXC, axis=(1, 2), keepdims=True) @ kernel[1, 1]
  column_X1 = jnp.linspace(0, 1, x_BYXC.shape[2])[:, None] * jnp.arange(4)
  return {'nll': y_BYXC / 2 + mean_B11C + column_X1}


def images(sizes=SIZES, side=48):
  rng, canvas = np.random.default_rng(0), np.zeros((len(sizes), side, side, 3), np.uint8)
  for b, (rows, columns) in enumerate(sizes):
    canvas[b, :rows, :columns] = rng.integers(0, 256, (rows, columns, 3))
  return canvas, np.array(sizes, np.int32)


@functools.partial(jax.jit, static_argnums=0)
def log_scores(cfg, images_BYXC, sizes_B2, kernel=KERNEL):
  read = lambda x_BWVC: network(x_BWVC, kernel)
  return sliding_windows.log_scores(cfg, read, images_BYXC, sizes_B2)['nll']


def shares(log_scores_YXC):
  return np.asarray(jax.nn.softmax(log_scores_YXC))


@pytest.mark.parametrize('cfg', [CFG, CFG._replace(flip=False, scales=(1.0, 0.3), base=19)])
def test_scores_equal_the_released_evaluation(cfg):
  canvas, sizes = images()
  found = np.exp(log_scores(cfg, canvas, sizes))
  read = jax.jit(lambda x_YXC: network(x_YXC[None])['nll'][0])
  for b, (rows, columns) in enumerate(SIZES):
    expected = reference.scores(
      lambda x_YXC: np.asarray(read(x_YXC.astype(np.float32)), np.float64),
      canvas[b, :rows, :columns],
      window=cfg.window,
      base=cfg.base,
      scales=cfg.scales,
      flip=cfg.flip,
    )
    np.testing.assert_allclose(found[b, :rows, :columns], expected, rtol=1e-5, err_msg=str(SIZES[b]))


def test_images_on_one_canvas_do_not_change_one_another():
  canvas, sizes = images()
  together = shares(log_scores(CFG, canvas, sizes))
  larger = np.zeros((4, 64, 64, 3), np.uint8)
  larger[:, :48, :48] = canvas
  alone = shares(log_scores(CFG, larger, sizes))
  for b, (rows, columns) in enumerate(SIZES):
    np.testing.assert_allclose(together[b, :rows, :columns], alone[b, :rows, :columns], atol=1e-6)


def test_large_logits_do_not_overflow():
  """The sums of exponentials are infinite in float32; the shares of the classes are the same."""
  canvas, sizes = images()
  canvas = canvas // 4 + 190  # all logits are high
  kernel = np.zeros_like(KERNEL)
  kernel[1, 1] = np.eye(3, 4) * 0.8
  found = shares(log_scores(CFG, canvas, sizes, kernel))
  read = jax.jit(lambda x_YXC: network(x_YXC[None], kernel)['nll'][0])
  for b, (rows, columns) in enumerate(SIZES):
    network_ = lambda x_YXC: np.asarray(read(x_YXC.astype(np.float32)), np.float64)
    expected = reference.scores(
      network_, canvas[b, :rows, :columns], window=CFG.window, base=CFG.base, scales=CFG.scales, flip=True
    )
    assert expected.max() > np.finfo(np.float32).max
    np.testing.assert_allclose(
      found[b, :rows, :columns], expected / expected.sum(axis=-1, keepdims=True), atol=1e-4, err_msg=str(SIZES[b])
    )


@pytest.mark.parametrize('align_corners', [True, False])
def test_matrices_of_sizes_equal_those_of_one_size(align_corners):
  size, new = np.array([7, 12, 1, 5]), np.array([15, 5, 6, 1])
  matrix = jax.jit(sliding_windows._matrix, static_argnames='align_corners')
  found = matrix(size, new, jnp.arange(16), jnp.arange(12), align_corners=align_corners)
  for b, (a, c) in enumerate(zip(size, new, strict=True)):
    expected = np.zeros((16, 12))
    expected[:c, :a] = interpolation.weights(a, c, align_corners=align_corners)
    np.testing.assert_allclose(found[b], expected, atol=1e-6)


@pytest.mark.peer
def test_scores_equal_the_released_evaluation_in_torch():
  """A restatement of `MultiEvalModule` with PyTorch's own interpolation and padding, in float64."""
  torch = pytest.importorskip('torch')
  functional = torch.nn.functional
  mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
  channels = lambda x: x.double().reshape(1, 3, 1, 1)
  weight = torch.tensor(KERNEL).double().permute(3, 2, 0, 1)

  def forward(x):  # of normalised images
    x = (x * channels(std) + channels(mean)) * 255 - 90
    inside = functional.conv2d(functional.pad(x, (1, 1, 1, 1)), weight) / 2
    pooled = torch.einsum('bc,oc->bo', x.mean(dim=(2, 3)), weight[:, :, 1, 1])[:, :, None, None]
    column = torch.linspace(0, 1, x.shape[3]).double()[None] * torch.arange(4)[:, None]
    return inside + pooled + column[None, :, None]

  resize = lambda x, size: functional.interpolate(x, size, mode='bilinear', align_corners=True)

  def pad(x, side):
    rows, columns = (max(side - x.shape[k], 0) for k in (2, 3))
    values = (-mean / std).double()
    return torch.stack([functional.pad(x[:, c], (0, columns, 0, rows), value=float(values[c])) for c in range(3)], 1)

  read = lambda x: (forward(x) + forward(x.flip(3)).flip(3)).exp()
  canvas, sizes = images()
  found = np.exp(log_scores(CFG, canvas, sizes))
  side, stride = CFG.window, int(CFG.window * (2.0 / 3.0))
  for b, (h, w) in enumerate(SIZES):
    image = torch.tensor(canvas[b, :h, :w]).double().permute(2, 0, 1)[None] / 255
    image, total = (image - channels(mean)) / channels(std), 0
    for scale in CFG.scales:
      long = math.ceil(CFG.base * scale)
      height, width = (long, int(1.0 * w * long / h + 0.5)) if h > w else (int(1.0 * h * long / w + 0.5), long)
      current = pad(resize(image, (height, width)), side)
      tall, wide = current.shape[2:]
      outputs, count = torch.zeros(1, 4, tall, wide).double(), torch.zeros(1, 1, tall, wide).double()
      for top in range(0, math.ceil((tall - side) / stride) * stride + 1, stride):
        for left in range(0, math.ceil((wide - side) / stride) * stride + 1, stride):
          part = current[:, :, top : top + side, left : left + side]
          rows, columns = part.shape[2:]
          outputs[:, :, top : top + rows, left : left + columns] += read(pad(part, side))[:, :, :rows, :columns]
          count[:, :, top : top + rows, left : left + columns] += 1
      total = total + resize((outputs / count)[:, :, :height, :width], (h, w))
    expected = total[0].permute(1, 2, 0).numpy()
    np.testing.assert_allclose(found[b, :h, :w], expected, rtol=1e-5, err_msg=str((h, w)))
