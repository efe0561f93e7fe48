"""Residual networks for images (He et al. 2016, arXiv 1512.03385), dilated to a given output stride.

A block is y = relu(F(x) + x), with a projection of x by a 1x1 convolution where the shapes differ (section 3.3, option
B). F is two 3x3 convolutions ('basic') or 1x1, 3x3 and 1x1 ('bottleneck', figure 5), each normalised, all but the last
with a ReLU after it. A block's stride is in its first 3x3 convolution, as in torchvision and CFNet's released code; the
paper puts it in the first 1x1.

Dilation (Yu, Koltun and Funkhouser 2017, arXiv 1705.09914): beyond output stride `stride`, a stage has stride 1 and
doubles the dilation. The convolution that loses its stride keeps the previous stage's dilation. So every second output
position equals the strided network's. torchvision's `replace_stride_with_dilation` and the released code (without
multi-grid) do the same for bottlenecks.

The stem is a 7x7 convolution of stride 2, or 'deep', three 3x3 convolutions of which the last is twice as wide (the
nets named resnet50s, resnet101s of the released code), and a maximum over 3x3 of stride 2. Convolutions have no bias
and are initialised normal with variance 2 / (k^2 outputs) (He et al. 2015, arXiv 1502.01852, over outputs), as in both.

Axes: Y, X rows and columns; D channels; I, O channels before and after a convolution.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from lmx import ranges
from lmx.errors import InputError, check_choice, check_least
from lmx.layers import normalization
from lmx.layers.normalization import Rows
from lmx.placement import constrain
from lmx.types import Array, Params

EXPANSION = {'basic': 1, 'bottleneck': 4}  # channels of a block's output, in its widths
STEMS = ('7x7', 'deep')
STRIDES = (4, 8, 16, 32)


@dataclasses.dataclass(frozen=True)
class Config(normalization.Config):
  """Sizes of the network; the Config of a model extends it. The attributes are those of `normalization.Config`, and

  Attributes:
    block: 'basic' or 'bottleneck'.
    blocks: number of blocks of each stage.
    widths: channels of the 3x3 convolutions of each stage.
    stem: '7x7' or 'deep'.
    stem_width: channels of the stem; the last convolution of a deep one has twice as many.
    stride: output stride in pixels: 4, 8, 16 or 32; later stages are dilated.
    remat: recompute each block's activations in the backward pass.
    dtype: compute type.
  """

  block: str = 'bottleneck'
  blocks: tuple[Annotated[int, ranges.Limits(1)], ...] = (3, 4, 6, 3)  # ResNet-50, arXiv 1512.03385, table 1
  widths: tuple[Annotated[int, ranges.Limits(1)], ...] = (64, 128, 256, 512)
  stem: str = '7x7'
  stem_width: int = 64
  stride: int = 8
  remat: bool = False
  dtype: str = 'float32'

  def __post_init__(self) -> None:
    super().__post_init__()
    check_choice('model.block', self.block, EXPANSION)
    check_choice('model.stem', self.stem, STEMS)
    check_least('model', self, stem_width=1)
    if self.stride not in STRIDES:
      raise InputError(f'model.stride: got {self.stride}; expected one of {", ".join(map(str, STRIDES))}')
    for name in ('blocks', 'widths'):
      sizes = getattr(self, name)
      if len(sizes) < 2 or min(sizes) < 1:
        raise InputError(f'model.{name}: got {sizes}; expected at least 2 stages, and at least 1 in each')
    if len(self.blocks) != len(self.widths):
      raise InputError(f'model.widths: got {len(self.widths)}; expected {len(self.blocks)}, one for each of blocks')


class Convolution(NamedTuple):
  """Convolution or max-pooling layer.

  Attributes:
    size: rows and columns of its kernel, odd.
    stride: input positions per output position.
    dilation: distance between the input positions of a kernel.
    width: output channels.
  """

  size: int
  stride: int = 1
  dilation: int = 1
  width: int = 0

  @property
  def padding(self) -> int:
    """Zero padding per side, which centres each output on its input window."""
    return self.dilation * (self.size - 1) // 2


class Block(NamedTuple):
  """Convolutions of a residual block, and the projection of its input or None."""

  convolutions: tuple[Convolution, ...]
  shortcut: Convolution | None


POOL = Convolution(3, 2)  # the maximum after the stem


def stem(cfg: Config) -> tuple[Convolution, ...]:
  """Return the convolutions of the stem, before the maximum."""
  width = cfg.stem_width
  if cfg.stem == '7x7':
    return (Convolution(7, 2, width=width),)
  return Convolution(3, 2, width=width), Convolution(3, width=width), Convolution(3, width=2 * width)


def stages(cfg: Config) -> list[list[Block]]:
  """Return each stage's blocks."""
  width_in, total, dilation, found = stem(cfg)[-1].width, 4, 1, []
  for i, (count, width) in enumerate(zip(cfg.blocks, cfg.widths, strict=True)):
    before, stride = dilation, 1
    if i and 2 * total > cfg.stride:
      dilation *= 2
    elif i:
      stride, total = 2, 2 * total
    out = width * EXPANSION[cfg.block]
    first = _block(cfg.block, width, stride, before, dilation)
    project = stride > 1 or width_in != out
    blocks = [Block(first, Convolution(1, stride, width=out) if project else None)]
    found.append(blocks + [Block(_block(cfg.block, width, 1, dilation, dilation), None)] * (count - 1))
    width_in = out
  return found


