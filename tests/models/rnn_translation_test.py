"""Recurrent encoder-decoders: against NumPy, their sizes by the papers' equations, alignments and dropout."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.layers import rnn_attention
from lmx.models import bahdanau, luong, registry, rnn_encdec
from tests.reference import rnn_translation as reference

B, S, T = 3, 7, 6
SOURCES, TARGETS = (7, 3, 1), (6, 4, 2)
LUONG = {'layers': 2, 'window': 'global'}
DESIGNS = {
  'rnnsearch': (bahdanau, {}),
  'rnnsearch current': (bahdanau, {'readout': 'current', 'cell': 'gru', 'encoder_layers': 2, 'decoder_layers': 2}),
  'rnnsearch lstm local': (bahdanau, {'cell': 'lstm', 'decoder_layers': 2, 'score': 'general', 'window': 'local_m'}),
  'rnnsearch hard': (bahdanau, {'reading': 'hard', 'score': 'cosine', 'cell': 'rnn', 'shared': True}),
  'rnnsearch one way': (
    bahdanau,
    {'bidirectional': False, 'reverse': True, 'score': 'location', 'E': 8, 'tied': True},
  ),
  'rnnencdec': (rnn_encdec, {}),
  'rnnencdec both ways': (
    rnn_encdec,
    {'bidirectional': True, 'cell': 'gru', 'readout': 'current', 'decoder_layers': 2},
  ),
  'luong local_p': (luong, {**LUONG, 'window': 'local_p'}),
  'luong local_m concat': (luong, {**LUONG, 'window': 'local_m', 'score': 'concat'}),
  'luong no feeding': (luong, {**LUONG, 'input_feeding': False, 'score': 'scaled_dot'}),
  'luong dot tied': (luong, {**LUONG, 'score': 'dot', 'E': 16, 'tied': True, 'reverse': False}),
  'sutskever': (
    rnn_encdec,
    {'design': 'sutskever', 'cell': 'lstm', 'reverse': True, 'encoder_layers': 2, 'decoder_layers': 2},
  ),
}


def config(model=bahdanau, **changes):
  return registry.config(model.__name__.rsplit('.', 1)[-1], 'tiny', **changes)


def batch_of(cfg):
  rng = np.random.default_rng(1)
  words = lambda *shape: rng.integers(0, cfg.V, shape).astype(np.int32)
  valid_BT = np.arange(T) < np.array(TARGETS)[:, None]
  return {
    'source_BS': words(B, S),
    'source_valid_BS': np.arange(S) < np.array(SOURCES)[:, None],
    'tokens_BT': words(B, T),
    'targets_BT': words(B, T),
    'valid_BT': valid_BT,
    'weights_BT': valid_BT.astype(np.float32),
  }


def count(model, variant):
  cfg = registry.config(model.__name__.rsplit('.', 1)[-1], variant)
  shapes = jax.eval_shape(functools.partial(model.init, cfg), jax.random.key(0))
  return cfg, sum(x.size for x in jax.tree.leaves(shapes))


@pytest.mark.parametrize('design', sorted(DESIGNS))
def test_equals_numpy(design):
  model, changes = DESIGNS[design]
  cfg = config(model, **changes)
  params, batch = model.init(cfg, jax.random.key(0)), batch_of(cfg)

  @jax.jit
  def run(params, batch):
    features, _ = model.apply(cfg, params, batch)
    found = features.last_BTD, model.nll(cfg, params, features, batch['targets_BT'])
    return (*found, model.alignment(cfg, params, batch)) if hasattr(model, 'alignment') else (*found, None)

  last_BTW, nll_BT, a_BTS = run(params, batch)
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  for b, (s, t) in enumerate(zip(SOURCES, TARGETS, strict=True)):
    last, log_p, a = reference.decode(cfg, exact, batch['source_BS'][b, :s], batch['tokens_BT'][b, :t])
    np.testing.assert_allclose(last_BTW[b, :t], last, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(nll_BT[b, :t], -log_p[np.arange(t), batch['targets_BT'][b, :t]], rtol=1e-5, atol=1e-5)
    if a_BTS is not None:
      np.testing.assert_allclose(a_BTS[b, :t, :s], a / a.sum(-1, keepdims=True), rtol=1e-5, atol=1e-5)
      assert not np.asarray(a_BTS[b, :, s:]).any()


@pytest.mark.parametrize('design', sorted(DESIGNS))
def test_step_by_step_equals_one_pass(design):
  model, changes = DESIGNS[design]
  cfg = config(model, **changes)
  params, batch = model.init(cfg, jax.random.key(0)), batch_of(cfg)
  whole, _ = jax.jit(functools.partial(model.apply, cfg))(params, batch)
  state = jax.jit(functools.partial(model.begin, cfg, length=0))(params, batch)
  apply = jax.jit(functools.partial(model.apply, cfg))
  for t in range(T):
    part = {key: batch[key][:, t : t + 1] for key in ('tokens_BT', 'valid_BT')}
    features, state = apply(params, part, state)
    for b in np.flatnonzero(batch['valid_BT'][:, t]):
      np.testing.assert_allclose(features.last_BTD[b, 0], whole.last_BTD[b, t], rtol=1e-5, atol=1e-5)
  np.testing.assert_array_equal(state['position_B'], TARGETS)


def test_rnnsearch_has_as_many_parameters_as_its_equations():
  """Appendix A of 1409.0473: n = 1000, m = 620, n' = 1000, l = 500, and a bias for each sum."""
  cfg, found = count(bahdanau, 'rnnsearch')
  n, m, a, w, K = 1000, 620, 1000, 500, cfg.V
  encoder = 2 * 3 * (m * n + n * n + n)
  decoder = 3 * (m * n + n * n + 2 * n * n + n) + n * n + n  # and W_s of the start
  alignment = a * n + a * 2 * n + a + a
  output = 2 * w * (n + m + 2 * n + 1) + K * w + K
  assert found == 2 * K * m + encoder + decoder + alignment + output == 80_443_000


