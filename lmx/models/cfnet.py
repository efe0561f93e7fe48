"""CFNet: semantic segmentation with co-occurrent features (Zhang, Zhang, Wang and Xie 2019, "Co-occurrent Features in
Semantic Segmentation", CVPR), and the fully convolutional networks that it is compared with.

An image passes through a dilated residual network (lmx/layers/resnet.py) and a head of width D. The T = y x positions
of the feature map are the row, row by row. The class of a position is a linear map of its features. The objective
(`segment`) has this map, and upsamples the logits to the image's pixels.

  head 'fcn'     x = relu(norm(conv 3x3))
  head 'cfnet'   x, then the aggregated co-occurrent feature module (lmx/layers/cooccurrence.py)
  pool           concatenate relu(norm(W mean_t x_t)) to every position, so that the features are 2 D wide
  auxiliary      relu(norm(conv 3x3)) of the output of the last stage but one, for a second loss in training

From the released code (zhanghang1989/PyTorch-Encoding: encoding/models/sseg/atten.py and fcn.py), as the paper gives
no sizes: D is a quarter of the backbone's 2,048 channels, `auxiliary_width` of the 1,024 of its third stage; 8 heads
and one mixture component (m); the pooled branch is concatenated, reads x and not the module's output, and is part of
both heads there too; dropout 0.1 of the features before both classifiers, elementwise; momentum 0.1 and epsilon 1e-5 of
batch normalisation; images by ImageNet's mean and deviation; 3x3 convolutions of the heads as PyTorch initialises them,
uniform in +-1/sqrt(inputs). Its stem is 'deep' in the nets whose names end in "s"; '7x7' is the default here, because
ImageNet backbones of torchvision have it. Its class can also fuse earlier stages and encode the image with the classes
present (`with_lateral`, `with_enc`). Both are EncNet's, and omitted here.

The aggregated co-occurrent feature module has 788,480 parameters with m=1 and 1,577,472 with m=4 at D=512, ResNet-50
23,508,032 and ResNet-101 42,500,160, all without the running statistics of batch normalisation.

`mini` is for generated scenes of about 96 pixels: with the head 'fcn' and without pooling no pixel's class depends on
others more than 24 pixels away in a direction (`pixel_reach`).

Axes: Y, X rows and columns of the image; T positions of the feature map, S of keys; D width of the head.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated

import jax
import jax.numpy as jnp

from lmx import ranges
from lmx.errors import InputError, check_choice, check_heads, check_least, check_range
from lmx.layers import cooccurrence, normalization, resnet
from lmx.layers.normalization import Rows
from lmx.ops.dropout import dropout, split
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = False
OBJECTIVE = 'segment'
HEADS = ('head', 'auxiliary')
STATISTICS = ('mean', 'variance')
READS = 'images'
WORDS = False  # no output over words
KINDS = ('fcn', 'cfnet')
CONVOLUTION = 3  # rows and columns of the heads' convolutions


@dataclasses.dataclass(frozen=True)
class Config(resnet.Config):
  """Sizes and switches; the attributes are those of `resnet.Config`, and

  Attributes:
    head: 'fcn' or 'cfnet'.
    pool: concatenate features of the whole image, averaged over its positions.
    D: width of the head.
    H: attention heads of 'cfnet'.
    m: mixture components of each attention head.
    pooled_keys: average the features of keys and values over 3x3 positions, at every second one.
    temperature: 'released' divides scores by the root of the total width of the components, 'split' by the root of one
      component's width.
    auxiliary_width: width of the auxiliary features; 0: none.
    dropout: dropout rate of the features of both heads.
    dropout_attention: dropout rate of the attention weights of each component.
    mean: mean of the channels of images, of 0 to 1.
    std: standard deviation of the channels.
  """

  head: str = 'cfnet'
  pool: bool = True
  D: int = 512
  H: int = 8
  m: int = 1
  pooled_keys: bool = True
  temperature: cooccurrence.Temperature = 'released'
  auxiliary_width: int = 256
  dropout: float = 0.1
  dropout_attention: float = 0.1
  mean: tuple[Annotated[float, ranges.SIGNED], ...] = (0.485, 0.456, 0.406)
  std: tuple[float, ...] = (0.229, 0.224, 0.225)

  def __post_init__(self) -> None:
    super().__post_init__()
    check_choice('model.head', self.head, KINDS)
    check_choice('model.temperature', self.temperature, cooccurrence.TEMPERATURES)
    check_heads('cfnet', self.D, self.H)
    check_least('model', self, m=1, auxiliary_width=0)
    for name in ('dropout', 'dropout_attention'):
      check_range(f'model.{name}', getattr(self, name), 0, 1)
    if len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0:
      raise InputError(f'model.std: got mean {self.mean} and std {self.std}; expected 3 each, std above 0')

  @property
  def N(self) -> int:  # noqa: N802
    """Number of stages."""
    return len(self.blocks)


VARIANTS = {
  'resnet50': {},
  'resnet101': dict(blocks=(3, 4, 23, 3)),
  'mini': dict(
    blocks=(1, 1), widths=(16, 32), stem_width=32, stride=4, D=64, H=4, auxiliary_width=32, dropout_attention=0.0
  ),
  'tiny': dict(blocks=(1, 1, 1), widths=(4, 6, 8), stem_width=6, D=16, H=2, m=2, auxiliary_width=8),
}


def init(cfg: Config, key: Array) -> Params:
  """Initialise stem and layer_00 .. of `resnet.init`, and

  head {'conv': see `_init_unit`, 'attention': see `cooccurrence.init`, 'pool': as conv}, auxiliary {'conv'}.
  """
  backbone_key, conv_key, attention_key, pool_key, auxiliary_key = jax.random.split(key, 5)
  params = resnet.init(cfg, backbone_key)
  *_, earlier, last = (cfg.stem_width, *(width * resnet.EXPANSION[cfg.block] for width in cfg.widths))
  params['head'] = {'conv': _init_unit(cfg, CONVOLUTION, last, cfg.D, conv_key)}
  if cfg.head == 'cfnet':
    params['head']['attention'] = cooccurrence.init(cfg, cfg.D, cfg.H, cfg.m, attention_key)
  if cfg.pool:
    params['head']['pool'] = _init_unit(cfg, 1, cfg.D, cfg.D, pool_key)
  if cfg.auxiliary_width:
    params['auxiliary'] = {'conv': _init_unit(cfg, CONVOLUTION, earlier, cfg.auxiliary_width, auxiliary_key)}
  return params


def _init_unit(cfg: Config, size: int, width_in: int, width: int, key: Array) -> Params:
  """Initialise a convolution and its normalisation as PyTorch does."""
  bound = (size * size * width_in) ** -0.5
  kernel_YXIO = jax.random.uniform(key, (size, size, width_in, width), jnp.float32, -bound, bound)
  return {'kernel': kernel_YXIO, 'norm': normalization.init(cfg, width)}


def grid(cfg: Config, Y: int, X: int) -> tuple[int, int]:
  """Return (rows, columns) of the feature map of an image."""
  return resnet.size(resnet.path(cfg), Y), resnet.size(resnet.path(cfg), X)


def auxiliary_grid(cfg: Config, Y: int, X: int) -> tuple[int, int]:
  """Return (rows, columns) of the map of the auxiliary features, which is larger where the last stage has a stride."""
  before = resnet.path(cfg, cfg.N - 1)
  return resnet.size(before, Y), resnet.size(before, X)


def normalize_images(cfg: Config, images_BYXC: Array) -> Array:
  """Return images of 0 to 255 with the channels' mean 0 and standard deviation 1, in the compute type."""
  mean_C, std_C = jnp.asarray(cfg.mean, jnp.float32), jnp.asarray(cfg.std, jnp.float32)
  return ((images_BYXC.astype(jnp.float32) / 255.0 - mean_C) / std_C).astype(cfg.dtype)


