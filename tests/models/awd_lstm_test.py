"""AWD-LSTM: its sizes, its forward pass against NumPy, what each dropout changes, and the activation penalties."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx import objectives
from lmx.engine import step
from lmx.errors import InputError
from lmx.layers import recurrent
from lmx.models import registry
from tests import drawn
from tests.reference import qrnn as qrnn_reference
from tests.reference import recurrent as reference
from tests.reference import transformer_xl as softmax_reference

awd_lstm = registry.get('awd_lstm')
causal_lm = objectives.get('causal_lm')

B, T = 4, 9
LENGTHS = (9, 3, 5, 9)
OFF = {f.name: 0.0 for f in dataclasses.fields(awd_lstm.Config) if f.name.startswith('dropout')}


def config(**changes):
  return registry.config('awd_lstm', 'tiny', **{**OFF, **changes})


def count(variant, **changes):
  cfg = registry.config('awd_lstm', variant, **changes)
  return sum(x.size for x in jax.tree.leaves(drawn.shapes(awd_lstm.init, cfg)))


def batch_of(cfg, padded=True):
  rng = np.random.default_rng(1)
  batch = {
    'tokens_BT': rng.integers(0, cfg.V, (B, T)).astype(np.int32),
    'targets_BT': rng.integers(0, cfg.V, (B, T)).astype(np.int32),
  }
  valid_BT = np.arange(T) < np.array(LENGTHS)[:, None]
  return batch | ({'valid_BT': valid_BT, 'weights_BT': valid_BT.astype(np.float32)} if padded else {})


def state_of(cfg):
  rng = np.random.default_rng(2)
  shapes = jax.eval_shape(lambda: awd_lstm.init_state(cfg, B))
  return jax.tree.map(lambda x: 0.5 * rng.standard_normal(x.shape).astype(np.float32), shapes)


def params_of(cfg):
  return drawn.params(awd_lstm.init, cfg, std=drawn.by_size(2))


def apply(cfg, params, key, padded=False):
  return awd_lstm.apply(cfg, params, batch_of(cfg, padded), state_of(cfg), key, all_layers=True)


@functools.partial(jax.jit, static_argnums=0)
def _run(cfg, params, key):
  return apply(cfg, params, key), apply(cfg, params, None)


def run(cfg, params=None, key=3):
  """(features with all layers, state after), with dropout and without."""
  return jax.device_get(_run(cfg, params or params_of(cfg), jax.random.key(key)))


def test_counts_of_the_paper_and_of_the_parts():
  assert (count('ptb'), count('wt2')) == (24_221_600, 33_556_078)
  layers = [4 * 1150 * (400 + 1150 + 2), 4 * 1150 * (1150 + 1150 + 2), 4 * 400 * (1150 + 400 + 2)]
  assert count('ptb') == 10_000 * 400 + sum(layers) + 10_000
  untied = 4 * 1150 * (1150 + 1150 + 2) - layers[-1] + 10_000 * 1150  # the last layer is then as wide as the others
  assert count('ptb', tied=False) - count('ptb') == untied


@pytest.mark.parametrize('cell', ['lstm', 'qrnn'])
@pytest.mark.parametrize('tied', [True, False])
def test_equals_numpy(cell, tied):
  cfg = config(cell=cell, tied=tied)
  params, batch, state = params_of(cfg), batch_of(cfg), state_of(cfg)

  @jax.jit
  def run(params):
    features, after = awd_lstm.apply(cfg, params, batch, state)
    return awd_lstm.nll(cfg, params, features, batch['targets_BT']), after

  nll_BT, after = jax.device_get(run(params))
  exact, before = jax.tree.map(lambda x: np.asarray(x, np.float64), (params, state))
  for b, length in enumerate(LENGTHS):
    x = exact['embed']['table'][batch['tokens_BT'][b]]
    for i in range(cfg.N):
      layer, carry = exact[f'layer_{i:02d}'], tuple(c[b] for c in before[i])
      if cell == 'qrnn':
        x, carry = qrnn_reference.layer(layer, x, carry, length, 1 if i else 2)
      else:
        x, carry = reference.layer('lstm', layer, x, carry, length)
      for got, end in zip(after[i], carry, strict=True):
        np.testing.assert_allclose(got[b], end, rtol=1e-5, atol=1e-5)
    scores = x @ exact['embed' if tied else 'output']['table'].T + exact['output']['bias']
    log_p = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    expected = -log_p[np.arange(length), batch['targets_BT'][b, :length]]
    np.testing.assert_allclose(nll_BT[b, :length], expected, rtol=1e-5, atol=1e-5)


def test_initial_ranges():
  cfg = registry.config('awd_lstm', 'tiny', V=900, init_range=0.3)
  params = jax.device_get(jax.jit(awd_lstm.init, static_argnums=0)(cfg, jax.random.key(0)))
  assert 0.29 < np.abs(params['embed']['table']).max() <= 0.3
  for i, width in enumerate((cfg.D, cfg.E)):
    for name, x in params[f'layer_{i:02d}'].items():
      assert 0.85 * width**-0.5 < np.abs(x).max() <= width**-0.5, name
  assert not np.any(params['output']['bias'])


def test_output_dropout_is_locked_over_the_steps_of_a_row():
  (features, state), (quiet, after) = run(config(E=300, dropout_output=0.4))
  noisy, clean = features.last_BTD, quiet.last_BTD
  kept_BTD = noisy != 0
  assert (kept_BTD == kept_BTD[:, :1]).all() and 0.5 < kept_BTD[:, 0].mean() < 0.7
  assert not (kept_BTD[0, 0] == kept_BTD[1, 0]).all()  # every row has a mask of its own
  np.testing.assert_allclose(noisy[kept_BTD], clean[kept_BTD] / 0.6, rtol=1e-6)
  np.testing.assert_array_equal(features.raw_BTD, features.layers[-1])
  np.testing.assert_array_equal(features.raw_BTD, quiet.raw_BTD)  # nothing inside is dropped
  jax.tree.map(np.testing.assert_array_equal, state, after)


def through_the_input(cfg, monkeypatch):
  """For each layer (input, recurrent kernel) that it reads, and the features: with dropout and without."""
  seen, real = [], recurrent.layer

  def spy(cell, params, x_TBE, *rest, **more):
    seen.append((x_TBE, params['recurrent']))
    return real(cell, params, x_TBE, *rest, **more)

  @jax.jit
  def both(params, key):
    (features, _), (quiet, _) = apply(cfg, params, key), apply(cfg, params, None)
    return (seen[: cfg.N], features), (seen[cfg.N :], quiet)

  with monkeypatch.context() as patch:
    patch.setattr(recurrent, 'layer', spy)
    return jax.device_get(both(params_of(cfg), jax.random.key(3)))


def test_input_dropout_is_locked(monkeypatch):
  (noisy, _), (clean, _) = through_the_input(config(E=200, dropout_input=0.4), monkeypatch)
  (noisy_TBE, kernel), (clean_TBE, plain) = noisy[0], clean[0]
  kept_TBE = noisy_TBE != 0
  assert (kept_TBE == kept_TBE[:1]).all() and not (kept_TBE[0, 0] == kept_TBE[0, 1]).all()
  assert 0.5 < kept_TBE[0].mean() < 0.7
  np.testing.assert_allclose(noisy_TBE[kept_TBE], clean_TBE[kept_TBE] / 0.6, rtol=1e-6)
  np.testing.assert_array_equal(kernel, plain)


def test_hidden_dropout_is_locked_and_only_between_layers(monkeypatch):
  (noisy, features), (clean, quiet) = through_the_input(config(D=200, dropout_hidden=0.25), monkeypatch)
  (noisy_TBD, _), (clean_TBD, _) = noisy[1], clean[1]
  kept_TBD = noisy_TBD != 0
  assert (kept_TBD == kept_TBD[:1]).all() and 0.65 < kept_TBD[0].mean() < 0.85
  np.testing.assert_allclose(noisy_TBD[kept_TBD], clean_TBD[kept_TBD] / 0.75, rtol=1e-6)
  np.testing.assert_array_equal(features.last_BTD, features.raw_BTD)  # not after the last layer
  np.testing.assert_array_equal(features.layers[1], quiet.layers[1])  # nor before the first


def test_embedding_dropout_drops_whole_words_and_rescales_the_others(monkeypatch):
  (noisy, _), (clean, _) = through_the_input(config(V=12, E=50, dropout_embedding=0.5), monkeypatch)
  noisy, clean = noisy[0][0], clean[0][0]
  tokens_TB = batch_of(config(V=12), False)['tokens_BT'].T
  whole = {}
  for t, b in np.ndindex(tokens_TB.shape):
    word, kept = int(tokens_TB[t, b]), bool(np.any(noisy[t, b]))
    np.testing.assert_allclose(noisy[t, b], 2 * clean[t, b] if kept else 0 * clean[t, b], rtol=1e-6)
    assert whole.setdefault(word, kept) == kept  # in every row and at every step alike
  assert 2 < sum(whole.values()) < len(whole) - 2


def test_embedding_dropout_leaves_the_output_matrix_whole():
  cfg = config(dropout_embedding=0.5)
  params = params_of(cfg)

  @jax.jit
  def scores(params, key):
    features, _ = apply(cfg, params, key)
    return awd_lstm.logits(cfg, params, features._replace(last_BTD=jnp.ones((B, T, cfg.E))))

  expected = params['embed']['table'].sum(-1) + params['output']['bias']
  found = scores(params, jax.random.key(3))
  np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=1e-4, atol=1e-5)


def test_weight_dropout_masks_only_the_recurrent_kernel(monkeypatch):
  cfg = config(D=64, dropout_weight=0.5)
  (noisy, features), (clean, quiet) = through_the_input(cfg, monkeypatch)
  for (_, kernel), (_, plain) in zip(noisy, clean, strict=True):
    assert kernel.shape == plain.shape and kernel.shape[1] == 4 * kernel.shape[0]
    kept = kernel != 0
    assert 0.45 < kept.mean() < 0.55
    np.testing.assert_allclose(kernel[kept], 2 * plain[kept], rtol=1e-6)
  np.testing.assert_array_equal(noisy[0][0], clean[0][0])
  assert np.abs(features.last_BTD - quiet.last_BTD).max() > 1e-3
  assert_same_without(cfg, 'recurrent')


def assert_same_without(cfg, name):
  """Without the matrices of that name the outputs at all steps are those without dropout: nothing else has changed."""
  params = params_of(cfg)
  for i in range(cfg.N):
    params[f'layer_{i:02d}'][name] *= 0
  (features, _), (quiet, _) = run(cfg, params)
  np.testing.assert_array_equal(features.last_BTD, quiet.last_BTD)


def test_gradient_reaches_only_the_recurrent_weights_that_were_kept():
  cfg = config(D=64, dropout_weight=0.5)

  @jax.jit
  @jax.grad
  def gradient(params, key):
    features, _ = apply(cfg, params, key)
    return jnp.sum(awd_lstm.nll(cfg, params, features, batch_of(cfg)['targets_BT']))

  found = jax.device_get(gradient(params_of(cfg), jax.random.key(1)))['layer_00']
  assert 0.45 < (found['recurrent'] == 0).mean() < 0.55
  assert (found['input'] != 0).mean() > 0.9


def test_weight_dropout_of_the_qrnn_is_on_its_one_matrix():
  cfg = config(cell='qrnn', dropout_weight=0.5)
  (features, _), (quiet, _) = run(cfg)
  assert np.abs(features.last_BTD - quiet.last_BTD).max() > 1e-3
  assert_same_without(cfg, 'input')


@pytest.mark.parametrize('padded', [True, False])
def test_penalties_are_means_over_valid_elements_and_steps(padded):
  cfg = config(alpha=3.0, beta=0.7, dropout_output=0.4)
  batch = batch_of(cfg, padded)

  @jax.jit
  def outputs(params, key):
    features, _ = apply(cfg, params, key, padded)
    return features, awd_lstm.penalties(cfg, {}, features, batch)

  features, sums = outputs(params_of(cfg), jax.random.key(2))
  weights = awd_lstm.penalty_weights(cfg, batch)
  last, raw = np.asarray(features.last_BTD, np.float64), np.asarray(features.raw_BTD, np.float64)
  assert not np.array_equal(last, raw)
  lengths = LENGTHS if padded else (T,) * B
  squares = np.concatenate([last[b, :n] ** 2 for b, n in enumerate(lengths)])
  steps = np.concatenate([(raw[b, 1:n] - raw[b, : n - 1]) ** 2 for b, n in enumerate(lengths)])
  np.testing.assert_allclose(sums['activation'] / weights['activation'], 3.0 * squares.mean(), rtol=1e-5)
  np.testing.assert_allclose(sums['slowness'] / weights['slowness'], 0.7 * steps.mean(), rtol=1e-5)


def test_penalties_are_in_the_training_loss_only():
  cfg, plain = config(dropout_output=0.4), config(dropout_output=0.4, alpha=0.0, beta=0.0)
  batch, state = batch_of(cfg), state_of(cfg)

  @jax.jit
  def losses(params, key):
    parts = lambda cfg: (awd_lstm, cfg, causal_lm, causal_lm.Config())
    trained = [step.training_loss(*parts(c), params, batch, state, key) for c in (cfg, plain)]
    evaluated = causal_lm.loss(causal_lm.Config(), awd_lstm, cfg, params, batch, state)
    return [(x.sums, x.metrics) for x in (*trained, evaluated)]

  train, without, evaluation = losses({'model': params_of(cfg)}, jax.random.key(1))
  assert set(train[0]) == set(train[1]) == {'nll', 'activation', 'slowness'}
  assert set(without[0]) == set(evaluation[0]) == set(evaluation[1]) == {'nll'}
  np.testing.assert_array_equal(train[0]['nll'], without[0]['nll'])
  assert awd_lstm.penalty_weights(plain, batch) == {}
  assert set(awd_lstm.penalty_weights(config(beta=0.0), batch)) == {'activation'}


@pytest.mark.parametrize('tied', [True, False])
def test_adaptive_softmax_predicts_by_clusters_of_the_output_table(tied):
  """As `nll`, the log-probabilities of all words are those of a restatement of Grave et al. 2017."""
  cfg = config(cutoffs=(10, 30), tied=tied)
  params, targets_BT = params_of(cfg), batch_of(cfg)['targets_BT']
  last_BTD = np.random.default_rng(3).standard_normal((B, T, awd_lstm.widths(cfg)[-1][1])).astype(np.float32)

  @jax.jit
  def run(params, last_BTD):
    features = awd_lstm.Features(last_BTD)
    return awd_lstm.nll(cfg, params, features, targets_BT), awd_lstm.logits(cfg, params, features)

  nll_BT, log_p_BTV = jax.device_get(run(params, last_BTD))
  tokens = {'tokens': params['embed' if tied else 'output']['table']}
  score = lambda x_D, word: softmax_reference.word_nll(tokens, params['output'], cfg.cutoffs, cfg.V, x_D, word)
  expected = [
    [score(x_D, word) for x_D, word in zip(*row, strict=True)] for row in zip(last_BTD, targets_BT, strict=True)
  ]
  np.testing.assert_allclose(nll_BT, expected, rtol=1e-5)
  np.testing.assert_allclose(-log_p_BTV[0, 0], [score(last_BTD[0, 0], word) for word in range(cfg.V)], rtol=1e-5)


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'backend': 'cudn'}, 'did you mean "cudnn"'),
    ({'cell': 'qrnn', 'backend': 'cudnn'}, 'with model.cell=qrnn'),
    ({'alpha': -1.0}, 'alpha: got -1.0'),
    ({'cutoffs': (30, 10)}, 'cutoffs: got .30, 10'),
  ],
)
def test_invalid_settings_are_rejected(changes, message):
  with pytest.raises(InputError, match=message):
    registry.config('awd_lstm', 'tiny', **changes)


def test_word_dropout_matches_rows_of_the_table():
  V, rng = 50, np.random.default_rng(1)
  tokens_BT, table_VD = rng.integers(0, V, (4, 30)), rng.standard_normal((V, 8)).astype(np.float32)
  words_V = np.arange(V)  # every word once: the table itself
  drop = lambda x, tokens, key: awd_lstm.word_dropout(x, tokens, V, 0.3, key)
  both = jax.jit(lambda key: (drop(table_VD, words_V, key), drop(table_VD[tokens_BT], tokens_BT, key)))
  whole_VD, found = jax.device_get(both(jax.random.key(2)))
  np.testing.assert_allclose(found, whole_VD[tokens_BT], rtol=1e-6)
  kept_V = np.any(whole_VD != 0, -1)
  np.testing.assert_allclose(whole_VD[kept_V], table_VD[kept_V] / 0.7, rtol=1e-6)
  assert 0.5 < kept_V.mean() < 0.9
  assert drop(table_VD, words_V, None) is table_VD