def test_rnnencdec_has_as_many_parameters_as_its_equations():
  cfg, found = count(rnn_encdec, 'rnnencdec')
  n, m, w, K = 1000, 620, 500, cfg.V
  encoder = 3 * (m * n + n * n + n)
  decoder = 3 * (m * n + n * n + n * n + n) + 2 * (n * n + n)  # V and V'
  output = 2 * w * (n + m + n + 1) + K * w + K
  assert found == 2 * K * m + encoder + decoder + output == 69_579_000


def test_luong_has_as_many_parameters_as_its_equations():
  cfg, found = count(luong, 'luong')
  n, K = 1000, cfg.V
  lstm = lambda width: 4 * (width * n + n * n + n)
  stacks = 8 * lstm(n) + 4 * n * n  # input feeding doubles the input of one layer
  looking = n * n + n * n + n + 2 * n * n  # W_a, W_p, v_p, W_c
  assert found == 2 * K * n + stacks + looking + K * n + K == 222_083_000


def test_first_values_are_the_papers():
  params = bahdanau.init(config(init='paper', V=500, E=40), jax.random.key(0))
  recurrent = np.asarray(params['layer_01']['recurrent']).reshape(16, 3, 16)
  for i in range(3):
    np.testing.assert_allclose(recurrent[:, i] @ recurrent[:, i].T, np.eye(16), atol=1e-5)
  assert 0.0008 < np.std(params['attention']['query']) < 0.0012 and not np.asarray(params['attention']['energy']).any()
  assert 0.009 < np.std(params['embed']['source']) < 0.011
  assert not np.asarray(params['layer_00']['forward']['bias']).any()
  uniform = bahdanau.init(config(init_scale=0.1), jax.random.key(0))
  assert all(0.05 < np.abs(x).max() <= 0.1 for x in jax.tree.leaves(uniform))


def test_dropout_of_the_output_leaves_the_state_alone():
  cfg = config(dropout_output=0.5, maxout=400)
  params, batch = bahdanau.init(cfg, jax.random.key(0)), batch_of(cfg)
  state = jax.jit(functools.partial(bahdanau.begin, cfg, length=0))(params, batch)
  apply = jax.jit(functools.partial(bahdanau.apply, cfg, params, {'tokens_BT': batch['tokens_BT']}))
  (dropped, after), (quiet, same) = apply(state, jax.random.key(1)), apply(state)
  jax.tree.map(np.testing.assert_array_equal, after, same)
  zero = np.asarray(dropped.last_BTD) == 0
  assert 0.45 < zero.mean() < 0.55
  np.testing.assert_allclose(dropped.last_BTD[~zero], 2 * quiet.last_BTD[~zero], rtol=1e-5)


def test_dropout_of_hidden_layers_reaches_the_one_vector():
  cfg = config(rnn_encdec, dropout_hidden=0.5)
  params, batch = rnn_encdec.init(cfg, jax.random.key(0)), batch_of(cfg)
  apply = jax.jit(functools.partial(rnn_encdec.apply, cfg))
  one, two, quiet = (apply(params, batch, (), key)[0].last_BTD for key in (jax.random.key(1), jax.random.key(2), None))
  assert not np.allclose(one, two, atol=1e-3) and not np.allclose(one, quiet, atol=1e-3)