def _unit(cfg: Config, params: Params, x_BYXD: Array, rows: Rows) -> tuple[Array, Params]:
  """Return (relu(norm(conv)), running statistics) of a part of a head."""
  convolution = resnet.Convolution(params['kernel'].shape[0], width=params['kernel'].shape[-1])
  x_BYXD, statistics = resnet.unit(cfg, convolution, params, x_BYXD, rows)
  return jax.nn.relu(x_BYXD), statistics


def head(cfg: Config, params: Params, x_BYXD: Array, rows: Rows, key: Array | None) -> tuple[Array, Params]:
  """Return (features of the head before dropout, (B, y, x, D), running statistics).

  Args:
    cfg: the model's Config.
    params: of the head.
    x_BYXD: output of the backbone.
    rows: see `normalization.Rows`.
    key: PRNG key of the attention's dropout, None at evaluation.
  """
  x_BYXD, convolution = _unit(cfg, params['conv'], x_BYXD, rows)
  statistics, parts = {'conv': convolution}, [x_BYXD]
  if cfg.head == 'cfnet':
    parts[0], statistics['attention'] = cooccurrence.apply(
      cfg,
      params['attention'],
      x_BYXD,
      rows,
      pooled=cfg.pooled_keys,
      temperature=cfg.temperature,
      rate=cfg.dropout_attention,
      key=key,
    )
  if cfg.pool:
    mean_BYXD = jnp.mean(x_BYXD.astype(jnp.float32), axis=(1, 2), keepdims=True).astype(x_BYXD.dtype)
    pooled_BYXD, statistics['pool'] = _unit(cfg, params['pool'], mean_BYXD, rows)
    parts.append(jnp.broadcast_to(pooled_BYXD, x_BYXD.shape))
  return jnp.concatenate(parts, -1), statistics


