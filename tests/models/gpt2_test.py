"""GPT-2 against the restatement; its initialisations, packed documents, cache and errors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.models import gpt2, registry
from tests.reference import transformer as reference

B, T = 2, 11


def config(**changes) -> gpt2.Config:
  return registry.config('gpt2', 'tiny', **changes)


def params_of(cfg, seed=0):
  leaves, tree = jax.tree.flatten(gpt2.init(cfg, jax.random.key(seed)))
  keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
  return tree.unflatten([x + 0.1 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)])


def tokens(cfg, shape=(B, T), seed=0):
  return np.random.default_rng(seed).integers(0, cfg.V, shape).astype(np.int32)


def logits(cfg, params, batch, state=()):
  @jax.jit
  def run(params, batch, state):
    features, state = gpt2.apply(cfg, params, batch, state)
    return gpt2.logits(cfg, params, features), state

  found, state = run(params, batch, state)
  return np.asarray(found), state


@pytest.mark.parametrize('attention', ['xla', 'blocked'])
def test_equals_the_restatement_padded_rows_too(attention):
  cfg = config(attention=attention)
  params, tokens_BT = params_of(cfg), tokens(cfg)
  valid_BT = np.arange(T) < np.array([[T], [6]])
  found, _ = logits(cfg, params, {'tokens_BT': tokens_BT, 'valid_BT': valid_BT})
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  for b in range(B):
    expected = reference.gpt2(exact, tokens_BT[b], valid_BT[b])
    np.testing.assert_allclose(found[b], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
  'init,positions,residual',
  [('paper', 0.01, 0.02 / 4**0.5), ('released', 0.01, 0.02), ('nanogpt', 0.02, 0.02 / 8**0.5)],
)
def test_deviations_of_each_initialisation(init, positions, residual):
  cfg = config(init=init, D=128, N=4, T=256, V=1000)
  params = gpt2.init(cfg, jax.random.key(0))
  near = lambda x, std: abs(np.std(x) / std - 1) < 0.03
  assert near(params['embed']['tokens'], 0.02)
  assert near(params['embed']['positions'], positions)
  for i in range(4):
    layer = params[f'layer_{i:02d}']
    assert near(layer['attention']['qkv']['kernel'], 0.02) and near(layer['mlp']['in']['kernel'], 0.02)
    assert near(layer['attention']['out']['kernel'], residual) and near(layer['mlp']['out']['kernel'], residual)
    assert not np.any(layer['attention']['qkv']['bias']) and np.all(layer['norm_1']['scale'] == 1)
  assert not np.array_equal(params['layer_00']['mlp']['in']['kernel'], params['layer_01']['mlp']['in']['kernel'])


def test_packed_documents_are_read_as_if_alone():
  cfg = config()
  params, tokens_BT = params_of(cfg), tokens(cfg, (1, T))
  batch = {
    'tokens_BT': tokens_BT,
    'documents_BT': np.array([[0] * 4 + [1] * 7], np.int32),
    'position_BT': np.array([[*range(4), *range(7)]], np.int32),
  }
  packed, _ = logits(cfg, params, batch)
  for part in (slice(0, 4), slice(4, T)):
    alone, _ = logits(cfg, params, {'tokens_BT': tokens_BT[:, part]})
    np.testing.assert_allclose(packed[:, part], alone, rtol=1e-5, atol=1e-5)


def test_cache_advances_each_row_by_its_valid_tokens_and_starts_anew():
  cfg = config()
  params, tokens_BT = params_of(cfg), tokens(cfg)
  valid_BT = np.arange(T) < np.array([[3], [8]])
  state = gpt2.init_state(cfg, B, 20)
  _, state = logits(cfg, params, {'tokens_BT': tokens_BT, 'valid_BT': valid_BT}, state)
  np.testing.assert_array_equal(state['position_B'], [3, 8])
  batch = {'tokens_BT': tokens(cfg, (B, 5), 1), 'reset_B': np.array([True, False])}
  found, state = logits(cfg, params, batch, state)
  np.testing.assert_array_equal(state['position_B'], [5, 13])
  fresh, _ = logits(cfg, params, {'tokens_BT': batch['tokens_BT'][:1]})
  np.testing.assert_allclose(found[0], fresh[0], rtol=1e-5, atol=1e-5)
  longer = np.concatenate([tokens_BT[1:, :8], batch['tokens_BT'][1:]], 1)
  np.testing.assert_allclose(found[1], logits(cfg, params, {'tokens_BT': longer})[0][0, 8:], rtol=1e-5, atol=1e-5)


def test_a_prompt_padded_beyond_the_cache_keeps_its_real_tokens():
  cfg = config()
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


def test_errors_say_what_is_wrong():
  cfg = config()
  params = params_of(cfg)
  with pytest.raises(InputError, match='65 tokens .* T = 64'):
    logits(cfg, params, {'tokens_BT': tokens(cfg, (1, 65))})
  with pytest.raises(InputError, match='cache'):
    batch = {'tokens_BT': tokens(cfg), 'documents_BT': np.zeros((B, T), np.int32)}
    logits(cfg, params, batch, gpt2.init_state(cfg, B, T))
  for change in (dict(H=5), dict(init='papers'), dict(attention='flash'), dict(dropout_residual=1.0)):
    with pytest.raises(InputError, match=next(iter(change))):
      config(**change)
