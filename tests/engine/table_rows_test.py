"""Updates of the rows that a batch reads against updates of whole tables."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.engine import sharding, state, step
from lmx.models import elmo, registry
from lmx.objectives import bidirectional_lm
from lmx.optim import build
from lmx.types import Objective, Output
from tests import placed

V, D, B, T, S = 1008, 4, 8, 3, 20
SECTION = build.Config(optimizer='adagrad', lr=0.3, accumulator=0.01, clip_norm=0.5)


def loss(cfg, model, model_cfg, params, batch, state, key=None):
  """Of the sampled softmax alone: the hidden layer is data."""
  head, sums = params['model']['softmax'], {}
  for name, targets, k in zip(
    ('forward', 'backward'), ('targets_BT', 'backward_targets_BT'), jax.random.split(key, 3)[1:], strict=True
  ):
    nll_BT = elmo.sampled_loss(batch['x_BTD'], head['table'], head['bias'], batch[targets], k, S, size=V)
    sums[name] = jnp.sum(nll_BT * batch['weights_BT'])
  return Output(sums, {}, state)


OBJECTIVE = Objective()
vars(OBJECTIVE).update(__name__='objective', loss=loss, weights=bidirectional_lm.weights)
PARTS = (registry.get('elmo'), elmo.Config(V=V), OBJECTIVE, bidirectional_lm.Config(samples=S))


def given():
  rng = np.random.default_rng(0)
  table_VD, x_BTD = rng.standard_normal((V, D), np.float32), 2 * rng.standard_normal((B, T, D), np.float32)
  targets = rng.integers(0, 30, (2, B, T)).astype(np.int32)  # many are repeated, or are sampled too
  batch = {
    'x_BTD': x_BTD,
    'targets_BT': targets[0],
    'backward_targets_BT': targets[1],
    'weights_BT': np.ones((B, T), np.float32),
  }
  return {'model': {'softmax': {'table': table_VD, 'bias': np.zeros(V, np.float32)}}, 'objective': {}}, batch


def build_step(params, by_row):
  tx = build.make(SECTION, params, lambda path: 0, 1, 10, 10)
  rows = {'read_rows': functools.partial(bidirectional_lm.read_rows, PARTS[3], PARTS[0], PARTS[1])} if by_row else {}
  return tx, step.make_train_step(*PARTS, tx, build.rate(SECTION, 10, 10), **rows)


@functools.cache
def trained(devices, by_row, axes=(), scale=1.0):
  """The parameters, the optimizer's state and the metrics after two updates."""
  params, batch = given()
  engine = sharding.Engine(sharding.Config(**dict(axes)), jax.devices()[:devices], row_tables=elmo.ROW_TABLES)
  tx, train_step = build_step(params, by_row)
  train_state = engine.build(lambda params: state.create(params, tx), params)
  run = engine.compile_train(train_step, train_state)
  key, rows = engine.replicate(jax.random.key(1)), engine.put_batch({**batch, 'x_BTD': scale * batch['x_BTD']})
  for _ in range(2):
    train_state, _, metrics = run(train_state, (), rows, key)
  leaves = [np.asarray(x) for x in jax.tree.leaves((train_state.params, train_state.opt_state))]
  return leaves, {name: float(x) for name, x in metrics.items()}


@pytest.mark.parametrize(('devices', 'axes'), [(1, ()), (8, (('data', 4), ('fsdp', 2)))])
def test_row_updates_match_full_table_updates(devices, axes):
  expected, metrics = trained(1, False)
  found, own = trained(devices, True, axes)
  for a, b in zip(found, expected, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
  assert own == pytest.approx(metrics, rel=1e-5) and own['finite'] and own['grad_norm'] > SECTION.clip_norm
  before = given()[0]['model']['softmax']['table']
  changed = next(x for x in found if x.shape == (V, D) and not np.array_equal(x, before))
  assert S < (changed != before).any(1).sum() < V / 2


def test_non_finite_loss_changes_nothing():
  leaves, metrics = trained(1, True, scale=np.inf)
  assert not metrics['finite'] and all(np.isfinite(x).all() for x in leaves)
  start = given()[0]['model']['softmax']['table']
  assert any(np.array_equal(x, start) for x in leaves)


def test_table_is_used_only_in_gathers_and_scatters():
  params, batch = given()
  tx, train_step = build_step(params, True)
  start = jax.eval_shape(lambda params: state.create(params, tx), params)
  with placed.on():
    jaxpr = jax.make_jaxpr(train_step)(start, (), batch, jax.random.key(0)).jaxpr
  of_tables = lambda eqn: any((V, D) == getattr(v.aval, 'shape', ()) for v in (*eqn.invars, *eqn.outvars))
  assert {eqn.primitive.name for eqn in jaxpr.eqns if of_tables(eqn)} == {'gather', 'scatter'}


@pytest.mark.parametrize('changes', [{'optimizer': 'adam'}, {'weight_decay': 0.1}, {'ema': 0.9}, {'asgd': 'start'}])
def test_optimizers_that_move_every_row_use_dense_updates(changes):
  assert build.is_by_row(SECTION)
  assert not build.is_by_row(build.Config(**{'optimizer': 'adagrad', **changes}))
