"""Heads of BERT's and GPT's fine-tuning: the auxiliary loss, rows of several sequences, regression, figures of GLUE."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import pytest
import scipy.stats

from lmx import objectives
from lmx.errors import InputError
from lmx.models import registry
from lmx.objectives import rows
from tests import drawn
from tests.reference import transformer as reference

classify = objectives.get('classify')
multiple_choice = objectives.get('multiple_choice')
regress = objectives.get('regress')

B, T, C = 4, 9, 2
LENGTHS = np.array([9, 5, 7, 3])
LINEAR = dict(head=(), normalize=False, bptt=0, dropout_pooled=0.0)


@functools.cache
def model_of(name):
  model = registry.get(name)
  quiet = {f.name: 0.0 for f in dataclasses.fields(model.Config) if f.name.startswith('dropout')}
  cfg = registry.config(name, 'tiny', V=61, **quiet)
  return model, cfg, drawn.params(model.init, cfg)


def batch_of(seed=0, **more):
  tokens_BT = np.random.default_rng(seed).integers(0, 61, (B, T)).astype(np.int32)
  valid_BT = np.arange(T) < LENGTHS[:, None]
  return {
    'tokens_BT': np.where(valid_BT, tokens_BT, 0),
    'valid_BT': valid_BT,
    'row_weights_B': np.array([1, 1, 1, 0.0]),
    'labels_B': np.array([0, 1, 1, 0]),
    'scores_B': np.array([0.5, 4.0, 2.5, np.nan], np.float32),
    **more,
  }


@functools.cache
def compiled(function, *given):
  """A function of an objective or of `rows`, such as `classify.predict`, with what it is given that is no array."""
  return jax.jit(functools.partial(function, *given))


@functools.cache
def whole_of(objective, cfg, name):
  """Parameters of the model and of a head as initialised."""
  model, model_cfg, params = model_of(name)
  init = jax.jit(functools.partial(objective.init, cfg, model, model_cfg))
  return {'model': params, 'objective': jax.device_get(init(jax.random.key(2)))}


def run(objective, cfg, name, batch, key=None):
  whole = whole_of(objective, cfg, name)
  return compiled(objective.loss, cfg, *model_of(name)[:2])(whole, batch, (), key), whole


def pooled(cfg, name, batch):
  """Vectors of rows of one sequence."""
  return np.asarray(_pooled(cfg, name)(model_of(name)[2], batch))


@functools.cache
def _pooled(cfg, name):
  model, model_cfg, _ = model_of(name)
  return jax.jit(lambda params, batch: rows.pool_rows(cfg, model, model_cfg, {'model': params}, batch, None)[0])


def gpt_rows():
  """Of GPT alone, by the restatement: the state after the last token of each row, and its mean loss in nats."""
  _, cfg, params = model_of('gpt')
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  batch, losses = batch_of(), []
  for b, n in enumerate(LENGTHS):
    tokens_T = batch['tokens_BT'][b, :n]
    z = reference.gpt(exact, tokens_T, np.ones(n, bool))[:, : cfg.V]
    log_p = z - np.log(np.exp(z).sum(-1, keepdims=True))
    losses.append(-np.mean(log_p[np.arange(n - 1), tokens_T[1:]]))
  return np.array(losses)


def test_gpt_adds_half_of_the_language_models_loss():
  """Radford et al. 2018, equation 5, the mean of each row's mean as released."""
  plain, _ = run(classify, classify.Config(classes=C, pooling='last', **LINEAR), 'gpt', batch_of())
  both, _ = run(classify, classify.Config(classes=C, pooling='last', lm_weight=0.5, **LINEAR), 'gpt', batch_of())
  np.testing.assert_allclose(both.sums['nll'], plain.sums['nll'], rtol=1e-5)
  losses_B = gpt_rows()
  np.testing.assert_allclose(both.sums['lm'], 0.5 * losses_B[:3].sum(), rtol=1e-5)
  np.testing.assert_allclose(both.metrics['lm_nll'], (losses_B[:3].sum(), 3), rtol=1e-5)
  cfg = classify.Config(classes=C, lm_weight=0.5, **LINEAR)
  assert classify.terms(cfg) == ('nll', 'lm') and classify.weights(cfg, batch_of()) == {'nll': 3.0, 'lm': 3.0}
  report = classify.report(cfg, {'nll': (6.0, 3.0), 'lm': (3.0, 3.0), 'lm_nll': (6.0, 3.0), 'accuracy': (2, 3)}, {})
  assert report['loss'] == 3.0 and report['lm_nll'] == 2.0


