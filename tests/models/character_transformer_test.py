"""The character Transformer against the restatement; positions of every layer, dropout, and the counts of the paper."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from lmx.decoding import generate
from lmx.errors import InputError
from lmx.models import registry
from lmx.types import Features
from tests import drawn
from tests.reference import character_transformer as reference

model = registry.get('character_transformer')

B, T = 2, 10


def config(**changes) -> model.Config:
  return registry.config('character_transformer', 'tiny', **({'V': 31, 'T': 12, 'N': 3, 'dropout': 0.0} | changes))


def params_of(cfg):
  return drawn.params(model.init, cfg, std=drawn.by_size())


def tokens(cfg, shape=(B, T), seed=0):
  return np.random.default_rng(seed).integers(0, cfg.V, shape).astype(np.int32)


@functools.partial(jax.jit, static_argnums=0)
def run(cfg, params, tokens_BT, key=None):
  features, _ = model.apply(cfg, params, {'tokens_BT': tokens_BT}, (), key, all_layers=True)
  return features, model.logits(cfg, params, features)


@pytest.mark.parametrize(
  'changes', [{}, {'norm': 'pre', 'attention': 'blocked', 'scan': True}, {'positions': 'sinusoids'}], ids=str
)
def test_losses_of_every_layer_and_target_matches_reference(changes):
  cfg = config(**changes, N=2)
  params, tokens_BT, targets_BT = params_of(cfg), tokens(cfg), tokens(cfg, seed=1)
  constants = (np.full((B, T), 0, np.int32), np.full((B, T), 7, np.int32))

  @jax.jit
  def outputs(params):
    features, _ = model.apply(cfg, params, {'tokens_BT': tokens_BT}, (), all_layers=True)
    readouts = model.readouts(cfg, params, features)
    each = [
      [[model.readout_nll(cfg, readout, x_BT, target) for x_BT in constants] for target in model.TARGETS]
      for readout in readouts
    ]
    last_BT = model.readout_nll(cfg, readouts[-1], targets_BT, 'next')
    return each, model.logits(cfg, params, features), model.nll(cfg, params, features, targets_BT), last_BT

  each, logits_BTV, nll_BT, last_BT = outputs(params)
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  for b in range(B):
    expected = reference.layers(exact, tokens_BT[b], cfg.norm, model.EPS, sinusoids=cfg.positions == 'sinusoids')
    for layer in range(cfg.N):
      for target, found in zip(model.TARGETS, each[layer], strict=True):
        z_TV = reference.scores(exact, expected[layer], layer, target)
        log_p_TV = z_TV - np.log(np.exp(z_TV).sum(-1, keepdims=True))
        for token, found_BT in zip((0, 7), found, strict=True):
          np.testing.assert_allclose(found_BT[b], -log_p_TV[:, token], rtol=1e-5, atol=1e-5)
    last_TV = reference.scores(exact, expected[-1], cfg.N - 1, 'next')
    np.testing.assert_allclose(logits_BTV[b], last_TV, rtol=1e-5, atol=1e-5)
  np.testing.assert_allclose(nll_BT, last_BT, rtol=1e-6)


def test_each_layer_has_its_own_positions():
  """Those of layer i reach the outputs from layer i on, at their own place of the window and (causally) behind it."""
  cfg = config()
  params, tokens_BT = params_of(cfg), tokens(cfg)
  before = run(cfg, params, tokens_BT)[0].layers
  for i in range(cfg.N):
    name = f'layer_{i:02d}'
    positions_TD = params[name]['positions'] + (np.arange(cfg.T) == 4)[:, None].astype(np.float32)
    after = run(cfg, params | {name: params[name] | {'positions': positions_TD}}, tokens_BT)[0].layers
    for layer in range(cfg.N + 1):
      changed_T = np.abs(np.asarray(after[layer]) - before[layer]).max((0, 2)) > 0
      assert not changed_T[:4].any() and changed_T[4] == changed_T[4:].all() == (layer > i)


@pytest.mark.parametrize(('variant', 'trained', 'used'), [('t12', 44, 41), ('t64', 235, 219)])
def test_parameter_counts_match_the_paper(variant, trained, used):
  cfg = registry.config('character_transformer', variant)
  params = jax.eval_shape(functools.partial(model.init, cfg), jax.random.key(0))
  count = lambda tree: sum(leaf.size for leaf in jax.tree.leaves(tree))
  positions = sum(params[f'layer_{i:02d}']['positions'].size for i in range(cfg.N))
  assert positions == cfg.N * 512 * 512 and count(params['output']) == cfg.N * 2 * (512 + 1) * 256
  kept = count(params['output'][f'layer_{cfg.N - 1:02d}']['next'])
  everything = count(params)
  assert round(everything / 1e6) == trained
  assert round((everything - count(params['output']) + kept) / 1e6) == used
  assert f'{everything:,}' in model.__doc__ and f'{everything - count(params["output"]) + kept:,}' in model.__doc__


def test_dropout_applies_only_to_attention_and_relu():
  """Of one layer whose attention and feed-forward network add nothing, dropout therefore changes nothing."""
  cfg = config(N=1, dropout=0.5)
  params, tokens_BT = params_of(cfg), tokens(cfg)
  silent = {
    part: {**params['layer_00'][part], 'out': jax.tree.map(np.zeros_like, params['layer_00'][part]['out'])}
    for part in ('attention', 'mlp')
  }
  with_layer = lambda layer: params | {'layer_00': params['layer_00'] | layer}
  last = lambda layer, key: np.asarray(run(cfg, with_layer(layer), tokens_BT, key)[0].last_BTD)
  keys = jax.random.key(2), jax.random.key(3)
  np.testing.assert_array_equal(last(silent, keys[0]), last(silent, None))
  for part in silent:
    one = {part: silent[part]}
    assert np.abs(last(one, keys[0]) - last(one, None)).max() > 1e-2
    assert np.abs(last(one, keys[0]) - last(one, keys[1])).max() > 1e-2


def test_generation_continues_beyond_the_window():
  cfg = config()
  params = params_of(cfg)
  with pytest.raises(InputError, match='13 tokens in a row, but the model has T = 12'):
    run(cfg, params, tokens(cfg, (1, 13)))
  options = dict(steps=20, key=jax.random.key(0), sampler=generate.Sampler(temperature=0.0))
  prompt = tokens(cfg, (1, 5))
  found = generate.generate(model, cfg, params, prompt, **options).tokens_BT[0]
  text = list(prompt[0])
  start = 0
  for token in found:  # greedily; of a window that is full the last half is read again, with a token that came
    start = len(text) - 6 if len(text) - start > 12 else start
    window = np.pad(text[start:], (0, 12 - len(text) + start)).astype(np.int32)
    scores_TV = run(cfg, params, window[None])[1][0]
    assert int(token) == int(np.argmax(np.asarray(scores_TV)[len(text) - start - 1]))
    text.append(int(token))


def test_incompatible_settings_are_rejected():
  with pytest.raises(InputError, match='an even number divisible'):
    config(D=15)
  cfg = config()
  packed = {'tokens_BT': tokens(cfg), 'documents_BT': np.zeros((B, T), np.int32)}
  with pytest.raises(InputError, match='packed documents'):
    model.apply(cfg, params_of(cfg), packed, model.init_state(cfg, B, T))
  with pytest.raises(ValueError, match='all_layers'):
    model.readouts(cfg, params_of(cfg), Features(np.zeros((B, T, cfg.D), np.float32)))
