"""The translation objective: smoothing against its definition, and what is reported."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.kernels import softmax_loss
from lmx.models import registry
from lmx.objectives import translation
from lmx.registry import complete
from lmx.types import Features, Model
from tests import drawn, tiny_translator

bahdanau = registry.get('bahdanau')

tiny = complete(Model, tiny_translator)

CFG = tiny.Config()
RNG = np.random.default_rng(0)
LENGTHS = np.array([[6], [3]])
BATCH = {
  'source_BS': RNG.integers(2, CFG.V, (2, 5)).astype(np.int32),
  'source_valid_BS': np.ones((2, 5), bool),
  'tokens_BT': RNG.integers(0, CFG.V, (2, 6)).astype(np.int32),
  'targets_BT': RNG.integers(0, CFG.V, (2, 6)).astype(np.int32),
  'valid_BT': np.arange(6) < LENGTHS,
  'weights_BT': (np.arange(6) < LENGTHS).astype(np.float32),
}
PARAMS = {'model': drawn.params(tiny.init, CFG, std=0.6), 'objective': {}}


@functools.cache
def _log_p():
  log_p = jax.jit(lambda params: jax.nn.log_softmax(tiny.logits(CFG, params, tiny.apply(CFG, params, BATCH)[0])))
  return np.asarray(log_p(PARAMS['model']), np.float64)


def _expected(eps: float, form: str) -> float:
  """Cross-entropy with the whole smoothed distribution written out."""
  right_BTV = np.asarray(BATCH['targets_BT'])[..., None] == np.arange(CFG.V)
  wrong = eps / CFG.V if form == 'paper' else eps / (CFG.V - 1)
  q_BTV = np.where(right_BTV, 1 - eps + (wrong if form == 'paper' else 0), wrong)
  np.testing.assert_allclose(q_BTV.sum(-1), 1)
  return float(-(q_BTV * _log_p()).sum(-1)[BATCH['valid_BT']].sum())


@functools.cache
def _compiled(cfg, model=tiny, model_cfg=CFG):
  return jax.jit(functools.partial(translation.loss, cfg, model, model_cfg))


def _loss(key=None, batch=BATCH, **options):
  return _compiled(translation.Config(**options))(PARAMS, batch, (), key)


@pytest.mark.parametrize('form', translation.FORMS)
def test_smoothed_in_training_and_not_in_evaluation(form):
  trained = _loss(jax.random.key(0), smoothing=0.1, smoothing_form=form)
  measured = _loss(smoothing=0.1, smoothing_form=form)
  assert float(trained.sums['nll']) == pytest.approx(_expected(0.1, form), rel=1e-5)
  plain = _expected(0.0, form)
  assert float(measured.sums['nll']) == pytest.approx(plain, rel=1e-5)
  for out in (trained, measured):  # perplexity is that without smoothing, in training too
    assert float(out.metrics['nll'][0]) == pytest.approx(plain, rel=1e-5) and float(out.metrics['nll'][1]) == 9


@pytest.mark.parametrize('form', translation.FORMS)
def test_smoothed_loss_of_validation_where_it_is_requested(form):
  options = {'smoothing': 0.1, 'smoothing_form': form, 'validation': 'smoothed'}
  cfg, (smoothed, plain) = translation.Config(**options), (_expected(eps, form) for eps in (0.1, 0.0))
  assert translation.terms(cfg) == tuple(translation.weights(cfg, BATCH)) == ('smoothed',)
  for out in (_loss(jax.random.key(0), **options), _loss(**options)):
    assert float(out.sums['smoothed']) == pytest.approx(smoothed, rel=1e-5)
    assert {name: float(sum_) for name, (sum_, _) in out.metrics.items() if name != 'accuracy'} == pytest.approx(
      {'smoothed': smoothed, 'nll': plain}, rel=1e-5
    )
    found = translation.report(cfg, {name: tuple(map(float, pair)) for name, pair in out.metrics.items()}, {})
    assert found['smoothed_loss'] == pytest.approx(smoothed / 9, rel=1e-5)
    assert found['loss'] == pytest.approx(plain / 9, rel=1e-5)


def test_accuracy_counts_argmax_targets():
  right_BT = _log_p().argmax(-1) == BATCH['targets_BT']
  BATCH_RIGHT = BATCH | {'targets_BT': np.where(np.arange(6) < 2, _log_p().argmax(-1), BATCH['targets_BT'])}
  out = _loss(batch=BATCH_RIGHT)
  expected = 4 + right_BT[:, 2:][BATCH['valid_BT'][:, 2:]].sum()
  assert float(out.metrics['accuracy'][0]) == expected and float(out.metrics['accuracy'][1]) == 9


def test_report():
  totals = {'nll': (9 * math.log(8), 9.0), 'accuracy': (3.0, 9.0)}
  found = translation.report(translation.Config(), totals, {'words': 100})
  assert found == pytest.approx({'loss': math.log(8), 'perplexity_per_token': 8.0, 'token_accuracy': 1 / 3})


@pytest.mark.parametrize('form', translation.FORMS)
def test_blocks_change_neither_loss_nor_gradient(form):
  x_BTD = np.random.default_rng(1).standard_normal((2, 6, 2 * CFG.D), np.float32)

  def loss(x_BTD, block):
    score = lambda x, y: translation.smoothed_cross_entropy(
      tiny.logits(CFG, PARAMS['model'], Features(x)), y, 0.1, form
    )
    smooth_BT, nll_BT = softmax_loss.token_losses(score, x_BTD, BATCH['targets_BT'], block)
    return jnp.sum(smooth_BT * BATCH['weights_BT']), nll_BT

  run = jax.value_and_grad(loss, has_aux=True)
  whole, *parts = jax.jit(lambda x: [run(x, block) for block in (None, 2, 8)])(x_BTD)
  for part in parts:
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), part, whole)
    np.testing.assert_allclose(part[0][0], whole[0][0], rtol=1e-6)


def test_invalid_input_is_rejected():
  with pytest.raises(InputError, match='smoothing'):
    translation.Config(smoothing=1.0)
  with pytest.raises(InputError, match='objective.smoothing_form: unknown "other"'):
    translation.Config(smoothing_form='other')
  with pytest.raises(InputError, match='objective.validation: unknown "other"'):
    translation.Config(smoothing=0.1, validation='other')
  with pytest.raises(InputError, match='objective.validation: got'):
    translation.Config(validation='smoothed')
  with pytest.raises(InputError, match='model.name: got gpt2'):
    translation.init(translation.Config(), registry.get('gpt2'), None, jax.random.key(0))


HARD = registry.config('bahdanau', 'tiny', reading='hard', expected=0.0)


def _hard(params, batch=BATCH, key=None, **options):
  return _compiled(translation.Config(**options), bahdanau, HARD)(params, batch, (), key)


@functools.cache
def _hard_params():
  model = drawn.params(bahdanau.init, HARD, std=0.3)
  init = lambda key: translation.init(translation.Config(reinforce=1.0), bahdanau, HARD, key)
  return {'model': model, 'objective': jax.device_get(jax.jit(init)(jax.random.key(1)))}


@jax.jit
def _read(params, batch, key):
  """What attention chose, and the loss of each token."""
  features, _ = bahdanau.apply(HARD, params, batch, (), key)
  nll_BT = bahdanau.nll(HARD, params, features, batch['targets_BT'])
  return features.alignment_BTS, features.choice_BT, nll_BT


def test_reinforce_is_advantage_times_sample_log_probability():
  options, key = {'reinforce': 0.7, 'entropy': 0.2, 'baseline_decay': 0.8}, jax.random.key(3)
  params = _hard_params()
  before = float(params['objective']['baseline'])
  assert before == pytest.approx(-math.log(HARD.V))
  a_BTS, choice_BT, nll_BT = jax.device_get(_read(params['model'], BATCH, key))
  nll_BT, a_BTS = nll_BT * BATCH['weights_BT'], np.asarray(a_BTS, np.float64)
  reward_B = -nll_BT.sum(1) / BATCH['weights_BT'].sum(1)
  entropy_BT = -(a_BTS * np.log(a_BTS)).sum(-1)
  terms_BT = -0.7 * (reward_B - before)[:, None] * choice_BT - 0.2 * entropy_BT
  out = _hard(params, key=key, **options)
  expected = float(nll_BT.sum() + (terms_BT * BATCH['weights_BT']).sum())
  assert float(out.sums['nll']) == pytest.approx(expected, rel=1e-5)
  assert float(out.metrics['nll'][0]) == pytest.approx(float(nll_BT.sum()), rel=1e-5)
  after = float(out.statistics['objective']['baseline'])
  assert after == pytest.approx(0.8 * before + 0.2 * float(reward_B.mean()), rel=1e-5)
  assert _hard(params, **options).statistics is None  # evaluation moves nothing


def test_reinforce_estimates_the_gradient_of_the_expected_likelihood():
  """One target word: the mean of the estimates over many draws is the gradient of sum_s p(s) log p(y | s)."""
  S, draws = 5, 6000
  params, batch = _hard_params(), {key: x[:1, :1] for key, x in BATCH.items()}
  batch |= {'source_BS': BATCH['source_BS'][:1], 'source_valid_BS': BATCH['source_valid_BS'][:1]}
  many = {key: np.repeat(x, draws, 0) for key, x in batch.items()}
  read = lambda p: jax.tree.map(lambda x: x, {**params, 'model': {**params['model'], 'attention': p}})
  loss = lambda p: _hard(read(p), many, jax.random.key(5), reinforce=1.0).sums['nll'] / draws
  estimate = jax.jit(jax.grad(loss))(params['model']['attention'])

  each = np.zeros(S)  # log p(y | s): what a row that drew s earns
  a_BTS, choice_BT, nll_BT = jax.device_get(_read(params['model'], many, jax.random.key(5)))
  chosen = np.abs(np.exp(choice_BT[:, 0])[:, None] - a_BTS[:, 0]).argmin(1)
  for s in range(S):
    each[s] = -nll_BT[chosen == s, 0].mean()

  def expected_loss(p):
    features, _ = bahdanau.apply(HARD, read(p)['model'], batch)
    return -jnp.sum(features.alignment_BTS[0, 0] * each)

  exact = jax.jit(jax.grad(expected_loss))(params['model']['attention'])
  for name in exact:
    scale = np.abs(exact[name]).max()
    np.testing.assert_allclose(estimate[name], exact[name], atol=0.25 * scale, err_msg=name)


def test_reinforce_needs_hard_attention():
  with pytest.raises(InputError, match='set model.reading=hard'):
    _loss(jax.random.key(0), reinforce=1.0)


def test_padding_of_the_vocabulary_changes_no_smoothed_loss():
  logits_BTV, targets_BT = np.random.default_rng(0).standard_normal((2, 3, 5), np.float32), np.ones((2, 3), np.int32)
  padded_BTV = np.pad(logits_BTV, ((0, 0), (0, 0), (0, 2)), constant_values=-np.inf)
  for form in ('paper', 'released'):
    plain = translation.smoothed_cross_entropy(logits_BTV, targets_BT, 0.1, form)
    found = translation.smoothed_cross_entropy(padded_BTV, targets_BT, 0.1, form, 5)
    np.testing.assert_allclose(found, plain, rtol=1e-6)
