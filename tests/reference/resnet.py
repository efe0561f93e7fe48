"""Residual networks in NumPy float64, one image, one output position at a time (He et al. 2016, at evaluation)."""

from __future__ import annotations

import numpy as np

EXPANSION = {'basic': 1, 'bottleneck': 4}


def windows(x_YXD, size, stride, dilation, fill):
  """Yield (row, column, the values that a kernel centred there reads, (size, size, D)) of every output."""
  margin = dilation * (size // 2)
  padded = np.pad(x_YXD, ((margin, margin), (margin, margin), (0, 0)), constant_values=fill)
  for row, top in enumerate(range(0, x_YXD.shape[0], stride)):
    for column, left in enumerate(range(0, x_YXD.shape[1], stride)):
      rows, columns = (slice(start, start + 2 * margin + 1, dilation) for start in (top, left))
      yield row, column, padded[rows, columns]


def _over(function, x_YXD, size, stride, dilation, fill, width):
  y, x = (-(-n // stride) for n in x_YXD.shape[:2])
  out = np.zeros((y, x, width))
  for row, column, values in windows(x_YXD, size, stride, dilation, fill):
    out[row, column] = function(values)
  return out


def convolve(kernel, x_YXD, stride=1, dilation=1):
  product = lambda values: np.einsum('YXI,YXIO->O', values, kernel)
  return _over(product, x_YXD, kernel.shape[0], stride, dilation, 0.0, kernel.shape[-1])


def max_pool(x_YXD):
  return _over(lambda values: values.max(axis=(0, 1)), x_YXD, 3, 2, 1, -np.inf, x_YXD.shape[-1])


def average_pool(x_YXD):
  """The mean over the positions of a window that are inside."""
  mean = lambda values: np.nanmean(values, axis=(0, 1))
  return _over(mean, x_YXD, 3, 2, 1, np.nan, x_YXD.shape[-1])


def batch_norm(p, x_YXD, eps=1e-5):
  return (x_YXD - p['mean']) / np.sqrt(p['variance'] + eps) * p['scale'] + p['bias']


def group_norm(p, x_YXD, groups, eps=1e-5):
  out = np.zeros(x_YXD.shape)
  for part in np.split(np.arange(x_YXD.shape[-1]), groups):
    values = x_YXD[..., part]
    out[..., part] = (values - values.mean()) / np.sqrt(values.var() + eps)
  return out * p['scale'] + p['bias']


def unit(p, x_YXD, stride=1, dilation=1):
  return batch_norm(p['norm'], convolve(p['kernel'], x_YXD, stride, dilation))


def relu(x):
  return np.maximum(x, 0.0)


def block(kind, p, x, stride, first, dilation):
  """A block whose first 3x3 convolution has the stride and the dilation `first`, the others `dilation`."""
  if kind == 'basic':
    y = unit(p['conv_2'], relu(unit(p['conv_1'], x, stride, first)), 1, dilation)
  else:
    y = relu(unit(p['conv_1'], x))
    y = unit(p['conv_3'], relu(unit(p['conv_2'], y, stride, first)))
  return relu(y + (unit(p['shortcut'], x, stride) if 'shortcut' in p else x))


def network(params, image_YXD, kind, plan):
  """Outputs of the stem and of each stage.

  Args:
    params: those of lmx/layers/resnet.py.
    image_YXD: normalised.
    kind: 'basic' or 'bottleneck'.
    plan: of each stage (stride, dilation of the convolution with the stride, dilation of all others).
  """
  x = image_YXD
  for i, name in enumerate(sorted(params['stem'])):
    x = relu(unit(params['stem'][name], x, 1 if i else 2))
  outputs = [max_pool(x)]
  for i, (stride, first, dilation) in enumerate(plan):
    x = outputs[-1]
    for j, name in enumerate(sorted(params[f'layer_{i:02d}'])):
      at = (1, dilation, dilation) if j else (stride, first, dilation)
      x = block(kind, params[f'layer_{i:02d}'][name], x, *at)
    outputs.append(x)
  return outputs
