"""Residual networks: the equations, what dilation keeps, receptive fields, and statistics on several devices."""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.layers import normalization, resnet
from tests import drawn
from tests.reference import resnet as reference

SMALL = dict(blocks=(1, 2, 2, 1), widths=(3, 4, 5, 4), stem_width=6)
ONES = lambda B: normalization.Rows(np.ones(B, np.float32), False)  # noqa: E731


def config(**changes):
  return resnet.Config(**{**SMALL, **changes})


@functools.cache
def params_of(cfg):
  return drawn.params(resnet.init, cfg, std=lambda shape: (1.5 / math.prod(shape[:-1])) ** 0.5 if shape[1:] else 0.2)


def images(B, Y, X, seed=0):
  return np.random.default_rng(seed).standard_normal((B, Y, X, 3)).astype(np.float32)


@functools.partial(jax.jit, static_argnums=0)
def run(cfg, params, images_BYXC):
  return resnet.apply(cfg, params, images_BYXC, ONES(len(images_BYXC)))[0]


PLANS = {  # of each stage: stride, dilation of the convolution with the stride, dilation of the others
  8: [(1, 1, 1), (2, 1, 1), (1, 1, 2), (1, 2, 4)],
  16: [(1, 1, 1), (2, 1, 1), (2, 1, 1), (1, 1, 2)],
}


@pytest.mark.parametrize(('block', 'stem', 'stride'), [('basic', 'deep', 8), ('bottleneck', '7x7', 16)])
def test_matches_the_papers_network(block, stem, stride):
  cfg = config(block=block, stem=stem, stride=stride)
  params, images_BYXC = params_of(cfg), images(1, 29, 34)
  wanted = reference.network(
    jax.tree.map(lambda x: np.asarray(x, np.float64), params), images_BYXC[0].astype(np.float64), block, PLANS[stride]
  )
  for found, exact in zip(run(cfg, params, images_BYXC), wanted, strict=True):
    np.testing.assert_allclose(found[0], exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('block', list(resnet.EXPANSION))
def test_dilated_network_matches_strided_one(block):
  """The output of stride 8 at every fourth position is that of stride 32, of the same parameters."""
  cfg = config(block=block)
  params, images_BYXC = params_of(cfg), images(2, 64, 50)
  dense, sparse = run(cfg, params, images_BYXC), run(dataclasses.replace(cfg, stride=32), params, images_BYXC)
  assert dense[-1].shape == (2, 8, 7, 4 * resnet.EXPANSION[block]) and sparse[-1].shape[1:3] == (2, 2)
  np.testing.assert_allclose(dense[-1][:, ::4, ::4], sparse[-1], rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(dense[-2][:, ::2, ::2], sparse[-2], rtol=1e-4, atol=1e-5)


def test_sizes_and_receptive_fields_of_known_networks():
  path = resnet.path(config(block='bottleneck'))
  # 7x7, pool, 1, 1 + 1 at stride 4 and 8, 1 + 2 dilated by 1 and 2, 1 dilated by 2: the convolutions of size 3
  assert resnet.reach(path) == (3 + 2 + 4 + (4 + 8) + 8 * (1 + 2) + 8 * 2, 8)
  assert [resnet.size(path, n) for n in (1, 8, 9, 480, 33)] == [1, 1, 2, 60, 5]
  deep = resnet.path(config(block='basic', stem='deep', stride=4, blocks=(1, 1), widths=(2, 2)))
  assert resnet.reach(deep) == (1 + 2 + 2 + 2 + 4 * 2 + 4 * (1 + 2), 4)


def test_no_pixel_beyond_the_receptive_field_has_a_gradient():
  cfg = config(blocks=(1, 1), widths=(2, 2), stem_width=3, stride=4)
  params, (radius, stride) = params_of(cfg), resnet.reach(resnet.path(cfg))
  t = 6
  loss = lambda images_BYXC: jnp.sum(run(cfg, params, images_BYXC)[-1][0, t, t])
  reached_YX = np.abs(jax.jit(jax.grad(loss))(images(1, 60, 60))[0]).max(-1) > 0
  inside = np.arange(stride * t - radius, stride * t + radius + 1)
  assert radius < stride * t and inside[-1] < 60  # the edges are inside the image
  assert reached_YX[inside[0]].any() and reached_YX[:, inside[-1]].any()
  reached_YX[np.ix_(inside, inside)] = False
  assert not reached_YX.any()


def test_sizes_match_torchvision():
  """Without running statistics, which PyTorch does not count."""
  for blocks, wanted in (((3, 4, 6, 3), 23_508_032), ((3, 4, 23, 3), 42_500_160)):
    shapes = drawn.shapes(resnet.init, resnet.Config(blocks=blocks))
    leaves = jax.tree_util.tree_leaves_with_path(shapes)
    assert sum(x.size for path, x in leaves if path[-1].key not in ('mean', 'variance')) == wanted


def test_initialisation_keeps_the_variance_of_gradients():
  params = resnet.init(resnet.Config(blocks=(1, 1), widths=(64, 128)), jax.random.key(0))
  kernel = params['layer_01']['block_00']['conv_1']['kernel']
  assert kernel.shape == (1, 1, 256, 128)
  np.testing.assert_allclose(np.std(kernel), (2 / 128) ** 0.5, rtol=0.02)


def training(cfg, axis=None):
  """Loss, running statistics and the gradient of the parameters, with batch statistics."""

  def loss(params, images_BYXC, weights_B):
    outputs, statistics = resnet.apply(cfg, params, images_BYXC, normalization.Rows(weights_B, True, axis))
    return jnp.sum(jnp.sin(outputs[-1]) * weights_B[:, None, None, None]), statistics

  return jax.value_and_grad(loss, has_aux=True)


def close(found, wanted):
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, wanted)


def test_remat_and_padding_change_nothing():
  cfg = config(blocks=(1, 1), widths=(2, 3), stem_width=4)
  images_BYXC, weights_B = images(5, 24, 24), np.array([1, 1, 0, 1, 0], np.float32)
  wanted = jax.jit(training(cfg))(params_of(cfg), images_BYXC, weights_B)
  remat = dataclasses.replace(cfg, remat=True)
  close(jax.jit(training(remat))(params_of(cfg), images_BYXC, weights_B), wanted)
  real = weights_B > 0
  close(jax.jit(training(cfg))(params_of(cfg), images_BYXC[real], weights_B[real]), wanted)
  assert not np.allclose(jax.jit(training(cfg))(params_of(cfg), images_BYXC, weights_B + 1)[0][0], wanted[0][0])


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    (dict(stride=2), 'model.stride: got 2'),
    (dict(blocks=(1, 2)), r'model.widths: got 4'),
    (dict(blocks=(3,), widths=(3,)), 'model.blocks: .* at least 2 stages'),
  ],
)
def test_wrong_sizes_are_rejected(changes, message):
  with pytest.raises(InputError, match=message):
    config(**changes)