def _block(kind: str, width: int, stride: int, first: int, dilation: int) -> tuple[Convolution, ...]:
  """Return a block's convolutions; the first 3x3 has the stride and the dilation `first`."""
  convolution = Convolution(3, stride, first, width)
  if kind == 'basic':
    return convolution, Convolution(3, 1, dilation, width)
  return Convolution(1, width=width), convolution, Convolution(1, width=width * EXPANSION[kind])


def path(cfg: Config, last: int | None = None) -> list[Convolution]:
  """Return the convolutions from image to output in order, without shortcuts; with `last`, only those before that
  stage."""
  return [*stem(cfg), POOL, *(c for blocks in stages(cfg)[:last] for block in blocks for c in block.convolutions)]


def size(convolutions: Iterable[Convolution], positions: int) -> int:
  """Return the output size of some convolutions for an input size."""
  for c in convolutions:
    positions = (positions - 1) // c.stride + 1
  return positions


def reach(convolutions: Iterable[Convolution]) -> tuple[int, int]:
  """Return (radius, stride) in pixels: output t depends on the pixels stride * t - radius to stride * t + radius."""
  radius, stride = 0, 1
  for c in convolutions:
    radius, stride = radius + c.padding * stride, stride * c.stride
  return radius, stride


def init_unit(cfg: Config, convolution: Convolution, width_in: int, key: Array) -> Params:
  """Return {'kernel': (k, k, I, O), 'norm': see `normalization.init`} of a convolution and its normalisation."""
  k, width = convolution.size, convolution.width
  std = (2.0 / (k * k * width)) ** 0.5
  kernel_YXIO = std * jax.random.normal(key, (k, k, width_in, width), jnp.float32)
  return {'kernel': kernel_YXIO, 'norm': normalization.init(cfg, width)}


def _init_chain(cfg: Config, convolutions: Iterable[Convolution], width_in: int, key: Array) -> dict[str, Any]:
  params = {}
  for i, c in enumerate(convolutions, 1):
    params[f'conv_{i}'] = init_unit(cfg, c, width_in, jax.random.fold_in(key, i))
    width_in = c.width
  return params


