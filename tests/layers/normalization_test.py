"""Batch normalisation: statistics of the real rows of the global batch, on any number of devices."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from lmx.layers import normalization
from tests.reference import resnet as reference

B, D = 16, 6
batch_norm = jax.jit(normalization.batch_norm, static_argnames=('training', 'axis'))


def case():
  rng = np.random.default_rng(1)
  params = {k: rng.normal(size=D).astype(np.float32) for k in ('scale', 'bias', 'mean')}
  params['variance'] = rng.uniform(0.5, 2.0, D).astype(np.float32)
  weights_B = (np.arange(B) % 5 != 4).astype(np.float32)
  return params, rng.normal(2.0, 3.0, (B, D)).astype(np.float32), weights_B


def test_training_uses_the_real_rows_of_the_batch():
  params, x_BD, weights_B = case()
  y_BD, new = batch_norm(params, x_BD, weights_B, training=True)
  real = x_BD[weights_B > 0].astype(np.float64)
  wanted = (x_BD - real.mean(0)) / np.sqrt(real.var(0) + 1e-5) * params['scale'] + params['bias']
  np.testing.assert_allclose(y_BD, wanted, rtol=1e-5, atol=1e-5)
  np.testing.assert_allclose(new['mean'], 0.9 * params['mean'] + 0.1 * real.mean(0), rtol=1e-5)
  np.testing.assert_allclose(new['variance'], 0.9 * params['variance'] + 0.1 * real.var(0, ddof=1), rtol=1e-5)
  other_BD = np.where(weights_B[:, None] > 0, x_BD, np.float32(1e4))
  again_BD, again = batch_norm(params, other_BD, weights_B, training=True)
  np.testing.assert_array_equal(again_BD[weights_B > 0], y_BD[weights_B > 0])
  jax.tree.map(np.testing.assert_array_equal, again, new)


def test_evaluation_uses_the_running_statistics():
  params, x_BD, weights_B = case()
  y_BD, new = batch_norm(params, x_BD, weights_B, training=False)
  wanted = (x_BD - params['mean']) / np.sqrt(params['variance'] + 1e-5) * params['scale'] + params['bias']
  np.testing.assert_allclose(y_BD, wanted, rtol=1e-5, atol=1e-5)
  assert new is None
  np.testing.assert_allclose(batch_norm(params, x_BD[3:4], weights_B[3:4], training=False)[0][0], y_BD[3])


def test_running_variance_does_not_depend_on_the_mean():
  params, x_BD, weights_B = case()
  for offset in (0, 1_000, 10_000):
    _, new = batch_norm(params, x_BD + np.float32(offset), weights_B, training=True)
    real = (x_BD + np.float32(offset)).astype(np.float64)[weights_B > 0]
    np.testing.assert_allclose(new['variance'], 0.9 * params['variance'] + 0.1 * real.var(0, ddof=1), rtol=1e-4)


def test_single_row_batch_is_finite():
  params, x_BD, _ = case()
  y_BD, new = batch_norm(params, x_BD[:1], np.ones(1, np.float32), training=True)
  assert np.isfinite(y_BD).all() and np.isfinite(new['variance']).all()


def test_eight_devices_see_one_batch():
  params, x_BD, weights_B = case()

  def loss(x_BD, weights_B, axis=None):
    y_BD, new = normalization.batch_norm(params, x_BD, weights_B, training=True, axis=axis)
    return jnp.sum(jnp.sin(y_BD) * weights_B[:, None]), new

  (_, new), gradient_BD = jax.jit(jax.value_and_grad(loss, has_aux=True))(x_BD, weights_B)
  over = functools.partial(jax.value_and_grad(functools.partial(loss, axis='data'), has_aux=True))
  (_, parts), gradient_NBD = jax.pmap(over, 'data')(x_BD.reshape(8, 2, D), weights_B.reshape(8, 2))
  np.testing.assert_allclose(gradient_NBD.reshape(B, D), gradient_BD, rtol=1e-4, atol=1e-5)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a[3], b, rtol=1e-5), parts, new)


def test_pixels_are_rows_of_their_image():
  """The statistics of feature maps are those of all pixels of the real rows, each with its row's weight."""
  params, _, weights_B = case()
  x_BYXD = np.random.default_rng(2).normal(1.0, 2.0, (B, 3, 2, D)).astype(np.float32)
  found, new = batch_norm(params, x_BYXD, weights_B, training=True)
  wanted, same = batch_norm(params, x_BYXD.reshape(-1, D), np.repeat(weights_B, 6), training=True)
  np.testing.assert_allclose(found.reshape(-1, D), wanted, rtol=1e-5, atol=1e-5)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), new, same)
  again_BYXD, _ = batch_norm(params, x_BYXD, weights_B, training=False)
  each_BD, _ = batch_norm(params, x_BYXD[:, 1, 0], weights_B, training=False)
  np.testing.assert_allclose(again_BYXD[:, 1, 0], each_BD, rtol=1e-6)


def test_statistics_of_bfloat16_are_float32():
  params, x_BD, weights_B = case()
  y_BD, new = batch_norm(params, jnp.asarray(x_BD, jnp.bfloat16), weights_B, training=True)
  wanted_BD, wanted = batch_norm(
    params, np.asarray(jnp.asarray(x_BD, jnp.bfloat16), np.float32), weights_B, training=True
  )
  assert y_BD.dtype == jnp.bfloat16
  np.testing.assert_array_equal(y_BD, jnp.asarray(wanted_BD, jnp.bfloat16))
  jax.tree.map(np.testing.assert_array_equal, new, wanted)


def test_group_normalisation_matches_the_paper():
  rng = np.random.default_rng(3)
  x_BYXD = rng.normal(2.0, 3.0, (2, 4, 3, D)).astype(np.float32)
  params = {k: rng.normal(size=D).astype(np.float32) for k in ('scale', 'bias')}
  for groups in (1, 3, D):
    found = jax.jit(normalization.group_norm, static_argnums=2)(params, x_BYXD, groups)
    for row, x_YXD in zip(found, x_BYXD.astype(np.float64), strict=True):
      np.testing.assert_allclose(row, reference.group_norm(params, x_YXD, groups), rtol=1e-5, atol=1e-5)
  rows = normalization.Rows(np.ones(2, np.float32), True)
  found, statistics = normalization.normalize(normalization.Config('group', norm_groups=4), params, x_BYXD, rows)
  np.testing.assert_allclose(found, normalization.group_norm(params, x_BYXD, 2), rtol=1e-5)  # gcd(4, 6)
  assert statistics == {}
