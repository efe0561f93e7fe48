"""Permutation language modelling with next sentences: the second term against NumPy, and what it leaves as it is."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lmx import objectives
from lmx.engine import flops
from lmx.models import registry
from tests import drawn

B, T = 3, 24


@pytest.fixture(scope='module')
def made():
  """(task with next sentences, its parameters, a batch whose last row is padding)."""
  model, objective = registry.get('xlnet'), objectives.get('permutation_lm')
  task = flops.Task(model, registry.config('xlnet', 'tiny'), objective, objective.Config(next_sentence=True))
  params = drawn.params(task.init)
  batch = flops.random_batch(task, B, T)
  batch['order_BT'] = np.where(np.arange(T) < 16, 0, np.arange(T) - 15)[None].repeat(B, 0).astype(np.int32)
  batch |= {'next_B': np.asarray([0, 1, 1], np.int32), 'row_weights_B': np.asarray([1, 1, 0], np.float32)}
  return task, params, batch


def found(task, params, batch):
  state = task.model.init_state(task.cfg, B)
  return task.objective.loss(task.objective_cfg, task.model, task.cfg, params, batch, state)


def test_term_matches_the_last_state_through_the_summary(made):
  task, params, batch = made

  @jax.jit
  def run(params):
    features, _ = task.model.apply(task.cfg, params['model'], batch, task.model.init_state(task.cfg, B))
    return features.last_BTD, found(task, params, batch)

  last_BTD, got = jax.device_get(run(params))
  head = params['objective']
  x_BD = np.tanh(last_BTD[:, -1] @ head['summary']['kernel'] + head['summary']['bias'])
  scores_B2 = x_BD @ head['nsp']['kernel'] + head['nsp']['bias']
  log_p_B2 = scores_B2 - np.log(np.exp(scores_B2).sum(-1, keepdims=True))
  assert got.sums['nsp'] == pytest.approx(-log_p_B2[0, 0] - log_p_B2[1, 1], rel=1e-5)
  right = float(scores_B2[0].argmax() == 0) + float(scores_B2[1].argmax() == 1)
  assert [float(x) for x in got.metrics['nsp_accuracy']] == [right, 2.0]
  assert task.objective.weights(task.objective_cfg, batch)['nsp'] == 2


def test_unset_options_change_nothing(made):
  task, params, batch = made
  plain = flops.Task(task.model, task.cfg, task.objective, task.objective.Config())
  assert drawn.params(plain.init)['objective'] == {}
  ours, theirs = jax.jit(lambda p: (found(plain, {'model': p['model']}, batch), found(task, p, batch)))(params)
  assert set(ours.sums) == {'plm'} and ours.sums['plm'] == theirs.sums['plm']
  totals = {'plm': (6.0, 3.0), 'nsp': (1.0, 2.0), 'nsp_accuracy': (1.0, 2.0)}
  report = task.objective.report(task.objective_cfg, totals, {})
  assert report['loss'] == pytest.approx(2.5) and report['predicted_perplexity'] == pytest.approx(np.exp(2.0))
  assert report['nsp_accuracy'] == 0.5


def test_every_part_of_the_head_and_the_content_stream_learn_from_it(made):
  task, params, batch = made
  gradient = jax.device_get(jax.jit(jax.grad(lambda p: found(task, p, batch).sums['nsp']))(params))
  assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradient['objective']))
  assert np.abs(gradient['model']['embed']['tokens'][batch['tokens_BT'][0]]).max() > 0