def _rows(batch: Batch, training: bool, axis: str | None) -> Rows:
  ones_B = jnp.ones(batch['images_BYXC'].shape[0], jnp.float32)
  return Rows(batch.get('row_weights_B', ones_B), training, axis)


def apply(
  cfg: Config,
  params: Params,
  batch: Batch,
  state: State,
  key: Array | None = None,
  *,
  all_layers: bool = False,
  axis: str | None = None,
) -> tuple[Features, State]:
  """Run the network over images.

  Args:
    batch: images_BYXC; row_weights_B (optional), 0 for rows of padding, which no statistics include.
    state: ().
    key: PRNG key of dropout; None at evaluation, when batch normalisation uses the running statistics.
    all_layers: also return the outputs of the stem and of each stage, at their own positions, (B, positions, D).
    axis: `pmap` axis over which the rows are sharded; None where the arrays are global.

  Returns:
    (Features with last_BTD, the head's features after dropout at the positions of `grid`; raw_BTD before it;
    auxiliary_BTD; and in training the running statistics of batch normalisation; ()).
  """
  attention_key, last_key, auxiliary_key = split(key, 3)
  rows = _rows(batch, key is not None, axis)
  outputs, statistics = resnet.apply(cfg, params, normalize_images(cfg, batch['images_BYXC']), rows)
  x_BYXD, statistics['head'] = head(cfg, params['head'], outputs[-1], rows, attention_key)
  raw_BTD, auxiliary_BTD = cooccurrence.positions(x_BYXD), None
  if cfg.auxiliary_width:
    a_BYXD, convolution = _unit(cfg, params['auxiliary']['conv'], outputs[-2], rows)
    statistics['auxiliary'] = {'conv': convolution}
    auxiliary_BTD = dropout(cooccurrence.positions(a_BYXD), cfg.dropout, auxiliary_key)
  return Features(
    dropout(raw_BTD, cfg.dropout, last_key),
    layers=tuple(cooccurrence.positions(x) for x in outputs) if all_layers else None,
    raw_BTD=raw_BTD,
    auxiliary_BTD=auxiliary_BTD,
    statistics=statistics if rows.training and cfg.norm == 'batch' else None,
  ), state


def attention(cfg: Config, params: Params, batch: Batch) -> Array:
  """Return a_BHTS, the probability of the co-occurrent feature at S of every position T, for pictures.

  S are the positions of `grid`, row by row, or with `pooled_keys` every second row and column of them.
  """
  if cfg.head != 'cfnet':
    raise InputError(f'model.head: got "{cfg.head}", which has no attention; expected "cfnet"')
  rows = _rows(batch, False, None)
  outputs, _ = resnet.apply(cfg, params, normalize_images(cfg, batch['images_BYXC']), rows)
  x_BYXD, _ = _unit(cfg, params['head']['conv'], outputs[-1], rows)
  keys_BSD = cooccurrence.keys(x_BYXD, cfg.pooled_keys)
  return cooccurrence.weights(
    params['head']['attention'], cooccurrence.positions(x_BYXD), keys_BSD, temperature=cfg.temperature
  )


def reach(cfg: Config) -> int | None:
  """Return the pixels on each side that position t of the features depends on, from pixel t * stride on; None: all.

  At evaluation, as batch normalisation joins the images of a batch in training.
  """
  if cfg.head != 'fcn' or cfg.pool or cfg.norm != 'batch':
    return None
  return resnet.reach([*resnet.path(cfg), resnet.Convolution(CONVOLUTION)])[0]


def pixel_reach(cfg: Config, side: int, align_corners: bool = True) -> int | None:
  """Return the largest distance in a direction, in pixels, at which the class of a pixel depends on another; None: all.

  The scores of a pixel are interpolated linearly between the two positions around it.

  Args:
    cfg: the model's Config.
    side: rows or columns of the image.
    align_corners: the first and the last positions are the first and the last pixels; else positions have the centres
      of equal parts of the image.
  """
  radius, positions = reach(cfg), resnet.size(resnet.path(cfg), side)
  if radius is None:
    return None
  stride, farthest = resnet.reach(resnet.path(cfg))[1], 0
  for pixel in range(side):
    if align_corners:
      place = pixel * (positions - 1) / (side - 1)
    else:
      place = min(max((pixel + 0.5) * positions / side - 0.5, 0), positions - 1)
    for t in (math.floor(place), math.ceil(place)):
      farthest = max(farthest, abs(pixel - t * stride) + radius)
  return farthest


def depth(cfg: Config, path: tuple[str, ...]) -> int:
  """Return a parameter's layer number: the stem 0, stage i is i + 1, the heads N + 1."""
  if path[0].startswith('layer_'):
    return int(path[0].removeprefix('layer_')) + 1
  return 0 if path[0] == 'stem' else cfg.N + 1
