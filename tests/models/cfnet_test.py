"""CFNet: its heads, its receptive field, and batch statistics on any number of devices."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lmx.errors import InputError
from lmx.layers.interpolation import bilinear
from lmx.models import registry
from tests import drawn

cfnet = registry.get('cfnet')

LOCAL = {'head': 'fcn', 'pool': False}
SHALLOW = dict(blocks=(1, 1), widths=(4, 6), stride=4)


def config(variant='tiny', **changes):
  return registry.config('cfnet', variant, **{'dropout': 0.0, 'dropout_attention': 0.0, **changes})


def by_inputs(shape):
  return (1.5 / math.prod(shape[:-1])) ** 0.5 if shape[1:] else 0.2


@functools.cache
def params_of(cfg):
  return drawn.params(cfnet.init, cfg, std=by_inputs)


def images(B, Y, X, seed=0):
  return np.random.default_rng(seed).integers(0, 256, (B, Y, X, 3)).astype(np.uint8)


@functools.partial(jax.jit, static_argnums=0)
def evaluated(cfg, params, images_BYXC):
  return cfnet.apply(cfg, params, {'images_BYXC': images_BYXC}, ())[0]


@pytest.mark.parametrize('fields', [{}, {'stride': 32}, {'blocks': (1, 1), 'widths': (4, 6)}])
def test_auxiliary_features_are_in_rows_of_their_own_grid(fields):
  """Which is larger where the last stage has a stride."""
  cfg = registry.config('cfnet', 'tiny', **fields)
  images = {'images_BYXC': jax.ShapeDtypeStruct((1, 70, 49, 3), jnp.uint8)}
  run = lambda key, batch: cfnet.apply(cfg, cfnet.init(cfg, key), batch, ())[0]
  features = jax.eval_shape(run, jax.random.key(0), images)
  assert features.auxiliary_BTD.shape[1] == np.prod(cfnet.auxiliary_grid(cfg, 70, 49))
  assert (features.auxiliary_BTD.shape[1] > features.last_BTD.shape[1]) == bool(fields)


def test_features_are_in_rows_of_the_grid():
  cfg = config()
  assert cfnet.grid(cfg, 33, 48) == (5, 6)
  features = evaluated(cfg, params_of(cfg), images(2, 33, 48))
  assert features.last_BTD.shape == (2, 30, 32) and features.auxiliary_BTD.shape == (2, 30, 8)
  assert features.statistics is None
  for stride in (4, 16, 32):  # a network of 3 stages has a stride of 16
    sparse = config(stride=stride)
    features = evaluated(sparse, params_of(sparse), images(1, 33, 48))
    assert features.last_BTD.shape[1] == math.prod(cfnet.grid(sparse, 33, 48)) in (9 * 12, 3 * 3)
  # Shifted by one position of the grid (and away from the edges), a local network's features are too.
  local = config(**LOCAL)
  image_BYXC = images(1, 160, 160)
  plain = evaluated(local, params_of(local), image_BYXC).last_BTD.reshape(20, 20, 16)
  moved = evaluated(local, params_of(local), np.roll(image_BYXC, (8, 16), (1, 2))).last_BTD.reshape(20, 20, 16)
  np.testing.assert_allclose(moved[8:13, 8:13], plain[7:12, 6:11], rtol=1e-4, atol=1e-5)


def test_pooled_half_of_the_features_is_of_the_whole_image():
  cfg, local = config(head='fcn'), config(**LOCAL)
  features = evaluated(cfg, params_of(cfg), images(2, 32, 40)).last_BTD
  x_BTD = features[..., :16]
  np.testing.assert_array_equal(evaluated(local, params_of(cfg), images(2, 32, 40)).last_BTD, x_BTD)
  p = params_of(cfg)['head']['pool']
  mean_BD = np.mean(x_BTD, axis=1) @ p['kernel'][0, 0]
  norm = p['norm']
  wanted = (mean_BD - norm['mean']) / np.sqrt(norm['variance'] + 1e-5) * norm['scale'] + norm['bias']
  np.testing.assert_allclose(features[..., 16:], np.maximum(wanted, 0)[:, None].repeat(20, 1), rtol=1e-4, atol=1e-5)
  # The pooled branch of 'cfnet' reads what its module reads.
  full = config()
  with_module = evaluated(full, {**params_of(full), 'head': {**params_of(full)['head'], 'pool': p}}, images(2, 32, 40))
  assert not np.allclose(with_module.last_BTD[..., :16], evaluated(local, params_of(full), images(2, 32, 40)).last_BTD)


def test_images_are_normalised_by_their_channels():
  cfg = config(mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 2.0))
  x_BYXC = np.array([0, 255, 51], np.uint8).reshape(1, 1, 1, 3)
  np.testing.assert_allclose(np.ravel(cfnet.normalize_images(cfg, x_BYXC)), [-1, 3, 0.1], rtol=1e-6)


def test_attention_matches_the_head():
  cfg = config(m=1)
  head = params_of(cfg)['head']['attention']
  features = evaluated(cfg, params_of(cfg), images(2, 32, 40))
  a_BHTS = cfnet.attention(cfg, params_of(cfg), {'images_BYXC': images(2, 32, 40)})
  assert a_BHTS.shape == (2, 2, 20, 6)
  local = config(**LOCAL)
  x_BTD = evaluated(local, params_of(cfg), images(2, 32, 40)).last_BTD
  pooled_BSD = np.stack(
    [
      x_BTD.reshape(2, 4, 5, 16)[:, max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2].mean(axis=(1, 2))
      for i in (0, 2)
      for j in (0, 2, 4)
    ],
    1,
  )
  v_BSHK = np.einsum('BSD,DHK->BSHK', pooled_BSD, head['value']['kernel']) + head['value']['bias']
  y_BTD = np.einsum('BHTS,BSHK,HKD->BTD', a_BHTS, v_BSHK, head['out']['kernel'])
  norm = head['out']['norm']
  y_BTD = (y_BTD - norm['mean']) / np.sqrt(norm['variance'] + 1e-5) * norm['scale'] + norm['bias']
  np.testing.assert_allclose(features.last_BTD[..., :16], y_BTD + x_BTD, rtol=1e-4, atol=1e-5)
  with pytest.raises(InputError, match='model.head: got "fcn"'):
    cfnet.attention(local, params_of(local), {'images_BYXC': images(1, 32, 32)})


def test_no_class_of_mini_depends_on_pixels_more_than_24_away():
  """By the sizes of the layers, and by a gradient; 17 is 3 + 2 of the stem and 4 of each of 3 convolutions."""
  cfg = config('mini', **LOCAL)
  assert cfnet.reach(cfg) == 17
  assert [cfnet.pixel_reach(cfg, 96, align) for align in (True, False)] == [23, 22]
  assert max(cfnet.pixel_reach(cfg, side, align) for side in range(32, 200) for align in (True, False)) <= 24
  params, side = params_of(cfg), 96

  @jax.jit
  def gradient(align_YXD, image_BYXC):
    def score(image_BYXC):
      x_BTD = cfnet.apply(cfg, params, {'images_BYXC': image_BYXC}, ())[0].last_BTD
      x_BYXD = x_BTD.reshape(1, *cfnet.grid(cfg, side, side), -1)
      return jnp.sum(bilinear(x_BYXD, (side, side), align_corners=True)[0] * align_YXD)

    return jnp.abs(jax.grad(score)(image_BYXC)).max(axis=(0, 3))

  distances = []
  for pixel in (45, 49, 94):
    chosen_YXD = np.zeros((side, side, 1), np.float32)
    chosen_YXD[pixel, 30] = 1
    reached_YX = np.asarray(gradient(chosen_YXD, images(1, side, side).astype(np.float32))) > 0
    rows, columns = np.nonzero(reached_YX)
    distances += [np.abs(rows - pixel).max(), np.abs(columns - 30).max()]
  assert 20 <= max(distances) <= cfnet.pixel_reach(cfg, side)


@pytest.mark.parametrize('changes', [{'pool': True}, {'head': 'cfnet'}, {'norm': 'group'}])
def test_heads_and_groups_that_read_the_whole_image_have_no_reach(changes):
  cfg = config('mini', **{**LOCAL, **changes})
  assert cfnet.reach(cfg) is None and cfnet.pixel_reach(cfg, 96) is None


def training(cfg, axis=None):
  """((loss, statistics), gradient) of a batch, by the weight of each row."""

  def loss(params, batch):
    features, _ = cfnet.apply(cfg, params, batch, (), jax.random.key(0), axis=axis)
    total = sum(jnp.mean(jnp.sin(x_BTD), axis=(1, 2)) for x_BTD in (features.last_BTD, features.auxiliary_BTD))
    return jnp.sum(total * batch['row_weights_B']), features.statistics

  return jax.value_and_grad(loss, has_aux=True)


def close(found, wanted):
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, wanted)


def test_batch_statistics_are_of_the_real_rows_on_any_device_count():
  cfg = config(**SHALLOW)
  batch = {'images_BYXC': images(8, 24, 32), 'row_weights_B': np.array([1, 1, 0, 1, 1, 1, 0, 1], np.float32)}
  wanted = jax.jit(training(cfg))(params_of(cfg), batch)
  real = {k: x[batch['row_weights_B'] > 0] for k, x in batch.items()}
  close(jax.jit(training(cfg))(params_of(cfg), real), wanted)
  mesh = Mesh(np.array(jax.devices()[:8]), ('data',))
  rows = NamedSharding(mesh, PartitionSpec('data'))
  close(jax.jit(training(cfg))(params_of(cfg), jax.device_put(batch, rows)), wanted)
  parts = {k: x.reshape(4, 2, *x.shape[1:]) for k, x in batch.items()}
  mapped = jax.pmap(training(cfg, 'data'), 'data', in_axes=(None, 0))
  (loss_P, statistics), gradient = mapped(params_of(cfg), parts)
  close((np.sum(loss_P), jax.tree.map(lambda x: x[2], statistics)), wanted[0])
  close(jax.tree.map(lambda x: np.sum(x, axis=0), gradient), wanted[1])
  statistics = flatten_dict(wanted[0][1])
  assert set(statistics) == {path for path in flatten_dict(params_of(cfg)) if path[-1] in ('mean', 'variance')}


def test_momentum_is_the_weight_of_a_batch_in_the_running_statistics():
  batch = {'images_BYXC': images(3, 24, 32), 'row_weights_B': np.ones(3, np.float32)}
  whole, half = (
    flatten_dict(jax.jit(training(cfg))(params_of(config(**SHALLOW)), batch)[0][1])
    for cfg in (config(**SHALLOW, norm_momentum=0.999999), config(**SHALLOW, norm_momentum=0.5))
  )
  before = flatten_dict(params_of(config(**SHALLOW)))
  for path, of_batch in whole.items():
    np.testing.assert_allclose(half[path], (before[path] + of_batch) / 2, rtol=1e-4, atol=1e-4, err_msg=str(path))


def test_group_normalisation_has_no_statistics_and_rows_of_their_own():
  cfg = config(norm='group', norm_groups=2)
  assert not any(path[-1] in ('mean', 'variance') for path in flatten_dict(params_of(cfg)))
  batch = {'images_BYXC': images(3, 24, 32)}
  (_, statistics), gradient = jax.jit(training(cfg))(params_of(cfg), batch | {'row_weights_B': np.ones(3, np.float32)})
  assert statistics is None and all(np.abs(x).max() > 0 for x in jax.tree.leaves(gradient))
  together = evaluated(cfg, params_of(cfg), batch['images_BYXC']).last_BTD
  alone = evaluated(cfg, params_of(cfg), batch['images_BYXC'][1:2]).last_BTD
  np.testing.assert_allclose(alone[0], together[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'D': 18, 'H': 4}, 'model.D: got 18'),
    ({'std': (0.2, 0.0, 0.2)}, 'model.std: got'),
    ({'m': 0}, 'model.m: got 0'),
  ],
)
def test_wrong_settings_are_rejected(changes, message):
  with pytest.raises(InputError, match=message):
    config(**changes)


def test_has_no_word_logits():
  with pytest.raises(InputError, match='model cfnet predicts no words'):
    cfnet.nll(config(), {}, None, np.zeros((1, 1)))
