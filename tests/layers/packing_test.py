"""Rows laid end to end: every token has the features, and a batch the loss and the gradient, of one row a sequence."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.layers import packing
from lmx.models import registry
from lmx.objectives import classify, multiple_choice
from tests import drawn

SIZES = np.array([9, 5, 7, 3, 0])
T = 12
PLACES = ([*range(9), 36, 37, 38], [*range(24, 31), *range(12, 17)])  # rows 0 and 3, rows 2 and 1


@functools.cache
def bert():
  model = registry.get('bert')
  cfg = registry.config('bert', 'tiny', V=61, N=1, dropout_hidden=0.0, dropout_attention=0.0)
  return model, cfg, drawn.params(model.init, cfg)


def batch_of():
  valid_BT = np.arange(T) < SIZES[:, None]
  draw = np.random.default_rng(0)
  return {
    'tokens_BT': np.where(valid_BT, draw.integers(0, 61, valid_BT.shape), 0).astype(np.int32),
    'types_BT': np.where(valid_BT, draw.integers(0, 2, valid_BT.shape), 0).astype(np.int32),
    'valid_BT': valid_BT,
    'row_weights_B': (SIZES > 0).astype(np.float32),
    'labels_B': np.array([0, 1, 1, 0, 0]),
  }


def packed_places():
  return np.array([*PLACES, [-1] * T], np.int32)  # a sequence of padding at the end


def test_unpacked_rows_have_their_own_features():
  model, cfg, params = bert()
  batch = batch_of() | {'packed_PT': packed_places()}
  own, _ = jax.jit(functools.partial(model.apply, cfg, all_layers=True))(params, batch_of(), ())
  packed = packing.pack(batch)
  assert packed['tokens_BT'].shape == (3, T) and 'labels_B' not in packed and not packed['valid_BT'][2].any()
  np.testing.assert_array_equal(packed['position_BT'][1], [*range(7), *range(5)])
  found, _ = jax.jit(functools.partial(model.apply, cfg, all_layers=True))(params, packed, ())
  found = packing.unpack(model, params, found, batch)
  valid_BT = batch['valid_BT']
  for a, b in zip((found.last_BTD, *found.layers), (own.last_BTD, *own.layers), strict=True):
    np.testing.assert_allclose(np.asarray(a)[valid_BT], np.asarray(b)[valid_BT], rtol=1e-5, atol=1e-5)
  np.testing.assert_allclose(found.pooled_BD[:4], own.pooled_BD[:4], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('pooling', ('pooled', 'mean'))
def test_loss_and_gradient_match_rows_apart(pooling):
  model, cfg, params = bert()
  head = classify.Config(classes=2, head=(), normalize=False, bptt=0, dropout_pooled=0.0, pooling=pooling)
  whole = {'model': params, 'objective': classify.init(head, model, cfg, jax.random.key(1))}

  def loss(whole, batch):
    return classify.loss(head, model, cfg, whole, batch, (), jax.random.key(0)).sums['nll']

  step = jax.jit(jax.value_and_grad(loss))
  apart, together = step(whole, batch_of()), step(whole, batch_of() | {'packed_PT': packed_places()})
  np.testing.assert_allclose(together[0], apart[0], rtol=1e-6)
  for a, b in zip(jax.tree.leaves(together[1]), jax.tree.leaves(apart[1]), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_choices_of_a_question_are_packed_as_rows():
  model, cfg, params = bert()
  head = multiple_choice.Config(head=(), normalize=False, bptt=0, dropout_pooled=0.0, pooling='pooled')
  whole = {'model': params, 'objective': multiple_choice.init(head, model, cfg, jax.random.key(1))}
  two = {name.replace('_B', '_BG'): x[:4].reshape(2, 2, T) for name, x in batch_of().items() if name.endswith('_BT')}
  two |= {'row_weights_B': jnp.ones(2), 'labels_B': jnp.array([1, 0])}
  scores = jax.jit(lambda batch: multiple_choice.predict(head, model, cfg, whole, batch, ()))
  apart, together = scores(two)[0], scores(two | {'packed_PT': packed_places()})[0]
  for name in apart:
    np.testing.assert_allclose(together[name], apart[name], rtol=1e-5, atol=1e-6)