def init(cfg: Config, key: Array) -> dict[str, Any]:
  """Initialise stem {'conv_1', ..} and layer_00 {'block_00': {'conv_1', .., 'shortcut'}, ..}, ..; see `init_unit`."""
  params = {'stem': _init_chain(cfg, stem(cfg), 3, jax.random.fold_in(key, 0))}
  width_in = stem(cfg)[-1].width
  for i, blocks in enumerate(stages(cfg)):
    stage_key, params[f'layer_{i:02d}'] = jax.random.fold_in(key, i + 1), {}
    for j, block in enumerate(blocks):
      block_key = jax.random.fold_in(stage_key, j)
      drawn = _init_chain(cfg, block.convolutions, width_in, block_key)
      if block.shortcut is not None:
        drawn['shortcut'] = init_unit(cfg, block.shortcut, width_in, jax.random.fold_in(block_key, 0))
      params[f'layer_{i:02d}'][f'block_{j:02d}'] = drawn
      width_in = block.convolutions[-1].width
  return params


def convolve(kernel_YXIO: Array, x_BYXI: Array, convolution: Convolution) -> Array:
  """Convolve feature maps in their type, with zero padding."""
  c = convolution
  return jax.lax.conv_general_dilated(
    x_BYXI,
    kernel_YXIO.astype(x_BYXI.dtype),
    (c.stride, c.stride),
    [(c.padding, c.padding)] * 2,
    rhs_dilation=(c.dilation, c.dilation),
    dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
  )


def unit(cfg: Config, convolution: Convolution, params: Params, x_BYXI: Array, rows: Rows) -> tuple[Array, Params]:
  """Return (convolved and normalised feature maps, {'norm': running statistics})."""
  x_BYXO = convolve(params['kernel'], x_BYXI, convolution)
  x_BYXO, statistics = normalization.normalize(cfg, params['norm'], x_BYXO, rows)
  return constrain(x_BYXO, 'BYXO'), {'norm': statistics}


def max_pool(x_BYXD: Array) -> Array:
  """Max-pool 3x3 positions with stride 2."""
  return nn.max_pool(x_BYXD, (3, 3), (2, 2), ((1, 1), (1, 1)))


def residual(cfg: Config, block: Block, params: Params, x_BYXD: Array, rows: Rows) -> tuple[Array, Params]:
  """Return (output of a residual block, running statistics)."""
  y_BYXD, statistics = x_BYXD, {}
  for i, c in enumerate(block.convolutions, 1):
    y_BYXD, statistics[f'conv_{i}'] = unit(cfg, c, params[f'conv_{i}'], y_BYXD, rows)
    if i < len(block.convolutions):
      y_BYXD = jax.nn.relu(y_BYXD)
  if block.shortcut is not None:
    x_BYXD, statistics['shortcut'] = unit(cfg, block.shortcut, params['shortcut'], x_BYXD, rows)
  return jax.nn.relu(y_BYXD + x_BYXD), statistics


def apply(cfg: Config, params: Params, images_BYXC: Array, rows: Rows) -> tuple[list[Array], dict[str, Any]]:
  """Run the network.

  Args:
    cfg: its Config.
    params: from `init`.
    images_BYXC: normalised images, in the compute type.
    rows: see `normalization.Rows`.

  Returns:
    ([output of the stem and of each stage, (B, y, x, D) each], running statistics in the tree of `params`).
  """
  x_BYXD = images_BYXC
  statistics: dict[str, Any] = {'stem': {}}
  for i, c in enumerate(stem(cfg), 1):
    x_BYXD, statistics['stem'][f'conv_{i}'] = unit(cfg, c, params['stem'][f'conv_{i}'], x_BYXD, rows)
    x_BYXD = jax.nn.relu(x_BYXD)
  run = lambda block, params, x_BYXD: residual(cfg, block, params, x_BYXD, rows)
  if cfg.remat:
    run = jax.checkpoint(run, static_argnums=(0,))
  outputs = [max_pool(x_BYXD)]
  for i, blocks in enumerate(stages(cfg)):
    x_BYXD, stage = outputs[-1], f'layer_{i:02d}'
    statistics[stage] = {}
    for j, block in enumerate(blocks):
      name = f'block_{j:02d}'
      x_BYXD, statistics[stage][name] = run(block, params[stage][name], x_BYXD)
    outputs.append(x_BYXD)
  return outputs, statistics
