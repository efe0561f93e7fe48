"""Aggregated co-occurrent features: the equations, their sizes, and the attention that one component is."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import pytest

from lmx.layers import cooccurrence, normalization
from lmx.ops import attention, masks
from tests import drawn
from tests.reference import cooccurrence as reference

D, H = 12, 3
NORM = normalization.Config()
EVALUATION = normalization.Rows(np.ones(2, np.float32), False)


@functools.cache
def params_of(m):
  return drawn.params(cooccurrence.init, NORM, D, H, m, std=0.5)


def features(seed=0):
  return np.random.default_rng(seed).standard_normal((2, 5, 6, D)).astype(np.float32)


@functools.partial(jax.jit, static_argnames=('pooled', 'temperature', 'rate'))
def run(params, x_BYXD, **options):
  return cooccurrence.apply(NORM, params, x_BYXD, EVALUATION, **options)[0]


@pytest.mark.parametrize(
  ('m', 'pooled', 'temperature'), [(1, True, 'released'), (2, True, 'released'), (4, False, 'split')]
)
def test_matches_the_papers_module(m, pooled, temperature):
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params_of(m))
  found = run(params_of(m), features(), pooled=pooled, temperature=temperature)
  for row, x_YXD in zip(found, features().astype(np.float64), strict=True):
    np.testing.assert_allclose(
      row, reference.module(exact, x_YXD, pooled, temperature == 'split'), rtol=1e-5, atol=1e-5
    )


def test_weights_are_probabilities_of_the_pooled_positions():
  x_BTD, keys_BSD = features().reshape(2, 30, D), cooccurrence.keys(features(), True)
  a_BHTS = cooccurrence.weights(params_of(4), x_BTD, keys_BSD)
  assert a_BHTS.shape == (2, H, 30, 9)  # 3 x 3 of 5 x 6
  np.testing.assert_allclose(np.sum(a_BHTS, axis=-1), 1, rtol=1e-5)
  wanted, _ = reference.probabilities(params_of(4), features()[1].astype(np.float64), True, False)
  np.testing.assert_allclose(a_BHTS[1], wanted, rtol=1e-4, atol=1e-6)


def test_one_component_is_scaled_dot_product_attention_of_shared_queries_and_keys():
  params, x_BYXD = params_of(1), features()
  x_BTD = x_BYXD.reshape(2, 30, D)
  q_BTHK = np.einsum('BTD,DHMK->BTHK', x_BTD, params['query']['kernel']) + params['query']['bias'][:, 0]
  v_BTHK = np.einsum('BTD,DHK->BTHK', x_BTD, params['value']['kernel']) + params['value']['bias']
  context_BTHK = attention.attend(q_BTHK, q_BTHK, v_BTHK, masks.AttentionMask(), causal=False)
  y_BTD = np.einsum('BTHK,HKD->BTD', context_BTHK, params['out']['kernel'])
  y_BTD, _ = normalization.normalize(NORM, params['out']['norm'], y_BTD, EVALUATION)
  np.testing.assert_allclose(run(params, x_BYXD, pooled=False).reshape(2, 30, D), y_BTD + x_BTD, rtol=1e-5, atol=1e-5)


def test_sizes_of_the_released_module():
  """Without running statistics, which PyTorch does not count."""
  for m, wanted in ((1, 788_480), (4, 1_577_472)):
    leaves = jax.tree_util.tree_leaves_with_path(drawn.shapes(cooccurrence.init, NORM, 512, 8, m))
    assert sum(x.size for path, x in leaves if path[-1].key not in ('mean', 'variance')) == wanted


def test_initial_deviations():
  params = cooccurrence.init(NORM, 256, 4, 2, jax.random.key(0))
  np.testing.assert_allclose(np.std(params['query']['kernel']), (2 / (256 + 128)) ** 0.5, rtol=0.02)
  np.testing.assert_allclose(np.std(params['value']['kernel']), (2 / (256 + 64)) ** 0.5, rtol=0.02)
  assert 0.98 * 2**-0.5 < np.abs(params['prior']).max() <= 2**-0.5
  assert 0.99 / 16 < np.abs(params['out']['kernel']).max() <= 1 / 16


def test_dropout_applies_to_the_softmaxes():
  """Rate 0 keeps them; their mean over many keys is that without dropout."""
  x_BTD, keys_BSD = features().reshape(2, 30, D), cooccurrence.keys(features(), True)
  plain = cooccurrence.weights(params_of(2), x_BTD, keys_BSD)
  drop = jax.jit(lambda key: cooccurrence.weights(params_of(2), x_BTD, keys_BSD, rate=0.25, key=key))
  dropped = np.stack([drop(jax.random.key(i)) for i in range(200)])
  np.testing.assert_array_equal(cooccurrence.weights(params_of(2), x_BTD, keys_BSD, key=jax.random.key(1)), plain)
  np.testing.assert_allclose(dropped.mean(0).sum(-1), 1, atol=0.15)
  # Both components of a weight are dropped with probability 1/16, so they are dropped before they are mixed.
  np.testing.assert_allclose(np.mean(dropped == 0), 1 / 16, atol=0.005)


def test_group_normalisation_has_no_statistics():
  cfg = dataclasses.replace(NORM, norm='group', norm_groups=3)
  params = drawn.params(cooccurrence.init, cfg, D, H, 1)
  y_BYXD, statistics = cooccurrence.apply(cfg, params, features(), EVALUATION._replace(training=True))
  assert statistics == {'out': {'norm': {}}} and np.isfinite(y_BYXD).all()
