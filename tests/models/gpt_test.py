"""GPT against the restatement; its two readings of the paper, and errors. The cache is tested with GPT-2's."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.models import gpt, registry
from lmx.ops import dropout
from tests import drawn
from tests.reference import transformer as reference

B, T = 2, 11
STILL = dict(dropout_embedding=0.0, dropout_attention=0.0, dropout_residual=0.0)


def config(**changes) -> gpt.Config:
  return registry.config('gpt', 'tiny', **changes)


def params_of(cfg):
  return drawn.params(gpt.init, cfg, std=drawn.by_size())


def tokens(cfg, shape=(B, T), seed=0):
  return np.random.default_rng(seed).integers(0, cfg.V, shape).astype(np.int32)


@pytest.mark.parametrize('fidelity', gpt.FIDELITY)
def test_matches_reference_padded_rows_too(fidelity):
  cfg = config(fidelity=fidelity)
  params, tokens_BT, targets_BT = params_of(cfg), tokens(cfg), tokens(cfg, seed=1)
  valid_BT = np.arange(T) < np.array([[T], [6]])

  @jax.jit
  def run(params, batch):
    features, _ = gpt.apply(cfg, params, batch, ())
    return gpt.logits(cfg, params, features), gpt.nll(cfg, params, features, targets_BT)

  logits_BTV, nll_BT = run(params, {'tokens_BT': tokens_BT, 'valid_BT': valid_BT})
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  for b in range(B):
    expected = reference.gpt(exact, tokens_BT[b], valid_BT[b])
    np.testing.assert_allclose(logits_BTV[b], expected[:, : cfg.V], rtol=1e-5, atol=1e-5)
    among = expected if fidelity == 'released' else expected[:, : cfg.V]
    loss = np.log(np.exp(among).sum(-1)) - expected[np.arange(T), targets_BT[b]]
    np.testing.assert_allclose(nll_BT[b], loss, rtol=1e-5, atol=1e-5)


def test_as_released_the_dropout_of_the_table_reaches_the_output():
  cfg = config(**STILL | {'dropout_embedding': 0.5}, fidelity='released')
  params, tokens_BT = params_of(cfg), tokens(cfg)
  rows = np.concatenate([params['embed']['tokens'], params['embed']['positions']])

  def heads(params, key):
    features, _ = gpt.apply(cfg, params, {'tokens_BT': tokens_BT}, (), key)
    return features.last_BTD, gpt.logits(cfg, params, features), gpt.nll(cfg, params, features, tokens_BT)

  @jax.jit
  def run(params, key):
    table = dropout.dropout(rows, 0.5, jax.random.split(key)[0])
    dropped = params | {'embed': {'tokens': table[: cfg.V], 'positions': table[cfg.V :]}}
    return table, heads(params, key), heads(dropped, None)

  table, found, expected = run(params, jax.random.key(3))
  assert 0.4 < np.mean(np.asarray(table) == 0) < 0.6
  for a, b in zip(found, expected, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_in_the_paper_the_dropout_is_of_the_sum():
  cfg = config(**STILL | {'dropout_embedding': 0.5})
  params, tokens_BT = params_of(cfg), np.zeros((1, 8), np.int32)
  apply = jax.jit(functools.partial(gpt.apply, cfg, all_layers=True))
  features, _ = apply(params, {'tokens_BT': tokens_BT}, (), jax.random.key(3))
  embedded_TD = np.asarray(features.layers[0])[0]
  assert features.table_VD is None
  assert len({tuple(row == 0) for row in embedded_TD}) == 8  # each position of the same token has a mask of its own


def test_initial_deviations():
  cfg = config(D=128, N=2, T=256, V=1000)
  params = jax.device_get(jax.jit(gpt.init, static_argnums=0)(cfg, jax.random.key(0)))
  kernels = [params['embed']['tokens'], params['embed']['positions']]
  for layer in (params['layer_00'], params['layer_01']):
    kernels += [layer['attention'][part]['kernel'] for part in ('qkv', 'out')]
    kernels += [layer['mlp'][part]['kernel'] for part in ('in', 'out')]
  for kernel in kernels:
    assert abs(np.std(kernel) / 0.02 - 1) < 0.03


def test_invalid_settings_are_rejected():
  cfg = config()
  with pytest.raises(InputError, match='65 tokens .* T = 64'):
    gpt.apply(cfg, params_of(cfg), {'tokens_BT': tokens(cfg, (1, 65))}, ())
  with pytest.raises(InputError, match='cache'):
    batch = {'tokens_BT': tokens(cfg), 'documents_BT': np.zeros((B, T), np.int32)}
    gpt.apply(cfg, params_of(cfg), batch, gpt.init_state(cfg, B, T))
  with pytest.raises(InputError, match='H'):
    config(H=5)