def test_vectors_of_both_orders_are_added():
  cfg = classify.Config(classes=C, pooling='last', lm_weight=0.5, **LINEAR)
  forth, back = batch_of(0), batch_of(1)
  two = {key.replace('_BT', '_BGT'): np.stack([forth[key], back[key]], 1) for key in ('tokens_BT', 'valid_BT')}
  batch = {**two, **{key: forth[key] for key in ('row_weights_B', 'labels_B')}}
  model, model_cfg, _ = model_of('gpt')
  out, whole = run(classify, cfg, 'gpt', batch)
  alone = [pooled(cfg, 'gpt', part) for part in (forth, back)]
  scores = (alone[0] + alone[1]) @ whole['objective']['block_0']['kernel'] + whole['objective']['block_0']['bias']
  found, _ = compiled(classify.predict, cfg, model, model_cfg)(whole, batch, ())
  np.testing.assert_allclose(found['logits_BC'], scores, rtol=1e-5, atol=1e-5)
  assert classify.weights(cfg, batch) == {'nll': 3.0, 'lm': 6.0} and out.metrics['lm'][1] == 6
  each = jax.jit(lambda: rows.read(cfg, model, model_cfg, whole, batch, None, summed=False).scores_BGC)()
  assert each.shape == (B, 2, C)
  np.testing.assert_allclose(each.sum(1) - whole['objective']['block_0']['bias'], scores, rtol=1e-5, atol=1e-5)


def test_bert_scores_the_poolers_vector():
  cfg = classify.Config(classes=C, pooling='pooled', init_std=0.02, **LINEAR)
  model, model_cfg, params = model_of('bert')
  whole = whole_of(classify, cfg, 'bert')
  head = whole['objective']['block_0']
  assert set(head) == {'kernel', 'bias'} and not head['bias'].any() and 0.01 < np.std(head['kernel']) < 0.03
  pooled_BD = jax.jit(lambda: model.apply(model_cfg, params, batch_of(), ())[0].pooled_BD)()
  found, _ = compiled(classify.predict, cfg, model, model_cfg)(whole, batch_of(), ())
  np.testing.assert_allclose(found['logits_BC'], pooled_BD @ head['kernel'], rtol=1e-5, atol=1e-6)


def test_regression_is_the_mean_square_over_real_rows():
  cfg = regress.Config(pooling='pooled', **LINEAR)
  model, model_cfg, _ = model_of('bert')
  out, whole = run(regress, cfg, 'bert', batch_of())
  x_B = np.asarray(compiled(regress.predict, cfg, model, model_cfg)(whole, batch_of(), ())[0]['scores_B'])
  y_B = batch_of()['scores_B']
  np.testing.assert_allclose(out.sums['squared_error'], np.square(x_B - y_B)[:3].sum(), rtol=1e-5)
  report = regress.report(cfg, jax.device_get(out.metrics), {})
  assert report['pearson'] == pytest.approx(scipy.stats.pearsonr(x_B[:3], y_B[:3])[0], abs=1e-6)
  assert report['rmse'] == pytest.approx(np.sqrt(np.mean(np.square(x_B - y_B)[:3])), rel=1e-5)
  loss = lambda p: regress.loss(cfg, model, model_cfg, p, batch_of(), (), jax.random.key(0)).sums['squared_error']
  gradients = jax.jit(jax.grad(loss))(whole)
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradients))  # NaN of a row of padding reaches nothing


def test_f1_and_matthews_match_the_counts():
  draw = np.random.default_rng(0)
  truth, said = draw.random(200) < 0.3, draw.random(200) < 0.4
  found = classify.binary_metrics(np.mean(truth & said), np.mean(said), np.mean(truth))
  precision, recall = np.sum(truth & said) / said.sum(), np.sum(truth & said) / truth.sum()
  assert found['f1'] == pytest.approx(2 * precision * recall / (precision + recall))
  assert found['matthews'] == pytest.approx(np.corrcoef(truth, said)[0, 1])
  assert classify.binary_metrics(0.0, 0.0, 0.3) == {'f1': 0.0, 'matthews': 0.0}


