"""The recurrent language model: its sizes, against NumPy, and where its dropout is."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.models import registry
from tests import drawn
from tests.reference import recurrent as reference

rnn_lm = registry.get('rnn_lm')

B, T = 3, 8
LENGTHS = (8, 3, 5)
CELLS = ('rnn', 'rnn_relu', 'rnn_sigmoid', 'gru', 'lstm')


def count(variant, **changes):
  cfg = registry.config('rnn_lm', variant, **changes)
  return sum(x.size for x in jax.tree.leaves(drawn.shapes(rnn_lm.init, cfg)))


def batch_of(cfg):
  rng = np.random.default_rng(1)
  return {
    'tokens_BT': rng.integers(0, cfg.V, (B, T)).astype(np.int32),
    'targets_BT': rng.integers(0, cfg.V, (B, T)).astype(np.int32),
    'valid_BT': np.arange(T) < np.array(LENGTHS)[:, None],
  }


def state_of(cfg):
  rng = np.random.default_rng(2)
  shapes = jax.eval_shape(lambda: rnn_lm.init_state(cfg, B))
  return jax.tree.map(lambda x: 0.5 * rng.standard_normal(x.shape, np.float32), shapes)


def params_of(cfg):
  return drawn.params(rnn_lm.init, cfg, std=drawn.by_size(2))


@pytest.mark.parametrize(
  'variant, single, double',
  [
    ('small', 4_651_600, 4_653_200),
    ('medium', 19_775_200, 19_780_400),  # the "20M" of Merity et al. 2017, table 1
    ('large', 66_022_000, 66_034_000),  # and their "66M"
  ],
)
def test_parameter_counts(variant, single, double):
  assert count(variant) == single
  assert count(variant, bias='double') == double
  cfg = registry.config('rnn_lm', variant)
  assert count(variant, tied=True) == single - cfg.V * cfg.D


def test_gru_and_rnn_have_three_and_one_gates():
  layers = {cell: count('small', cell=cell) - 10_000 * (200 + 200 + 1) for cell in CELLS}
  assert layers == {'rnn': 160_400, 'rnn_relu': 160_400, 'rnn_sigmoid': 160_400, 'gru': 481_200, 'lstm': 641_600}


@pytest.mark.parametrize('cell', CELLS)
@pytest.mark.parametrize('tied', [False, True])
def test_equals_numpy(cell, tied):
  cfg = registry.config('rnn_lm', 'tiny', cell=cell, tied=tied, bias='double', **({'E': 16} if tied else {}))
  params, batch, state = params_of(cfg), batch_of(cfg), state_of(cfg)

  @jax.jit
  def run(params, batch, state):
    features, after = rnn_lm.apply(cfg, params, batch, state)
    return rnn_lm.nll(cfg, params, features, batch['targets_BT']), after

  nll_BT, after = jax.device_get(run(params, batch, state))
  exact, before = jax.tree.map(lambda x: np.asarray(x, np.float64), (params, state))
  for b, length in enumerate(LENGTHS):
    carries = [tuple(x[b] for x in carry) for carry in before]
    nll_T, ends = reference.nll(cell, exact, batch['tokens_BT'][b], batch['targets_BT'][b], carries, length)
    np.testing.assert_allclose(nll_BT[b, :length], nll_T, rtol=1e-5, atol=1e-5)
    for got, end in zip(jax.tree.leaves(after), jax.tree.leaves(ends), strict=True):
      np.testing.assert_allclose(got[b], end, rtol=1e-5, atol=1e-5)


MIKOLOV = dict(D=16, E=16, N=1, cell='rnn_sigmoid', input='one_hot', bias='none', classes=4, class_starts=(2, 9, 30))


def test_mikolov_equals_the_papers_equations():
  """s(t) = sigmoid(U w(t) + W s(t - 1)), p(word) = p(class) p(word | class), one step and word at a time."""
  cfg = registry.config('rnn_lm', 'tiny', **MIKOLOV)
  params, batch, state = params_of(cfg), batch_of(cfg), state_of(cfg)
  assert jax.tree.map(np.shape, params) == {
    'embed': {'table': (61, 16)},
    'layer_00': {'recurrent': (16, 16)},
    'output': {'table': (61, 16), 'classes': (4, 16)},
  }

  @jax.jit
  def run(params, batch, state):
    features, after = rnn_lm.apply(cfg, params, batch, state)
    return rnn_lm.nll(cfg, params, features, batch['targets_BT']), rnn_lm.logits(cfg, params, features), after

  nll_BT, log_p_BTV, after = jax.device_get(run(params, batch, state))
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  softmax = lambda scores: np.exp(scores) / np.exp(scores).sum()
  for b, length in enumerate(LENGTHS):
    s = np.asarray(state[0][0][b], np.float64)
    for t in range(length):
      one_hot = np.eye(61)[batch['tokens_BT'][b, t]]
      s = reference.sigmoid(one_hot @ exact['embed']['table'] + s @ exact['layer_00']['recurrent'])
      classes = softmax(exact['output']['classes'] @ s)
      words = [softmax(part @ s) for part in np.split(exact['output']['table'], MIKOLOV['class_starts'])]
      p_V = np.concatenate([p * within for p, within in zip(classes, words, strict=True)])
      np.testing.assert_allclose(np.exp(log_p_BTV[b, t]), p_V, rtol=1e-5)
      assert nll_BT[b, t] == pytest.approx(-np.log(p_V[batch['targets_BT'][b, t]]), rel=1e-5)
    np.testing.assert_allclose(after[0][0][b], s, rtol=1e-5)
  assert count('mikolov') == 2 * 10_000 * 200 + 200**2 + 100 * 200 == 4_060_000


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'D': 8}, 'model.input: got "one_hot" with E = 16, D = 8'),
    ({'cell': 'gru'}, 'model.input: got "one_hot" .* cell "gru"'),
    ({'class_starts': (2, 9)}, 'model.class_starts: got 2; expected 3'),
    ({'class_starts': (2, 9, 99), 'V': 99}, 'model.class_starts: got 99 with model.V = 99'),
    ({'classes': 0}, 'model.class_starts: got 3; expected 0'),
  ],
)
def test_invalid_classes_and_inputs_are_rejected(fields, message):
  with pytest.raises(InputError, match=message):
    registry.config('rnn_lm', 'tiny', **MIKOLOV | fields)


def test_unknown_classes_are_no_output():
  cfg = registry.config('rnn_lm', 'tiny', **MIKOLOV | {'class_starts': ()})
  with pytest.raises(InputError, match='model.class_starts: got none'):
    jax.eval_shape(lambda: rnn_lm.logits(cfg, drawn.shapes(rnn_lm.init, cfg), rnn_lm.Features(np.zeros((1, 1, 16)))))


def test_every_parameter_starts_uniform():
  cfg = registry.config('rnn_lm', 'tiny', bias='double')
  params = jax.device_get(jax.jit(rnn_lm.init, static_argnums=0)(cfg, jax.random.key(0)))
  for path, x in jax.tree_util.tree_leaves_with_path(params):
    name = jax.tree_util.keystr(path)
    assert 0.7 * cfg.init_scale < np.abs(x).max() <= cfg.init_scale, name
    assert abs(np.mean(x)) < cfg.init_scale / 4, name


def test_dropout_is_not_applied_to_recurrent_connections():
  cfg = registry.config('rnn_lm', 'tiny', dropout=0.5, D=400, E=400)
  params, batch, state = drawn.params(rnn_lm.init, cfg, std=drawn.by_size(4)), batch_of(cfg), state_of(cfg)
  del batch['valid_BT']

  @jax.jit
  def both(params, key):
    apply = lambda key: rnn_lm.apply(cfg, params, batch, state, key, all_layers=True)
    return apply(key), apply(None)

  (features, after), (quiet, _) = jax.device_get(both(params, jax.random.key(1)))
  embedding, first, second = features.layers
  np.testing.assert_array_equal(embedding, quiet.layers[0])
  assert np.mean(first == 0) < 0.01 and np.mean(second == 0) < 0.01
  assert np.abs(first[:, 0] - quiet.layers[1][:, 0]).max() > 0.1  # the embedding was dropped on its way in
  dropped = features.last_BTD == 0
  assert 0.45 < dropped.mean() < 0.55
  np.testing.assert_allclose(features.last_BTD[~dropped], 2 * second[~dropped], rtol=1e-6)
  np.testing.assert_array_equal(after[1][0], second[:, -1])  # the carry is that of the layer, not dropped
  # With nothing coming in, dropout has no way to change anything but the output.
  for i in range(cfg.N):
    params[f'layer_{i:02d}']['input'] *= 0
  (_, after), (_, quiet) = both(params, jax.random.key(1))
  jax.tree.map(np.testing.assert_array_equal, after, quiet)


def test_dropout_applies_to_the_input_of_a_middle_layer():
  cfg = registry.config('rnn_lm', 'tiny', dropout=0.9)
  params, batch, state = params_of(cfg), batch_of(cfg), state_of(cfg)
  params['layer_00']['input'] *= 0
  apply = lambda key: rnn_lm.apply(cfg, params, batch, state, key, all_layers=True)[0]
  outputs = jax.device_get(jax.jit(lambda key: (apply(None), apply(key)))(jax.random.key(2)))
  np.testing.assert_array_equal(outputs[0].layers[1], outputs[1].layers[1])
  assert np.abs(outputs[0].layers[2] - outputs[1].layers[2]).max() > 0.01


def test_tied_table_of_other_sizes_is_rejected():
  with pytest.raises(InputError, match='E = 12 and D = 16'):
    registry.config('rnn_lm', 'tiny', tied=True)
