"""Recurrent encoder-decoders: against NumPy, their sizes by the papers' equations, alignments and dropout."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.layers import rnn_attention
from lmx.models import registry
from tests import drawn
from tests.reference import rnn_translation as reference

bahdanau = registry.get('bahdanau')
luong = registry.get('luong')
rnn_encdec = registry.get('rnn_encdec')

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
  'rnnencdec': (rnn_encdec, {'source_V': 71}),
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
MIXED = ('luong dot tied', 'luong local_m concat', 'rnnencdec both ways', 'rnnsearch lstm local')  # of what others have


def config(model=bahdanau, **changes):
  return registry.config(model.__name__.rsplit('.', 1)[-1], 'tiny', **changes)


def batch_of(cfg):
  rng = np.random.default_rng(1)
  words = lambda *shape: rng.integers(0, cfg.V, shape).astype(np.int32)
  valid_BT = np.arange(T) < np.array(TARGETS)[:, None]
  return {
    'source_BS': rng.integers(0, cfg.source_V or cfg.V, (B, S)).astype(np.int32),
    'source_valid_BS': np.arange(S) < np.array(SOURCES)[:, None],
    'tokens_BT': words(B, T),
    'targets_BT': words(B, T),
    'valid_BT': valid_BT,
    'weights_BT': valid_BT.astype(np.float32),
  }


def count(model, variant, **sizes):
  cfg = registry.config(model.__name__.rsplit('.', 1)[-1], variant, **sizes)
  shapes = jax.eval_shape(functools.partial(model.init, cfg), jax.random.key(0))
  return cfg, sum(x.size for x in jax.tree.leaves(shapes))


def params_of(model, cfg):
  return drawn.params(model.init, cfg, std=drawn.by_size(2))


@functools.cache
def outputs(design):
  """Config, parameters, batch, and the outputs of one pass and of single steps, from one program."""
  model, changes = DESIGNS[design]
  cfg = config(model, **changes)
  params, batch = params_of(model, cfg), batch_of(cfg)

  @jax.jit
  def run(params, batch):
    features, _ = model.apply(cfg, params, batch)
    whole = {'last': features.last_BTD, 'nll': model.nll(cfg, params, features, batch['targets_BT'])}
    if model is not rnn_encdec:
      whole['alignment'] = model.alignment(cfg, params, batch)

    def step(state, now):
      features, state = model.apply(cfg, params, {name: x_B[:, None] for name, x_B in now.items()}, state)
      return state, (features.last_BTD[:, 0], jax.tree.leaves(state['layers']))

    words = {name: batch[name].T for name in ('tokens_BT', 'valid_BT')}
    state, (last_TBD, carries) = jax.lax.scan(step, model.begin(cfg, params, batch, length=0), words)
    return whole, {'last': jnp.swapaxes(last_TBD, 0, 1), 'carries': carries, 'position': state['position_B']}

  return cfg, params, batch, *jax.device_get(run(params, batch))


every_design = pytest.mark.parametrize(
  'design', [pytest.param(name, marks=pytest.mark.slow) if name in MIXED else name for name in sorted(DESIGNS)]
)


@every_design
def test_equals_numpy(design):
  cfg, params, batch, found, _ = outputs(design)
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  for b, (s, t) in enumerate(zip(SOURCES, TARGETS, strict=True)):
    last, log_p, a = reference.decode(cfg, exact, batch['source_BS'][b, :s], batch['tokens_BT'][b, :t])
    nll_T = -log_p[np.arange(t), batch['targets_BT'][b, :t]]
    np.testing.assert_allclose(found['last'][b, :t], last, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found['nll'][b, :t], nll_T, rtol=1e-5, atol=1e-5)
    if 'alignment' in found:
      a_TS = found['alignment'][b]
      np.testing.assert_allclose(a_TS[:t, :s], a / a.sum(-1, keepdims=True), rtol=1e-5, atol=1e-5)
      assert not a_TS[:, s:].any()


@every_design
def test_step_by_step_equals_one_pass(design):
  _, _, batch, whole, steps = outputs(design)
  valid_BT = batch['valid_BT']
  np.testing.assert_allclose(steps['last'][valid_BT], whole['last'][valid_BT], rtol=1e-5, atol=1e-5)
  np.testing.assert_array_equal(steps['position'], TARGETS)
  for carry_TBD in steps['carries']:
    for b, t in enumerate(TARGETS):
      assert (carry_TBD[t:, b] == carry_TBD[t - 1, b]).all()  # padding leaves the state alone


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


def test_sutskevers_lstm_has_as_many_parameters_as_printed():
  """Section 3.4 of 1409.3215: 384M parameters, of which 64M are recurrent connections."""
  sizes = {'V': 80_000, 'source_V': 160_000}
  found = count(rnn_encdec, 'sutskever', **sizes)[1]
  assert found == 384_112_000 and round(found / 1e6) == 384


def test_initial_values_match_the_paper():
  paper, spread = config(init='paper', V=500, E=40), config(init_scale=0.1)
  both = jax.jit(lambda key: (bahdanau.init(paper, key), bahdanau.init(spread, key)))
  params, uniform = jax.device_get(both(jax.random.key(0)))
  recurrent = np.asarray(params['layer_01']['recurrent']).reshape(16, 3, 16)
  for i in range(3):
    np.testing.assert_allclose(recurrent[:, i] @ recurrent[:, i].T, np.eye(16), atol=1e-5)
  assert 0.0008 < np.std(params['attention']['query']) < 0.0012 and not np.asarray(params['attention']['energy']).any()
  assert 0.009 < np.std(params['embed']['source']) < 0.011
  assert not np.asarray(params['layer_00']['forward']['bias']).any()
  assert all(0.05 < np.abs(x).max() <= 0.1 for x in jax.tree.leaves(uniform))


def test_dropout_of_the_output_leaves_the_state_alone():
  cfg = config(dropout_output=0.5, maxout=400)
  params, batch = params_of(bahdanau, cfg), batch_of(cfg)

  @jax.jit
  def run(params, key):
    state = bahdanau.begin(cfg, params, batch, length=0)
    apply = functools.partial(bahdanau.apply, cfg, params, {'tokens_BT': batch['tokens_BT']}, state)
    return apply(key), apply()

  (dropped, after), (quiet, same) = jax.device_get(run(params, jax.random.key(1)))
  jax.tree.map(np.testing.assert_array_equal, after, same)
  zero = np.asarray(dropped.last_BTD) == 0
  assert 0.45 < zero.mean() < 0.55
  np.testing.assert_allclose(dropped.last_BTD[~zero], 2 * quiet.last_BTD[~zero], rtol=1e-5)


def test_dropout_of_hidden_layers_reaches_the_one_vector():
  cfg = config(rnn_encdec, dropout_hidden=0.5)
  params, batch = params_of(rnn_encdec, cfg), batch_of(cfg)

  @jax.jit
  def run(params, keys):
    apply = lambda key: rnn_encdec.apply(cfg, params, batch, (), key)[0].last_BTD
    return apply(keys[0]), apply(keys[1]), apply(None)

  one, two, quiet = run(params, jax.random.split(jax.random.key(1)))
  assert not np.allclose(one, two, atol=1e-3) and not np.allclose(one, quiet, atol=1e-3)


def test_hard_attention_samples_one_position_for_each_key():
  cfg = config(reading='hard', expected=0.0)
  params, batch = params_of(bahdanau, cfg), batch_of(cfg)
  apply = jax.jit(functools.partial(bahdanau.apply, cfg))
  (one, _), (two, _), (best, _) = (
    apply(params, batch, (), key) for key in (*jax.random.split(jax.random.key(1)), None)
  )
  assert not np.allclose(one.choice_BT[0], two.choice_BT[0])
  one, best = jax.device_get((one, best))
  log_a = np.log(best.alignment_BTS[0])
  np.testing.assert_allclose(best.choice_BT[0], log_a.max(-1), rtol=1e-5)
  first = np.log(one.alignment_BTS[0, 0])  # before any draw the weights are the same
  assert np.abs(first - one.choice_BT[0, 0]).min() < 1e-5
  mean, _ = jax.jit(functools.partial(bahdanau.apply, config(reading='hard', expected=1.0)))(
    params, batch, (), jax.random.key(1)
  )
  soft, _ = jax.jit(functools.partial(bahdanau.apply, config()))(params, batch)
  np.testing.assert_allclose(mean.last_BTD, soft.last_BTD, rtol=1e-6, atol=1e-6)
  assert not np.asarray(mean.choice_BT).any()


def test_penalty_covers_attended_positions():
  cfg = config(doubly_stochastic=0.7)
  params, batch = params_of(bahdanau, cfg), batch_of(cfg)

  @jax.jit
  def run(params):
    features, _ = bahdanau.apply(cfg, params, batch)
    return features, bahdanau.penalties(cfg, params, features, batch)

  features, found = run(params)
  a_BTS, expected = np.asarray(features.alignment_BTS), 0.0
  for b, (s, t) in enumerate(zip(SOURCES, TARGETS, strict=True)):
    expected += ((1 - a_BTS[b, :t, :s].sum(0)) ** 2).sum()
  np.testing.assert_allclose(found['evenness'], 0.7 * expected, rtol=1e-5)
  assert bahdanau.penalty_weights(cfg, batch) == {'evenness': B}
  plain = config()
  assert bahdanau.penalties(plain, params, features, batch) == bahdanau.penalty_weights(plain, batch) == {}


def assert_gradients(tree):
  for path, g in jax.tree_util.tree_leaves_with_path(tree):
    assert np.isfinite(g).all() and np.abs(g).max() > 1e-7, jax.tree_util.keystr(path)


def test_every_score_has_gradients():
  """In one of the windows, and where a row is padding."""
  names = list(zip(rnn_attention.SCORES, itertools.cycle(rnn_attention.WINDOWS), strict=False))
  rng = np.random.default_rng(0)
  normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)
  sizes = rnn_attention.Sizes(query=4, key=4, align=5, positions=S)
  params = [{k: normal(*x) for k, x in rnn_attention.shapes(*each, sizes).items()} for each in names]
  valid_BS, mix_BTS = np.arange(S) < np.array([[S], [4], [0]]), normal(B, T, S)
  count_B = valid_BS.sum(1)

  def loss(params, q_BTD, k_BSD):
    total = 0.0
    for p, (name, window) in zip(params, names, strict=True):
      centre_BT = rnn_attention.monotonic_centre(jnp.broadcast_to(jnp.arange(T), (B, T)), count_B)
      if window == 'local_p':
        centre_BT = rnn_attention.predictive_centre(p, q_BTD @ p['centre_query'], count_B)
      scores_BTS = rnn_attention.get(name)(p, q_BTD, k_BSD)
      a_BTS = rnn_attention.align(window, scores_BTS, valid_BS, centre_BT=centre_BT, reach=2)
      total += jnp.sum(a_BTS * mix_BTS)
    return total

  assert_gradients(jax.jit(jax.grad(loss, (0, 1, 2)))(params, normal(B, T, 4), normal(B, S, 4)))


@pytest.mark.parametrize(
  'score',
  [
    score if score in ('additive', 'location', 'dot') else pytest.param(score, marks=pytest.mark.slow)
    for score in sorted(rnn_attention.SCORES)
  ],
)
def test_every_parameter_has_gradients_through_the_decoder(score):
  """Each score in one of the windows."""
  window = rnn_attention.WINDOWS[sorted(rnn_attention.SCORES).index(score) % 3]
  cfg = config(luong, score=score, window=window)
  params, batch = params_of(luong, cfg), batch_of(cfg)
  batch['source_valid_BS'][2] = False  # a row of padding

  def loss(params):
    features, _ = luong.apply(cfg, params, batch)
    return jnp.sum(luong.nll(cfg, params, features, batch['targets_BT']) * batch['weights_BT'])

  assert_gradients(jax.jit(jax.grad(loss))(params))


@pytest.mark.parametrize(
  ('model', 'changes', 'message'),
  [
    (bahdanau, {'score': 'dot'}, 'queries of width 16 and keys of 32'),
    (bahdanau, {'reverse': True}, 'model.reverse: got true'),
    (rnn_encdec, {'design': 'sutskever', 'decoder_layers': 2}, 'expected bidirectional=False'),
    (bahdanau, {'tied': True}, 'got E = 12'),
    (luong, {'tied': True}, 'got E = 12'),
    (luong, {'layers': 0}, 'model.layers: got 0'),
    (rnn_encdec, {'init_scale': -0.1}, 'model.init_scale: got -0.1'),
    (luong, {'shared': True, 'source_V': 71}, 'model.shared: got true with model.source_V=71'),
  ],
)
def test_invalid_configs_are_rejected(model, changes, message):
  with pytest.raises(InputError, match=message):
    config(model, **changes)