def test_positive_class_is_reported():
  names = {'dataset': {'name': 'x'}, 'label_names': ['equivalent', 'not_equivalent']}
  cfg = classify.resolve(classify.Config(positive='equivalent', metric='f1'), names)
  assert cfg.positive_index == 0 and classify.headline(cfg, {}) == 'f1'
  assert classify.resolve(classify.Config(), names).positive_index == 1
  out, _ = run(classify, dataclasses.replace(cfg, pooling='pooled', **LINEAR), 'bert', batch_of())
  assert out.metrics['is_positive'] == (1.0, 3.0)  # of three real rows, one has label 0
  with pytest.raises(InputError, match='no label "equal"'):
    classify.resolve(classify.Config(positive='equal'), names)
  with pytest.raises(InputError, match='objective.metric: got "f1"'):
    classify.resolve(classify.Config(metric='f1'), {**names, 'label_names': ['a', 'b', 'c']})


def test_choices_are_scored_each_by_itself_and_compared():
  cfg = multiple_choice.Config(choices=3, pooling='last', lm_weight=0.5, **LINEAR)
  parts = [batch_of(seed) for seed in range(3)]
  three = {key.replace('_BT', '_BGT'): np.stack([p[key] for p in parts], 1) for key in ('tokens_BT', 'valid_BT')}
  batch = {**three, 'row_weights_B': parts[0]['row_weights_B'], 'labels_B': np.array([2, 0, 1, 0])}
  out, whole = run(multiple_choice, cfg, 'gpt', batch)
  head = whole['objective']['block_0']
  alone = [pooled(cfg, 'gpt', part) @ head['kernel'] for part in parts]
  scores_BG = np.concatenate(alone, axis=1)
  found, _ = compiled(multiple_choice.predict, cfg, *model_of('gpt')[:2])(whole, batch, ())
  np.testing.assert_allclose(found['logits_BC'] - head['bias'], scores_BG, rtol=1e-4, atol=1e-5)
  log_p = scores_BG - np.log(np.exp(scores_BG).sum(1, keepdims=True))
  np.testing.assert_allclose(out.sums['nll'], -log_p[np.arange(3), [2, 0, 1]].sum(), rtol=1e-5)
  assert out.metrics['accuracy'][0] == (scores_BG[:3].argmax(1) == [2, 0, 1]).sum() and out.metrics['lm'][1] == 9
  assert multiple_choice.report(cfg, {'nll': (3.0, 3.0), 'lm': (3.0, 9.0), 'accuracy': (1.0, 3.0)})['loss'] == 4 / 3
  names = {'dataset': {'name': 'x'}, 'choices': 4}
  assert multiple_choice.resolve(multiple_choice.Config(), names).choices == 4
  with pytest.raises(InputError, match='objective.choices: got 3'):
    multiple_choice.resolve(cfg, names)
  with pytest.raises(InputError, match='no choices.*swag'):
    multiple_choice.resolve(cfg, {'dataset': {'name': 'x'}})


@pytest.mark.parametrize('one_mask', [True, False])
def test_choices_can_share_a_dropout_mask(one_mask):
  """openai/finetune-transformer-lm, train.py: noise of shape (B, 1, D) on the choices' states (B, 2, D)."""
  cfg = multiple_choice.Config(choices=2, pooling='last', one_mask=one_mask, **{**LINEAR, 'dropout_pooled': 0.5})
  pair = lambda x: np.stack([x, x], axis=1)
  rows_BT = batch_of()
  batch = {**rows_BT, 'tokens_BGT': pair(rows_BT['tokens_BT']), 'valid_BGT': pair(rows_BT['valid_BT'])}
  batch = {key: x for key, x in batch.items() if not key.endswith('_BT')}
  out, _ = run(multiple_choice, cfg, 'gpt', batch, jax.random.key(3))
  alike = np.isclose(float(out.sums['nll']), 3 * np.log(2), rtol=1e-5)  # two choices of one text have one score
  assert alike == one_mask


def test_invalid_settings_are_rejected():
  with pytest.raises(InputError, match='objective.lm_weight: got'):
    classify.Config(lm_weight=0.5)
  with pytest.raises(InputError, match='objective.lm_weight: got'):
    run(classify, classify.Config(classes=C, pooling='first', lm_weight=0.5, **LINEAR), 'bert', batch_of())
  with pytest.raises(InputError, match='no scores.*glue/stsb'):
    regress.resolve(regress.Config(), {'dataset': {'name': 'x'}})
