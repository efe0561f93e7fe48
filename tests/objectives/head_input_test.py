"""What a head reads of the model's layers, and the LSTM over them, in the objectives that have it."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx import objectives
from lmx.errors import InputError
from lmx.models import registry
from lmx.objectives import head_input
from lmx.types import Features

B, T, D, N = 2, 5, 4, 4
RNG = np.random.default_rng(0)
LAYERS = tuple(RNG.normal(size=(B, T, D)).astype(np.float32) for _ in range(N + 1))
FEATURES = Features(LAYERS[-1], layers=LAYERS)
VALID = np.arange(T) < np.array([[T], [3]])
BERT = registry.config('bert', 'tiny', V=20, T=8, D=8, H=2, N=N, dropout_hidden=0.3, scan=True)
BATCH = {
  'tokens_BT': RNG.integers(0, 20, (B, T)).astype(np.int32),
  'valid_BT': VALID,
  'labels_BT': RNG.integers(0, 3, (B, T)).astype(np.int32),
  'weights_BT': VALID.astype(np.float32),
  'labels_B': np.array([0, 1], np.int32),
  'starts_B': np.array([1, 2], np.int32),
  'ends_B': np.array([2, 2], np.int32),
  'row_weights_B': np.ones(B, np.float32),
}
HEADS: dict = {
  'classify': {'classes': 3, 'pooling': 'mean', 'bptt': 0, 'normalize': False, 'head': ()},
  'span': {},
  'tag': {'labels': ('a', 'b', 'c'), 'crf': False},
}


def test_feature_layers():
  params = {'mix': {'weights': np.array([0.1, -0.4, 0.3, 0.0], np.float32), 'gamma': np.float32(2.0)}}
  share = np.exp(params['mix']['weights']) / np.exp(params['mix']['weights']).sum()
  summed = 2.0 * np.einsum('n,nbtd->btd', share, np.stack(LAYERS[1:]))
  expected = {
    'last': LAYERS[4],
    'second_to_last': LAYERS[3],
    'embeddings': LAYERS[0],
    'concat_last_4': np.concatenate(LAYERS[1:], -1),
    'sum_last_4': summed,
    'sum_all': summed,
  }
  assert set(expected) == set(head_input.FEATURES)
  for name, x_BTD in expected.items():
    found = head_input.read(head_input.Config(name), params, FEATURES, VALID)
    np.testing.assert_allclose(found, x_BTD, rtol=1e-5, atol=1e-6, err_msg=name)
    assert head_input.sizes(head_input.Config(name), FEATURES) == (x_BTD.shape[-1], D, N)


@functools.cache
def gradients(name: str):
  """Loss and gradients of an objective with an LSTM of two layers over a frozen model's last four layers."""
  module = objectives.get(name)
  cfg = module.Config(**HEADS[name], features='concat_last_4', lstm_layers=2, lstm_width=3, frozen=True)
  bert = registry.get('bert')
  model_key, key, dropout_key = jax.random.split(jax.random.key(0), 3)
  params = {'model': bert.init(BERT, model_key), 'objective': module.init(cfg, bert, BERT, key)}

  def loss(params, batch):
    output = module.loss(cfg, bert, BERT, params, batch, (), dropout_key)
    return jnp.sum(jnp.stack(list(output.sums.values())))

  return params, *jax.jit(jax.value_and_grad(loss))(params, {k: jnp.asarray(x) for k, x in BATCH.items()})


@pytest.mark.parametrize('name', HEADS)
def test_only_the_lstm_over_a_frozen_model_is_trained(name):
  params, loss, grads = gradients(name)
  lstm = params['objective']['lstm']
  assert (
    lstm['layer_00']['forward']['input'].shape == (4 * 8, 12) and lstm['layer_01']['backward']['input'].shape[0] == 6
  )
  assert np.isfinite(loss)
  assert all(not np.any(x) for x in jax.tree.leaves(grads['model']))
  assert all(np.any(x) for x in jax.tree.leaves(grads['objective']['lstm']))


@pytest.mark.parametrize(
  ('name', 'changes', 'message'),
  [
    ('classify', {'pooling': 'pooled', 'bptt': 0, 'lstm_layers': 1}, 'objective.pooling: got "pooled"'),
    ('classify', {'pooling': 'last', 'features': 'embeddings'}, 'objective.bptt: got'),
    ('tag', {'lstm_width': 3}, 'objective.lstm_width: got 3'),
    ('span', {'features': 'sum_last_5'}, 'did you mean "sum_last_4"'),
  ],
)
def test_options_that_do_not_fit_are_rejected(name, changes, message):
  with pytest.raises(InputError, match=message):
    objectives.get(name).Config(**changes)


def test_model_with_too_few_layers_is_rejected():
  with pytest.raises(InputError, match='objective.features: got'):
    head_input.sizes(head_input.Config('sum_last_4'), FEATURES._replace(layers=LAYERS[1:]))


def test_heads_of_the_first_token_reject_a_causal_model():
  """It sees no other token."""
  bert, causal = registry.get('bert'), registry.config('bert', 'tiny', V=20, T=8, D=8, H=2, N=1, causal=True)
  masked, pooled = objectives.get('masked_lm'), objectives.get('classify')
  cfg = pooled.Config(**{**HEADS['classify'], 'pooling': 'pooled'})
  with pytest.raises(InputError, match='objective.pooling: got "pooled"'):
    pooled.init(cfg, bert, causal, jax.random.key(0))
  params = jax.eval_shape(lambda key: {'model': bert.init(causal, key), 'objective': {}}, jax.random.key(0))
  shapes = masked.shapes(masked.Config(), B, T)
  with pytest.raises(InputError, match='objective.next_sentence: got true'):
    jax.eval_shape(lambda params, batch: masked.loss(masked.Config(), bert, causal, params, batch, ()), params, shapes)
