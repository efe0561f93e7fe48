"""A small model of images of the contract, for tests: patches of 4 x 4 pixels, and a batch's mean as statistics."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from lmx.types import Features

CAUSAL, WORDS, READS, OBJECTIVE = False, False, 'images', 'segment'
PATCH = 4


@dataclasses.dataclass(frozen=True)
class Config:
  D: int = 6
  N: int = 1
  dtype: str = 'float32'
  has_auxiliary: bool = True


def init(cfg, key):
  keys = jax.random.split(key, 2)
  return {
    'layer_00': jax.random.normal(keys[0], (PATCH * PATCH * 3, cfg.D)) / 4,
    'head': jax.random.normal(keys[1], (cfg.D, cfg.D)),
    'mean': jnp.zeros(cfg.D),
  }


def init_state(cfg, batch_size, length=0):
  return ()


def grid(cfg, Y, X):
  return -(-Y // PATCH), -(-X // PATCH)


def auxiliary_grid(cfg, Y, X):
  y, x = grid(cfg, Y, X)
  return -(-y // 2), x


def apply(cfg, params, batch, state=(), key=None, *, all_layers=False, axis=None):
  images_BYXC = batch['images_BYXC'].astype(jnp.float32) / 255 - 0.5
  B, Y, X, _ = images_BYXC.shape
  y, x = grid(cfg, Y, X)
  padded = jnp.pad(images_BYXC, ((0, 0), (0, y * PATCH - Y), (0, x * PATCH - X), (0, 0)))
  patches = padded.reshape(B, y, PATCH, x, PATCH, 3).swapaxes(2, 3).reshape(B, y * x, -1)
  first_BTD = patches @ params['layer_00']
  mean_D, statistics = params['mean'], None
  if key is not None:
    total = lambda v: v if axis is None else jax.lax.psum(v, axis)
    weights_B = batch['row_weights_B']
    sum_D, count = jnp.einsum('B,BTD->D', weights_B, first_BTD), jnp.sum(weights_B) * y * x
    mean_D = total(sum_D) / jnp.maximum(total(count), 1)
    statistics = {'mean': jax.lax.stop_gradient(mean_D)}
  last_BTD = jnp.tanh(first_BTD - mean_D) @ params['head']
  auxiliary_BTD = first_BTD.reshape(B, y, x, -1)[:, ::2, :, :-1].reshape(B, -1, cfg.D - 1)  # of every second row
  return Features(last_BTD, auxiliary_BTD=auxiliary_BTD if cfg.has_auxiliary else None, statistics=statistics), ()