def test_hard_attention_reads_one_position_drawn_anew_for_each_key():
  cfg = config(reading='hard', expected=0.0)
  params, batch = bahdanau.init(cfg, jax.random.key(0)), batch_of(cfg)
  apply = jax.jit(functools.partial(bahdanau.apply, cfg))
  one, _ = apply(params, batch, (), jax.random.key(1))
  two, _ = apply(params, batch, (), jax.random.key(2))
  best, _ = apply(params, batch)
  assert not np.allclose(one.choice_BT[0], two.choice_BT[0])
  log_a = np.log(np.asarray(best.alignment_BTS[0]))
  np.testing.assert_allclose(best.choice_BT[0], log_a.max(-1), rtol=1e-5)
  first = np.log(np.asarray(one.alignment_BTS[0, 0]))  # before any draw the weights are the same
  assert np.abs(first - one.choice_BT[0, 0]).min() < 1e-5
  mean, _ = jax.jit(functools.partial(bahdanau.apply, config(reading='hard', expected=1.0)))(
    params, batch, (), jax.random.key(1)
  )
  soft, _ = jax.jit(functools.partial(bahdanau.apply, config()))(params, batch)
  np.testing.assert_allclose(mean.last_BTD, soft.last_BTD, rtol=1e-6, atol=1e-6)
  assert not np.asarray(mean.choice_BT).any()


def test_the_penalty_is_of_what_was_looked_at():
  cfg = config(doubly_stochastic=0.7)
  params, batch = bahdanau.init(cfg, jax.random.key(0)), batch_of(cfg)
  features, _ = jax.jit(functools.partial(bahdanau.apply, cfg))(params, batch)
  found = bahdanau.penalties(cfg, params, features, batch)
  a_BTS, expected = np.asarray(features.alignment_BTS), 0.0
  for b, (s, t) in enumerate(zip(SOURCES, TARGETS, strict=True)):
    expected += ((1 - a_BTS[b, :t, :s].sum(0)) ** 2).sum()
  np.testing.assert_allclose(found['evenness'], 0.7 * expected, rtol=1e-5)
  assert bahdanau.penalty_weights(cfg, batch) == {'evenness': B}
  plain = config()
  assert bahdanau.penalties(plain, params, features, batch) == bahdanau.penalty_weights(plain, batch) == {}


@pytest.mark.parametrize('score', sorted(rnn_attention.SCORES))
def test_every_score_has_gradients(score):
  """Each in one of the windows."""
  window = rnn_attention.WINDOWS[sorted(rnn_attention.SCORES).index(score) % 3]
  cfg = config(luong, score=score, window=window)
  params, batch = luong.init(cfg, jax.random.key(0)), batch_of(cfg)
  batch['source_valid_BS'][2] = False  # a row of padding

  def loss(params):
    features, _ = luong.apply(cfg, params, batch)
    return jnp.sum(luong.nll(cfg, params, features, batch['targets_BT']) * batch['weights_BT'])

  gradients = jax.jit(jax.grad(loss))(params)
  for path, g in jax.tree_util.tree_leaves_with_path(gradients):
    assert np.isfinite(g).all() and np.abs(g).max() > 1e-7, jax.tree_util.keystr(path)


@pytest.mark.parametrize(
  ('model', 'changes', 'message'),
  [
    (rnn_encdec, {'design': 'chou'}, 'did you mean "cho"'),
    (bahdanau, {'cell': 'gru_papr'}, 'did you mean "gru_paper"'),
    (bahdanau, {'score': 'genral'}, 'did you mean "general"'),
    (bahdanau, {'score': 'dot'}, 'but they are 16 and 32'),
    (bahdanau, {'reverse': True}, 'model.reverse is for an encoder of one direction'),
    (rnn_encdec, {'design': 'sutskever', 'decoder_layers': 2}, 'expected bidirectional=False and as many layers'),
    (bahdanau, {'tied': True}, 'got E = 12; expected E = 8, the width that the softmax reads'),
    (luong, {'tied': True}, 'got E = 12; expected E = 16, the width that the softmax reads'),
    (luong, {'layers': 0}, 'model.layers is 0'),
    (rnn_encdec, {'dropout_hidden': 1.0}, 'dropout_hidden is 1.0'),
    (bahdanau, {'E': 0}, 'model.E is 0'),
    (luong, {'D': 0}, 'model.D is 0'),
    (rnn_encdec, {'init_scale': -0.1}, 'model.init_scale is -0.1'),
  ],
)
def test_impossible_configs_are_refused(model, changes, message):
  with pytest.raises(InputError, match=message):
    config(model, **changes)
