"""BERT against the restatement; its initialisation, inputs and errors."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.models import registry
from tests import drawn
from tests.reference import transformer as reference

bert = registry.get('bert')

B, T = 2, 9
SIZE = dict(V=67, T=16, D=32, H=4, N=2, dropout_hidden=0.0, dropout_attention=0.0)


def params_of(cfg):
  return drawn.params(bert.init, cfg, std=drawn.by_size())


def batch_of(cfg, seed=0):
  rng = np.random.default_rng(seed)
  return {
    'tokens_BT': rng.integers(0, cfg.V, (B, T)).astype(np.int32),
    'types_BT': rng.integers(0, 2, (B, T)).astype(np.int32),
    'valid_BT': np.arange(T) < np.array([[T], [5]]),
  }


@functools.partial(jax.jit, static_argnums=0)
def encode(cfg, params, batch):
  """Features of a batch, and its logits."""
  features, _ = bert.apply(cfg, params, batch, ())
  return features, bert.logits(cfg, params, features)


@pytest.mark.parametrize('attention,gelu', [('xla', 'tanh'), ('blocked', 'erf')])
def test_matches_reference_padded_rows_too(gelu, attention):
  cfg = bert.Config(**SIZE, gelu=gelu, attention=attention)
  params, batch = params_of(cfg), batch_of(cfg)
  features, scores = encode(cfg, params, batch)
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  for b in range(B):
    row = {k: v[b] for k, v in batch.items()}
    logits, pooled = reference.bert(exact, row['tokens_BT'], row['types_BT'], row['valid_BT'], gelu)
    np.testing.assert_allclose(scores[b], logits, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(features.pooled_BD[b], pooled, rtol=1e-5, atol=1e-5)


def test_causal_model_sees_no_later_token():
  cfg = bert.Config(**SIZE | {'N': 1}, causal=True)
  params, batch = params_of(cfg), batch_of(cfg)
  changed = {**batch, 'tokens_BT': batch['tokens_BT'].copy()}
  changed['tokens_BT'][0, 5:] = (changed['tokens_BT'][0, 5:] + 1) % cfg.V
  before, after = (encode(cfg, params, rows)[0].last_BTD for rows in (batch, changed))
  np.testing.assert_array_equal(before[0, :5], after[0, :5])
  assert not np.allclose(before[0, 5:], after[0, 5:])


def test_types_are_zero_where_none_are_given():
  cfg = bert.Config(**SIZE | {'N': 1})
  params, batch = params_of(cfg), batch_of(cfg)
  tokens_BT, types_BT = batch['tokens_BT'], batch['types_BT']
  run = jax.jit(lambda batch: bert.apply(cfg, params, batch, ())[0].last_BTD)
  zeros, given = (run({'tokens_BT': tokens_BT, 'types_BT': x_BT}) for x_BT in (0 * types_BT, types_BT))
  np.testing.assert_array_equal(run({'tokens_BT': tokens_BT}), zeros)
  assert not np.allclose(zeros, given)


def test_weights_are_truncated_normal():
  cfg = bert.Config(V=500, T=128, D=128, H=4, N=1)
  params = jax.device_get(jax.jit(bert.init, static_argnums=0)(cfg, jax.random.key(0)))
  kernels = {
    'tokens': params['embed']['tokens'],
    'positions': params['embed']['positions'],
    'qkv': params['layer_00']['attention']['qkv']['kernel'],
    'out': params['layer_00']['mlp']['out']['kernel'],
    'pooler': params['pooler']['kernel'],
    'mlm': params['mlm']['dense']['kernel'],
  }
  for name, x in kernels.items():
    assert np.abs(x).max() <= 0.04 + 1e-7, name
    assert abs(np.std(x) / (0.02 * 0.8796) - 1) < 0.03, name
  assert not np.any(params['mlm']['bias']) and not np.any(params['pooler']['bias'])


def test_pooler_and_head_lie_above_the_last_layer():
  cfg = bert.Config(**SIZE)
  assert bert.depth(cfg, ('embed', 'norm', 'scale')) == 0
  assert bert.depth(cfg, ('pooler', 'kernel')) == bert.depth(cfg, ('mlm', 'bias')) == 3


def test_invalid_settings_are_rejected():
  cfg = bert.Config(**SIZE)
  with pytest.raises(InputError, match='17 tokens .* T = 16'):
    bert.apply(cfg, params_of(cfg), {'tokens_BT': np.zeros((1, 17), np.int32)}, ())
  for change in (dict(H=5), dict(dropout_hidden=-0.1)):
    with pytest.raises(InputError, match=next(iter(change))):
      bert.Config(**{**SIZE, **change})
