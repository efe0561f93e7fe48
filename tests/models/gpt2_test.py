"""GPT-2 against the restatement; its initialisations, packed documents, cache and errors."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.models import registry
from tests import drawn
from tests.models import compiled
from tests.reference import transformer as reference

gpt2 = registry.get('gpt2')

B, T = 2, 11


def config(**changes) -> gpt2.Config:
  return registry.config('gpt2', 'tiny', **changes)


def params_of(cfg):
  return drawn.params(gpt2.init, cfg, std=drawn.by_size())


def tokens(cfg, shape=(B, T), seed=0):
  return np.random.default_rng(seed).integers(0, cfg.V, shape).astype(np.int32)


logits = functools.partial(compiled.logits, gpt2)


@pytest.mark.parametrize('attention', ['xla', 'blocked'])
def test_matches_reference_padded_rows_too(attention):
  cfg = config(attention=attention)
  params, tokens_BT = params_of(cfg), tokens(cfg)
  valid_BT = np.arange(T) < np.array([[T], [6]])
  found, _ = logits(cfg, params, {'tokens_BT': tokens_BT, 'valid_BT': valid_BT})
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  for b in range(B):
    expected = reference.gpt2(exact, tokens_BT[b], valid_BT[b])
    np.testing.assert_allclose(found[b], expected, rtol=1e-5, atol=1e-5)


def test_attention_weights_of_the_first_layer_match_its_queries_and_keys():
  cfg = config(dropout_attention=0.5, attention='blocked')
  params, tokens_BT = params_of(cfg), tokens(cfg)
  found = gpt2.attention_weights(cfg, params, {'tokens_BT': tokens_BT})
  layer, (D, H) = params['layer_00'], (cfg.D, cfg.H)
  x_BTD = params['embed']['tokens'][tokens_BT] + params['embed']['positions'][:T]
  centred_BTD = x_BTD - x_BTD.mean(-1, keepdims=True)
  normal_BTD = centred_BTD / np.sqrt((centred_BTD**2).mean(-1, keepdims=True) + cfg.eps)
  normal_BTD = normal_BTD * layer['norm_1']['scale'] + layer['norm_1']['bias']
  qkv = layer['attention']['qkv']
  q_BTHK, k_BTHK, _ = (np.einsum('BTD,DCHK->CBTHK', normal_BTD, qkv['kernel']) + qkv['bias'][:, None, None]).astype(
    float
  )
  scores_BHTS = np.einsum('BTHK,BSHK->BHTS', q_BTHK, k_BTHK) / np.sqrt(D // H)
  e_BHTS = np.exp(scores_BHTS - scores_BHTS.max(-1, keepdims=True)) * np.tri(T)
  assert [one.kind for one in found] == ['self'] * cfg.N
  np.testing.assert_allclose(found[0].weights_BHTS, e_BHTS / e_BHTS.sum(-1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_model_without_biases_is_that_with_zeros():
  cfg = config(bias=False)
  params = params_of(cfg)
  with_zeros = jax.eval_shape(lambda: gpt2.init(config(), jax.random.key(0)))
  paths = {path for path, _ in jax.tree_util.tree_leaves_with_path(params)}
  filled = jax.tree_util.tree_map_with_path(
    lambda path, x: find(params, path) if path in paths else np.zeros(x.shape, np.float32), with_zeros
  )
  removed = {path[-1].key for path, _ in jax.tree_util.tree_leaves_with_path(filled) if path not in paths}
  assert removed == {'bias'} and not [path for path in paths if path[-1].key == 'bias']
  tokens_BT = tokens(cfg)
  found, _ = logits(cfg, params, {'tokens_BT': tokens_BT})
  expected = reference.gpt2(jax.tree.map(lambda x: np.asarray(x, np.float64), filled), tokens_BT[0], np.ones(T, bool))
  np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-5)


def find(params, path):
  for part in path:
    params = params[part.key]
  return params


@pytest.mark.parametrize(
  'init,positions,residual',
  [
    pytest.param('paper', 0.01, 0.02 / 2**0.5, marks=pytest.mark.slow),
    ('released', 0.01, 0.02),
    ('nanogpt', 0.02, 0.02 / 4**0.5),
  ],
)
def test_deviations_of_each_initialisation(init, positions, residual):
  cfg = config(init=init, D=128, N=2, T=256, V=1000)
  params = jax.device_get(jax.jit(gpt2.init, static_argnums=0)(cfg, jax.random.key(0)))
  near = lambda x, std: abs(np.std(x) / std - 1) < 0.03
  assert near(params['embed']['tokens'], 0.02)
  assert near(params['embed']['positions'], positions)
  for i in range(2):
    layer = params[f'layer_{i:02d}']
    assert near(layer['attention']['qkv']['kernel'], 0.02) and near(layer['mlp']['in']['kernel'], 0.02)
    assert near(layer['attention']['out']['kernel'], residual) and near(layer['mlp']['out']['kernel'], residual)
    assert not np.any(layer['attention']['qkv']['bias']) and np.all(layer['norm_1']['scale'] == 1)
  assert not np.array_equal(params['layer_00']['mlp']['in']['kernel'], params['layer_01']['mlp']['in']['kernel'])


def test_packed_documents_are_independent():
  cfg = config()
  params, tokens_BT = params_of(cfg), tokens(cfg, (1, T))
  run = jax.jit(lambda batch: gpt2.apply(cfg, params, batch, ())[0].last_BTD)
  batch = {
    'tokens_BT': tokens_BT,
    'documents_BT': np.array([[0] * 4 + [1] * 7], np.int32),
    'position_BT': np.array([[*range(4), *range(7)]], np.int32),
  }
  packed = run(batch)
  for part in (slice(0, 4), slice(4, T)):
    np.testing.assert_allclose(packed[:, part], run({'tokens_BT': tokens_BT[:, part]}), rtol=1e-5, atol=1e-5)


def test_cache_advances_each_row_by_its_valid_tokens_and_starts_again():
  cfg = config()
  params, tokens_BT = params_of(cfg), tokens(cfg)
  valid_BT = np.arange(T) < np.array([[3], [8]])
  state = gpt2.init_state(cfg, B, 20)
  _, state = logits(cfg, params, {'tokens_BT': tokens_BT, 'valid_BT': valid_BT}, state)
  np.testing.assert_array_equal(state['position_B'], [3, 8])
  batch = {'tokens_BT': tokens(cfg, (B, 3), 1), 'reset_B': np.array([True, False])}
  found, state = logits(cfg, params, batch, state)
  np.testing.assert_array_equal(state['position_B'], [3, 11])
  fresh_T = np.pad(batch['tokens_BT'][0], (0, T - 3))
  longer_T = np.concatenate([tokens_BT[1, :8], batch['tokens_BT'][1]])
  whole, _ = logits(cfg, params, {'tokens_BT': np.stack([fresh_T, longer_T])})
  np.testing.assert_allclose(found[0], whole[0, :3], rtol=1e-5, atol=1e-5)
  np.testing.assert_allclose(found[1], whole[1, 8:], rtol=1e-5, atol=1e-5)


def test_prompt_padded_beyond_the_cache_keeps_its_real_tokens():
  cfg = config(N=1)
  params, tokens_BT = params_of(cfg), tokens(cfg, (1, 8))
  state = gpt2.init_state(cfg, 1, 6)
  _, state = logits(cfg, params, {'tokens_BT': tokens_BT[:, :4]}, state)
  valid_BT = np.array([[True, False, False, False]])
  _, state = logits(cfg, params, {'tokens_BT': tokens_BT[:, 4:], 'valid_BT': valid_BT}, state)
  found, _ = logits(cfg, params, {'tokens_BT': tokens_BT[:, 5:6]}, state)
  whole, _ = logits(cfg, params, {'tokens_BT': tokens_BT[:, :6]})
  np.testing.assert_allclose(found[:, 0], whole[:, -1], rtol=1e-5, atol=1e-5)


def test_cache_is_in_the_compute_type():
  state = gpt2.init_state(config(dtype='bfloat16'), 2, 5)
  assert state['layers'][0][0].dtype == jnp.bfloat16
  assert state['layers'][0][0].shape == (2, 5, 4, 8)
  assert gpt2.init_state(config(), 2) == ()


def test_invalid_settings_are_rejected():
  cfg = config()
  apply = functools.partial(gpt2.apply, cfg, params_of(cfg))
  with pytest.raises(InputError, match='65 tokens .* T = 64'):
    apply({'tokens_BT': tokens(cfg, (1, 65))}, ())
  with pytest.raises(InputError, match='cache'):
    batch = {'tokens_BT': tokens(cfg), 'documents_BT': np.zeros((B, T), np.int32)}
    apply(batch, gpt2.init_state(cfg, B, T))
  with pytest.raises(InputError, match='H'):
    config(H=5)
