"""Penalties of a model are in the loss of every objective: none is dropped, and none counts what is not read."""

from __future__ import annotations

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx import objectives
from lmx.config import resolve
from lmx.engine import step
from lmx.errors import InputError
from lmx.models import registry
from lmx.types import Features
from tests import contract_test
from tests.reference import ulmfit

awd_lstm, bilstm = registry.get('awd_lstm'), registry.get('bilstm')
classify, multiple_choice, regress = map(objectives.get, ('classify', 'multiple_choice', 'regress'))

B, T = 3, 12
LENGTHS = np.array([12, 7, 3])
LABELS = {'scores': True, 'choices': 2, 'spans': True, **contract_test.LABELS}
UNFIT = (InputError, KeyError, TypeError, ValueError, AttributeError)  # of a model and an objective for other batches


def objective_of(name: str):
  module = objectives.get(name)
  cfg = module.Config(**({'bptt': 0} if hasattr(module.Config, 'bptt') else {}))
  return module, module.resolve(cfg, LABELS)


def batch_shapes(objective, objective_cfg, model, cfg) -> dict:
  """Shapes of a batch of the objective, with what models read beside its own keys."""
  others = [objectives.get(name) for name in ('bidirectional_lm', 'translation', 'masked_lm')]
  shapes = {'valid_BT': jax.ShapeDtypeStruct((B, T), bool)}
  shapes |= {key: x for other in others for key, x in other.shapes(other.Config(), B, T).items()}
  own = objective.shapes(objective_cfg, B, T)
  shapes = {key: x for key, x in shapes.items() if key.replace('_B', '_BG', 1) not in own} | own
  return model.read_shapes(cfg, shapes)


@pytest.mark.parametrize('most', [1, pytest.param(len(registry.names()), marks=pytest.mark.slow)])
@pytest.mark.parametrize('name', objectives.names())
def test_no_objective_drops_the_penalties_of_any_model(name, most):
  """Of the first model that the objective takes; `slow` asks all."""
  objective, objective_cfg = objective_of(name)
  fitting = 0
  for model_name in registry.names():
    cfg, model, seen = contract_test.config(model_name), copy.copy(registry.get(model_name)), []

    def penalties(cfg, params, features, batch, seen=seen):
      seen.append((len(features.last_BTD), len(batch.get('valid_BT', features.last_BTD))))
      return {'made_up': jnp.sum(features.last_BTD)}

    def loss(key, batch, model=model, cfg=cfg):
      params = {'model': model.init(cfg, key), 'objective': objective.init(objective_cfg, model, cfg, key)}
      state = model.init_state(cfg, B)
      return step.training_loss(model, cfg, objective, objective_cfg, params, batch, state, key)

    model.penalties, model.penalty_weights = penalties, lambda cfg, batch: {'made_up': jnp.float32(1)}
    try:
      out = jax.eval_shape(loss, jax.random.key(0), batch_shapes(objective, objective_cfg, model, cfg))
    except UNFIT:
      continue
    assert 'made_up' in out.sums and 'made_up' in out.metrics and seen[0][0] == seen[0][1], model_name
    fitting += 1
    if fitting == most:
      break
  assert fitting


def test_objective_without_features_rejects_penalties():
  objective = copy.copy(objectives.get('classify'))
  objective.__name__ = 'lmx.objectives.blind'
  objective.loss = lambda *args, **more: classify.loss(*args, **more)._replace(features=None)
  cfg = classify.Config(classes=2)
  with pytest.raises(InputError, match=r'got blind'):
    training(objective, cfg, awd_lstm, contract_test.config('awd_lstm', alpha=2.0, beta=1.0), batch_of())
  training(objective, cfg, awd_lstm, contract_test.config('awd_lstm', alpha=0.0, beta=0.0), batch_of())


def batch_of(**more):
  tokens_BT = np.random.default_rng(0).integers(1, 61, (B, T)).astype(np.int32)
  valid_BT = np.arange(T) < LENGTHS[:, None]
  return {
    'tokens_BT': np.where(valid_BT, tokens_BT, 0),
    'valid_BT': valid_BT,
    'row_weights_B': np.ones(B, np.float32),
    'labels_B': np.array([0, 1, 1]),
    'scores_B': np.ones(B, np.float32),
    **more,
  }


def training(objective, objective_cfg, model, cfg, batch):
  """Mean of each term of the loss."""
  parts = model, cfg, objective, objective_cfg

  @jax.jit
  def means(key):
    params = {'model': moved(model, cfg, key), 'objective': objective.init(objective_cfg, model, cfg, key)}
    sums = step.training_loss(*parts, params, batch, model.init_state(cfg, B), key).sums
    weights = step.training_weights(*parts, batch)
    assert set(weights) == set(sums)
    return {name: sums[name] / weights[name] for name in sums}

  return {name: float(x) for name, x in means(jax.random.key(0)).items()}


def moved(model, cfg, key):
  """Parameters of a model, off zero."""
  return jax.tree.map(lambda x: x + 0.1, model.init(cfg, key))


