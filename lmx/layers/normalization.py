"""Batch and group normalisation as pure functions.

Batch normalisation (Ioffe and Szegedy 2015, arXiv 1502.03167): the running mean and variance are parameters without
gradients. Training returns their new values, and the step writes them into the parameters after the update
(`Output.statistics`). So they are saved, resumed, averaged and loaded like every other parameter, and evaluation is a
function of parameters and batch only.

Statistics are over the global batch, and for a feature map over its pixels too (section 3.2). Under `jit` arrays are
global, under `pmap` sums are `psum` over `axis`. Padding rows have weight 0. As in PyTorch the batch is normalised by
the variance with denominator n, and the running variance uses denominator n - 1.

Group normalisation (Wu and He 2018, arXiv 1803.08494, equations 7 and 8) takes the mean and the variance per row,
over its pixels and the channels of a group. Its variance has denominator n, and it has no running statistics.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lmx.errors import check_choice, check_least, check_range
from lmx.types import Array, Params

KINDS = ('batch', 'group')


def init_batch_norm(width: int) -> Params:
  """Return {'scale', 'bias', 'mean', 'variance'}, each (D,): the identity, but for epsilon."""
  ones, zeros = jnp.ones(width, jnp.float32), jnp.zeros(width, jnp.float32)
  return {'scale': ones, 'bias': zeros, 'mean': zeros, 'variance': ones}


def batch_norm(
  params: Params,
  x_BD: Array,
  weights_B: Array,
  *,
  training: bool,
  momentum: float = 0.1,  # PyTorch's and fastai's
  eps: float = 1e-5,  # PyTorch's and fastai's
  axis: str | None = None,
) -> tuple[Array, Params | None]:
  """Normalise each column by the batch's mean and variance, or by the running ones at evaluation.

  Args:
    params: from `init_batch_norm`.
    x_BD: rows, which may have pixels between their two axes (B, Y, X, D).
    weights_B: 1 for real rows, 0 for padding.
    training: use the statistics of the batch.
    momentum: weight of the new statistics in the running ones.
    eps: added to the variance.
    axis: `pmap` axis over which the batch is sharded; None where the array is global.

  Returns:
    (y_BD in the type of x_BD, the updated running {'mean', 'variance'}, or None when not training). Everything is
    computed in float32.
  """
  dtype, x_BD = x_BD.dtype, x_BD.astype(jnp.float32)
  if not training:
    mean_D, variance_D = params['mean'], params['variance']
    statistics = None
  else:
    total = lambda x: x if axis is None else jax.lax.psum(x, axis)
    summed = tuple(range(x_BD.ndim - 1))
    weights = weights_B.reshape((-1,) + (1,) * (x_BD.ndim - 1))
    count = jnp.maximum(total(jnp.sum(weights_B)) * math.prod(x_BD.shape[1:-1]), 1.0)
    mean_D = total(jnp.sum(weights * x_BD, axis=summed)) / count
    variance_D = total(jnp.sum(weights * jnp.square(x_BD - mean_D), axis=summed)) / count
    unbiased_D = variance_D * count / jnp.maximum(count - 1.0, 1.0)
    running = lambda old, new: (1.0 - momentum) * old + momentum * jax.lax.stop_gradient(new)
    statistics = {
      'mean': running(params['mean'], mean_D),
      'variance': running(params['variance'], unbiased_D),
    }
  scale_D = params['scale'] * jax.lax.rsqrt(variance_D + eps)
  return ((x_BD - mean_D) * scale_D + params['bias']).astype(dtype), statistics


def init_group_norm(width: int) -> Params:
  """Return {'scale', 'bias'}, each (D,)."""
  return {'scale': jnp.ones(width, jnp.float32), 'bias': jnp.zeros(width, jnp.float32)}


def group_norm(params: Params, x_BYXD: Array, groups: int, *, eps: float = 1e-5) -> Array:
  """Normalise each group of channels of a row by its mean and variance over the pixels, in float32.

  Args:
    params: from `init_group_norm`.
    x_BYXD: feature maps.
    groups: number of groups, which divides D.
    eps: added to the variance.
  """
  *_, Y, X, D = x_BYXD.shape
  x_BYXGC = x_BYXD.astype(jnp.float32).reshape(-1, Y, X, groups, D // groups)
  mean_BG = jnp.mean(x_BYXGC, axis=(1, 2, 4), keepdims=True)
  variance_BG = jnp.mean(jnp.square(x_BYXGC - mean_BG), axis=(1, 2, 4), keepdims=True)
  y_BYXD = ((x_BYXGC - mean_BG) * jax.lax.rsqrt(variance_BG + eps)).reshape(x_BYXD.shape)
  return (y_BYXD * params['scale'] + params['bias']).astype(x_BYXD.dtype)


@dataclasses.dataclass(frozen=True)
class Config:
  """Normalisation of the feature maps of a network.

  Attributes:
    norm: 'batch' or 'group'.
    norm_groups: 'group': channels are divided into this many groups, or into their greatest common divisor with it.
    norm_eps: added to the variance.
    norm_momentum: 'batch': weight of a batch's statistics in the running ones.
  """

  norm: str = 'batch'
  norm_groups: int = 32  # arXiv 1803.08494, section 4.1
  norm_eps: float = 1e-5  # PyTorch's
  norm_momentum: float = 0.1  # PyTorch's

  def __post_init__(self) -> None:
    check_choice('model.norm', self.norm, KINDS)
    check_least('model', self, norm_groups=1)
    check_range('model.norm_eps', self.norm_eps, 0, None)
    check_range('model.norm_momentum', self.norm_momentum, 0, 1)


class Rows(NamedTuple):
  """The rows of a batch, over which batch normalisation takes its statistics.

  Attributes:
    weights_B: 1 for real rows, 0 for padding.
    training: use the statistics of the batch.
    axis: see `batch_norm`.
  """

  weights_B: Array
  training: bool
  axis: str | None = None


def init(cfg: Config, width: int) -> Params:
  """Initialise the normalisation of `width` channels."""
  return init_batch_norm(width) if cfg.norm == 'batch' else init_group_norm(width)


def normalize(cfg: Config, params: Params, x_BYXD: Array, rows: Rows) -> tuple[Array, Params]:
  """Return (normalised feature maps, the updated running statistics, {} if there are none)."""
  if cfg.norm == 'group':
    groups = math.gcd(cfg.norm_groups, x_BYXD.shape[-1])
    return group_norm(params, x_BYXD, groups, eps=cfg.norm_eps), {}
  y_BYXD, statistics = batch_norm(
    params,
    x_BYXD,
    rows.weights_B,
    training=rows.training,
    momentum=cfg.norm_momentum,
    eps=cfg.norm_eps,
    axis=rows.axis,
  )
  return y_BYXD, statistics or {}
