"""Gradients under each `objective.reduction` against a loop over rows, and the divisors of several objectives."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx import objectives
from lmx.engine import sharding
from lmx.engine import step as step_lib
from lmx.errors import InputError
from lmx.objectives import bits, causal_lm, character_aux, masked_lm, segment, tag
from lmx.types import Model
from tests.engine.step_test import ROWS, TOY, Toy, ToyConfig, batch, close, toy_apply, toy_nll, toy_start

START = {'model': toy_start(), 'objective': {}}


@functools.cache
def rows():
  """(weight, summed loss, its gradient) of each row that predicts something."""

  @jax.jit
  @jax.value_and_grad
  def loss(params, row):
    features, _ = toy_apply(ToyConfig(), params['model'], row, TOY.init_state(None, 1))
    return jnp.sum(toy_nll(None, params['model'], features, row['targets_BT']) * row['weights_BT'])

  data = batch()
  weights_B = data['weights_BT'].sum(axis=1)
  found = [
    (weights_B[r], *loss(START, {name: x[r : r + 1] for name, x in data.items()})) for r in np.flatnonzero(weights_B)
  ]
  assert len(set(weights_B)) > 3 and len(found) < ROWS
  return found


def definition(reduction):
  """The gradient, added row by row."""
  divisor = {'tokens': sum(weight for weight, _, _ in rows()), 'sum': 1}.get(reduction, len(rows()))
  total = jax.tree.map(np.zeros_like, START)
  for weight, _, gradient in rows():
    factor = 1 / weight if reduction == 'row_means' else 1.0
    total = jax.tree.map(lambda a, b, factor=factor: a + factor * np.asarray(b) / divisor, total, gradient)
  return total


def moved(toy):
  """(change of the parameters by an update, reported loss)."""
  state, model_state, metrics = toy.run(0)
  if toy.engine.cfg.mode == 'pmap':
    state, _ = toy.engine.to_global(state, model_state, ROWS)
  return jax.tree.map(lambda a, b: a - np.asarray(b), START, state.params), float(np.ravel(metrics['loss'])[0])


@pytest.mark.parametrize('reduction', objectives.REDUCTIONS)
def test_gradient_equals_a_loop_over_rows(reduction):
  """Also in two microbatches on eight devices, some of which have only padding."""
  step = {'reduction': reduction, 'optimizer': 'sgd', 'lr': 1.0}
  total, count = sum(loss for _, loss, _ in rows()), sum(weight for weight, _, _ in rows())
  mean = sum(loss / weight for weight, loss, _ in rows()) / len(rows())
  for options in ({}, {'accumulate': 2, 'engine': sharding.Engine(sharding.Config('pmap'))}):
    change, reported = moved(Toy(**step, **options))
    close(change, definition(reduction), 2e-6)
    assert reported == pytest.approx(float(mean if reduction == 'row_means' else total / count), rel=1e-5)


@pytest.mark.parametrize('reduction', ['rows', 'sum'])
def test_sharding_changes_no_gradient(reduction):
  toy = Toy(reduction=reduction, optimizer='sgd', lr=1.0, accumulate=2, engine=sharding.Engine(sharding.Config()))
  close(moved(toy)[0], definition(reduction), 2e-6)


def divisors_of(objective, cfg, data):
  """Divisors of the loss of a model with a penalty of weight 7."""
  model = Model()
  vars(model).update(penalty_weights=lambda cfg, batch: {'penalty': jnp.float32(7)})
  found = step_lib.training_divisors(model, None, objective, cfg, data)
  return {term: float(x) for term, x in found.loss.items()}


def test_each_term_has_its_own_divisor():
  weights = np.array([[1, 1, 0], [0, 0, 0], [1, 0, 0]], np.float32)
  pairs = {'weights_BP': weights, 'row_weights_B': np.array([1, 1, 1], np.float32), 'packed_PT': np.zeros((2, 9))}
  images = {
    'row_weights_B': np.array([1, 1, 0]),
    'labels_BYX': np.array([[[1, 2], [3, -1]], [[-1, -1]] * 2, [[1, 1]] * 2]),
  }
  characters = {'weights_BT': weights, 'tokens_BT': np.ones((3, 3), np.int32), 'targets_BT': np.ones((3, 3), np.int32)}
  cases = (
    ('masked_lm', masked_lm.Config, pairs, {'mlm': (3, 2), 'nsp': (3, 3)}),
    ('tag', tag.Config, {'weights_BT': weights}, {'nll': (3, 2)}),
    ('segment', segment.Config, images, {'nll': (3, 1), 'auxiliary': (3, 1)}),
    ('character_aux', character_aux.Config, characters, {'nll': (3, 2), 'layers': (3, 2), 'second': (1, 1)}),
  )
  for name, config, data, wanted in cases:
    found = functools.partial(divisors_of, objectives.get(name), data=data)
    assert found(config()) == {term: tokens for term, (tokens, _) in wanted.items()} | {'penalty': 7}, name
    assert found(config(reduction='rows')) == {term: n for term, (_, n) in wanted.items()} | {'penalty': 7}, name
    assert found(config(reduction='sum')) == dict.fromkeys(wanted, 1) | {'penalty': 7}, name


def test_row_means_weigh_the_predictions_of_a_row():
  data = {'weights_BP': np.array([[1, 1, 0], [0, 0, 0], [1, 0, 0]], np.float32), 'row_weights_B': np.ones(3)}
  found = step_lib._weigh_rows(masked_lm.Config(reduction='row_means'), data)
  np.testing.assert_array_equal(found['weights_BP'], [[0.5, 0.5, 0], [0, 0, 0], [1, 0, 0]])
  assert found['row_weights_B'] is data['row_weights_B'] and step_lib._weigh_rows(masked_lm.Config(), data) is data


@pytest.mark.parametrize(
  ('config', 'reduction'),
  [
    (causal_lm.Config, 'mean'),
    (bits.Config, 'rows'),
    (objectives.get('classify').Config, 'rows'),
    (objectives.get('span').Config, 'row_means'),
    (segment.Config, 'row_means'),
    (functools.partial(tag.Config, crf=True), 'row_means'),
  ],
)
def test_reduction_without_a_meaning_is_refused(config, reduction):
  with pytest.raises(InputError, match=r'objective\.reduction'):
    config(reduction=reduction)