@pytest.mark.parametrize(('bptt', 'pooled_length'), [(0, 0), pytest.param(5, 0, marks=pytest.mark.slow), (5, 6)])
def test_classifier_activation_penalties_average_pooled_positions(bptt, pooled_length):
  """As the released code of ULMFiT, whose `seq2seq_reg` gets the outputs of the windows that are pooled."""
  cfg, batch = contract_test.config('awd_lstm', alpha=2.0, beta=1.0), batch_of()
  objective_cfg = classify.Config(classes=2, bptt=bptt, pooled_length=pooled_length)
  mean = training(classify, objective_cfg, awd_lstm, cfg, batch)

  @jax.jit
  def outputs(key):
    return awd_lstm.apply(cfg, moved(awd_lstm, cfg, key), batch, awd_lstm.init_state(cfg, B))[0].raw_BTD

  h_BTD = np.asarray(outputs(jax.random.key(0)), np.float64)
  rows = [h_BTD[b][ulmfit.windows_pooled(n, bptt or T, pooled_length)] for b, n in enumerate(LENGTHS)]
  squares = np.concatenate([np.square(h).mean(-1) for h in rows])
  changes = np.concatenate([np.square(h[1:] - h[:-1]).mean(-1) for h in rows])
  assert mean['activation'] == pytest.approx(2.0 * squares.mean(), rel=1e-5)
  assert mean['slowness'] == pytest.approx(1.0 * changes.mean(), rel=1e-5)


def test_padding_rows_have_no_activation_penalty():
  """Of batches that do not tell which positions are valid."""
  cfg = contract_test.config('awd_lstm', alpha=2.0, beta=1.0)
  x_BTD = jnp.asarray(np.random.default_rng(0).normal(size=(B, T, 4)))
  batch = {'tokens_BT': np.zeros((B, T), np.int32), 'index_B': jnp.array([5, 0, -1])}
  outputs = lambda rows: Features(x_BTD[:rows], raw_BTD=x_BTD[:rows])
  real = {name: x[:2] for name, x in batch.items()}
  for function, with_padding, without in (
    (awd_lstm.penalty_weights, (cfg, batch), (cfg, real)),
    (awd_lstm.penalties, (cfg, {}, outputs(B), batch), (cfg, {}, outputs(2), real)),
  ):
    found, expected = function(*with_padding), function(*without)
    assert set(found) == {'activation', 'slowness'}
    assert found == {name: pytest.approx(float(x), rel=1e-5) for name, x in expected.items()}


def test_choice_penalties_cover_all_choices():
  two = {key.replace('_BT', '_BGT'): np.stack([x, x], 1) for key, x in batch_of().items() if key.endswith('_BT')}
  rest = {key: x for key, x in batch_of().items() if not key.endswith('_BT')}
  cfg = contract_test.config('awd_lstm', alpha=2.0, beta=1.0)
  of_choices = training(multiple_choice, multiple_choice.Config(choices=2, bptt=0), awd_lstm, cfg, rest | two)
  of_rows = training(regress, regress.Config(bptt=0), awd_lstm, cfg, batch_of())
  assert of_choices['activation'] == pytest.approx(of_rows['activation'], rel=1e-5)
  assert of_choices['slowness'] == pytest.approx(of_rows['slowness'], rel=1e-5)


def test_lambda_of_elmos_mixes_changes_the_gradient_of_a_classifier():
  """lambda |w|^2 itself, whatever the number of rows."""
  batch = contract_test.given('bilstm', batch_of())
  objective_cfg = classify.Config(classes=2, bptt=0)
  cfg = contract_test.config('bilstm', elmo='both', mix_l2=1000.0)
  parts = bilstm, cfg, classify, objective_cfg

  def penalty(params):
    return step.training_loss(*parts, params, batch, (), jax.random.key(0)).sums['mix_l2']

  @jax.jit
  def measured(key):
    params = {'model': bilstm.init(cfg, key), 'objective': classify.init(objective_cfg, bilstm, cfg, key)}
    for place in ('input', 'output'):
      params['model'][f'mix_{place}']['weights'] = jnp.array([1.0, 2.0, 3.0])
    value, gradient = jax.value_and_grad(penalty)(params)
    return value, gradient['model']['mix_input']['weights'], step.training_weights(*parts, batch)['mix_l2']

  value, gradient, rows = measured(jax.random.key(0))
  assert value / rows == pytest.approx(1000 * 28, rel=1e-6)
  found = np.asarray(gradient) / rows
  np.testing.assert_allclose(found, 2000 * np.array([1.0, 2.0, 3.0]), rtol=1e-6)


def test_run_that_started_without_its_penalties_continues_without(tmp_path):
  given = {
    'model': {'name': 'awd_lstm', 'variant': 'tiny', 'alpha': 2.0, 'beta': 1.0},
    'objective': {'name': 'classify'},
    'data': {'batching': 'documents'},
    'train': {'steps': 1},
  }
  new = resolve.resolve(given)
  assert new.model.alpha == 2.0 and new.semantics.activation_penalties == 1
  old = {key: x for key, x in new.to_dict().items() if key != 'semantics'}
  saved = resolve.resolve(old, saved=True)
  assert (saved.model.alpha, saved.model.beta, saved.semantics.activation_penalties) == (0.0, 0.0, 0)
  resolve.check_same(saved, resolve.with_saved_rules(new, saved), tmp_path)
  assert 'activation_penalties' not in resolve.resolve({**given, 'objective': {'name': 'causal_lm'}}).semantics
