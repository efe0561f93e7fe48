"""Both directions, sampled in training and full at evaluation, the names of the two, and the state between batches."""

from __future__ import annotations

import functools
import math

import jax
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.models import registry
from lmx.objectives import bidirectional_lm as objective
from lmx.objectives import tag
from lmx.reporting import loss_curve
from tests import drawn

elmo = registry.get('elmo')

DRAWS = True  # of tests/conftest.py

B, T, C, V = 3, 5, 7, 61
RNG = np.random.default_rng(0)
CFG = registry.config('elmo', 'tiny', dropout=0.0)
FULL, SAMPLED = objective.Config(samples=0), objective.Config(samples=20)
KEY = jax.random.key(3)


def batch(weights=None):
  ids = lambda *shape: RNG.integers(1, 262, shape).astype(np.int32)
  return {
    'characters_BTC': ids(B, T, C),
    'backward_characters_BTC': ids(B, T, C),
    'targets_BT': ids(B, T) % V,
    'backward_targets_BT': ids(B, T) % V,
    'weights_BT': np.ones((B, T), np.float32) if weights is None else weights,
  }


BATCH = batch()
PARAMS = {'model': drawn.params(elmo.init, CFG), 'objective': {}}


LOSS = jax.jit(lambda cfg, *args: objective.loss(cfg, elmo, CFG, *args), static_argnums=0)


def run(cfg=FULL, key=None, batch=BATCH, state=None):
  return LOSS(cfg, PARAMS, batch, elmo.init_state(CFG, B) if state is None else state, key)


def test_each_direction_is_scored_against_its_own_targets():
  features, _ = jax.jit(functools.partial(elmo.apply, CFG))(PARAMS['model'], BATCH, elmo.init_state(CFG, B))
  softmax = jax.tree.map(lambda x: np.asarray(x, np.float64), PARAMS['model']['softmax'])
  found = run().sums
  for way, at, name in (('forward', slice(0, 7), 'targets_BT'), ('backward', slice(7, 14), 'backward_targets_BT')):
    scores = np.asarray(features.last_BTD[..., at], np.float64) @ softmax['table'].T + softmax['bias']
    log_p = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    expected = -np.take_along_axis(log_p, BATCH[name][..., None], -1).sum()
    assert float(found[way]) == pytest.approx(expected, rel=1e-5)


def test_sampled_loss_is_called_one_and_never_a_perplexity():
  trained, measured = run(SAMPLED, KEY), run(SAMPLED)
  assert set(trained.metrics) == {'sampled_nll_forward', 'sampled_nll_backward'}
  assert set(measured.metrics) == set(trained.sums) == {'forward', 'backward'} == set(objective.terms(SAMPLED))
  np.testing.assert_allclose(measured.sums['forward'], run().sums['forward'])  # evaluation is full
  assert abs(trained.sums['forward'] - run().sums['forward']) > 1e-3
  assert set(run(objective.Config(samples=V), KEY).metrics) == {'forward', 'backward'}  # not sampled: all are there
  with pytest.raises(KeyError):
    objective.report(SAMPLED, trained.metrics, {})


def test_report_has_both_perplexities_and_their_average():
  found = objective.report(FULL, {'forward': (10 * math.log(8), 10), 'backward': (10 * math.log(2), 10)}, {})
  assert found == pytest.approx(
    {'loss': math.log(16), 'perplexity_forward': 8.0, 'perplexity_backward': 2.0, 'perplexity_average': 4.0}
  )
  assert objective.METRICS[0].name in found


def test_padding_counts_nothing():
  weights = np.ones((B, T), np.float32)
  weights[:, 3:] = 0
  short, other = batch(weights), {}
  for name, value in short.items():
    other[name] = value.copy()
    if name != 'weights_BT':
      other[name][:, 3:] = (value[:, 3:] + 1) % V
  assert float(run(batch=short).sums['forward']) == pytest.approx(float(run(batch=other).sums['forward']), rel=1e-6)
  assert float(objective.weights(FULL, short)['backward']) == B * 3


def test_state_is_carried_and_rows_start_again():
  first = run()
  carried = run(state=first.state).sums
  assert abs(carried['backward'] - first.sums['backward']) > 1e-4
  reset = run(batch={**BATCH, 'reset_B': np.ones(B, bool)}, state=first.state).sums
  for way in ('forward', 'backward'):
    assert float(reset[way]) == pytest.approx(float(first.sums[way]), rel=1e-6)
  stateless = objective.Config(samples=0, stateful=False)
  again = run(stateless, state=first.state).sums
  assert float(again['forward']) == pytest.approx(float(first.sums['forward']), rel=1e-6)
  gradient = jax.jit(jax.grad(lambda s: run(state=s).sums['forward']))(first.state)
  assert max(np.abs(x).max() for x in jax.tree.leaves(gradient)) == 0


def test_curve_of_sampled_losses_has_no_axis_of_perplexities(tmp_path, monkeypatch):
  axes = []
  monkeypatch.setattr(loss_curve, '_draw_perplexity', axes.append)
  records = [{'step': i, 'split': 'train', 'loss': 5.0 - i, 'sampled_nll_forward': 2.5} for i in (1, 2)]
  results = {'model': 'elmo:tiny', 'dataset': 'x', 'split': 'test', 'metric': 'perplexity_average'}
  results['perplexity_average'] = 9.0
  loss_curve.draw(records, tmp_path / 'loss.png', results)
  assert not axes
  results |= {'metric': 'perplexity_per_token', 'perplexity_per_token': 9.0}
  loss_curve.draw(records, tmp_path / 'loss.png', results)
  assert axes


def test_untaggable_inputs_are_rejected():
  with pytest.raises(InputError, match='no word labels'):
    tag.resolve(tag.Config(), {'dataset': {'name': 'ptb'}})
  manifest = {'dataset': {'name': 'x'}, 'token_label_names': ['B-x', 'O']}
  assert tag.resolve(tag.Config(), manifest).labels == ('B-x', 'O')
  with pytest.raises(InputError, match='objective.labels: got a, b'):
    tag.resolve(tag.Config(labels=('a', 'b')), manifest)
