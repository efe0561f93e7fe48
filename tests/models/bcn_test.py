"""The biattentive classification network against its equations in NumPy, of one text and of two."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.layers import bilm, scalar_mix, word_input
from lmx.models import registry
from lmx.objectives import classify
from lmx.types import Features
from tests import drawn
from tests.reference import bcn as reference

bcn = registry.get('bcn')

B, T, S, C = 3, 6, 5, 7
VALID = np.arange(T) < np.array([6, 3, 1])[:, None]
SECOND = np.arange(S) < np.array([2, 5, 0])[:, None]
RNG = np.random.default_rng(0)
BATCH = {
  'tokens_BT': RNG.integers(0, 61, (B, T)).astype(np.int32),
  'characters_BTC': RNG.integers(1, 262, (B, T, C)).astype(np.int32),
  'valid_BT': VALID,
  'tokens_BS': RNG.integers(0, 61, (B, S)).astype(np.int32),
  'characters_BSC': RNG.integers(1, 262, (B, S, C)).astype(np.int32),
  'valid_BS': SECOND,
  'labels_B': np.array([0, 1, 2], np.int32),
  'row_weights_B': np.ones(B, np.float32),
}


def config(**changes):
  quiet = {'dropout': 0.0, 'dropout_feed_forward': 0.0, 'dropout_elmo': 0.0, 'dropout_bilm': 0.0}
  return registry.config('bcn', 'tiny', **{**quiet, 'bilm_layers': 1, **changes})


def params_of(cfg):
  return drawn.params(bcn.init, cfg, std=drawn.by_size(2))


def texts_of(texts, batch=BATCH):
  """The batch with one text or both."""
  return {key: x for key, x in batch.items() if texts == 2 or 'S' not in key.rpartition('_')[2]}


@functools.partial(jax.jit, static_argnums=0)
def run(cfg, params, batch):
  return bcn.apply(cfg, params, batch, (), all_layers=True)[0]


def inputs(cfg, params):
  """Words and ELMo vectors of each text, in NumPy."""

  @jax.jit
  def both(params):
    found = []
    for axis, valid in (('T', VALID), ('S', SECOND))[: cfg.texts]:
      begin = bilm.init_state(word_input.bilm_sizes(cfg), B)
      own = word_input.bilm_sizes(cfg), params['bilm'], BATCH[f'characters_B{axis}C'], valid, begin
      layers = bilm.run_sentences(*own)[0]
      mixed = [scalar_mix.mix(params[f'mix_{place}'], layers, valid) for place in ('input', 'output')]
      found.append((jnp.concatenate([word_input.embed(cfg, params, BATCH, axis), mixed[0]], -1), mixed[1]))
    return found

  return jax.device_get(both(params))


@pytest.mark.parametrize('texts', [pytest.param(1, marks=pytest.mark.slow), 2])
def test_network_is_its_equations(texts):
  cfg = config(texts=texts)
  params = params_of(cfg)
  found = jax.device_get(run(cfg, params, texts_of(texts)))
  plain = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  given = inputs(cfg, params)
  assert found.pooled_BD.shape == (B, texts * 4 * (16 + 14)) and found.last_BTD.shape == (B, T, 30)
  for b in range(B if texts == 1 else 2):
    counts = [int(VALID[b].sum()), int(SECOND[b].sum())]
    words, after = ([x[i][b, :n] for x, n in zip(given, counts, strict=False)] for i in (0, 1))
    last, pooled = reference.network(plain, words, after)
    np.testing.assert_allclose(found.last_BTD[b, : counts[0]], last, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.pooled_BD[b], pooled, rtol=1e-5, atol=1e-5)


def test_padding_and_an_empty_second_text_change_nothing():
  """Invalid positions of either text reach no output, and nothing is NaN where the second text is empty."""
  cfg = config(texts=2)
  params = params_of(cfg)
  other = {**BATCH}
  for axis, valid in (('T', VALID), ('S', SECOND)):
    other[f'tokens_B{axis}'] = np.where(valid, BATCH[f'tokens_B{axis}'], 3).astype(np.int32)
    other[f'characters_B{axis}C'] = np.where(valid[..., None], BATCH[f'characters_B{axis}C'], 5).astype(np.int32)
  before, after = jax.device_get((run(cfg, params, BATCH), run(cfg, params, other)))
  np.testing.assert_array_equal(before.pooled_BD, after.pooled_BD)
  np.testing.assert_array_equal(before.last_BTD[VALID], after.last_BTD[VALID])
  assert np.isfinite(before.pooled_BD).all() and not before.pooled_BD[2, 120:].any() and before.pooled_BD[:2].all()

  plain = config(texts=2, elmo='none', char_filters=())

  @jax.jit
  def gradient(params):
    return jax.grad(lambda p: jnp.sum(bcn.apply(plain, p, BATCH, ())[0].pooled_BD ** 2))(params)

  for path, leaf in jax.tree_util.tree_leaves_with_path(gradient(params_of(plain))):
    assert np.isfinite(leaf).all() and np.abs(leaf).max() > 1e-7, jax.tree_util.keystr(path)


@pytest.mark.parametrize('head', ['relu', 'maxout'])
def test_classifiers_are_their_equations(head):
  cfg = config(elmo='none', char_filters=())
  change = {} if head == 'relu' else {'activation': 'maxout', 'pieces': 2, 'normalize': True}
  fields = {**bcn.OBJECTIVE_FIELDS, 'head': (7, 5), 'dropout_pooled': 0.0, 'dropout_head': 0.0, **change}
  objective_cfg = classify.Config(classes=3, **fields)
  params = {'model': params_of(cfg), 'objective': drawn.params(classify.init, objective_cfg, bcn, cfg)}

  @jax.jit
  def both(params, key):
    parts = objective_cfg, bcn, cfg, params, texts_of(1), ()
    return (
      run(cfg, params['model'], texts_of(1)).pooled_BD,
      classify.predict(*parts)[0],
      classify.loss(*parts, key).sums,
    )

  pooled_BD, found, sums = jax.device_get(both(params, jax.random.key(0)))
  plain = jax.tree.map(lambda x: np.asarray(x, np.float64), params['objective'])
  of = {False: reference.relu(plain, pooled_BD)} if head == 'relu' else {}
  of = of or {training: reference.maxout(plain, pooled_BD, training) for training in (False, True)}
  np.testing.assert_allclose(found['logits_BC'], of[False], rtol=1e-4, atol=1e-5)
  log_p_BC = of[max(of)] - np.log(np.exp(of[max(of)]).sum(-1, keepdims=True))
  np.testing.assert_allclose(sums['nll'], -np.trace(log_p_BC), rtol=1e-4)
  last = classify.labelled(objective_cfg)['block_2/kernel']
  assert params['objective']['block_2']['kernel'].shape[last[0]] == 3


def test_classifier_matches_elmos_paper_unless_the_config_has_another():
  assert classify.Config(**bcn.OBJECTIVE_FIELDS).activation == 'relu'
  shapes = drawn.shapes(classify.init, classify.Config(classes=5, **bcn.OBJECTIVE_FIELDS), bcn, bcn.Config())
  assert [shapes[f'block_{i}']['kernel'].shape for i in range(3)] == [(2400, 1200), (1200, 600), (600, 5)]
  assert 'norm' not in shapes['block_0']


@pytest.mark.parametrize('texts', [1, 2])
def test_wrong_number_of_texts_is_rejected(texts):
  cfg = config(texts=texts)
  with pytest.raises(InputError, match=f'model.texts: got {texts} with rows of {3 - texts}'):
    jax.eval_shape(lambda p: bcn.apply(cfg, p, texts_of(3 - texts), ()), drawn.shapes(bcn.init, cfg))


@pytest.mark.parametrize(('texts', 'elmo'), [(1, 'none'), (1, 'both'), (2, 'input')])
def test_sizes_match_the_released_classifier(texts, elmo):
  """AllenNLP: feed-forward 300 (+ 1,024) -> 300, biLSTMs of 300 from 300 and 1,800; pooled 600 (+ 1,024)."""
  shapes = drawn.shapes(bcn.init, bcn.Config(texts=texts, elmo=elmo))
  at = lambda place: 1024 * (elmo in (place, 'both'))
  assert shapes['layer_00']['feed_forward']['kernel'].shape == (300 + at('input'), 300)
  assert shapes['layer_00']['forward']['input'].shape == (300, 1200)
  assert shapes['layer_01']['first']['backward']['input'].shape == (1800, 1200)
  assert shapes['pool']['first'].shape == (600 + at('output'),)
  assert set(shapes['layer_01']) == set(shapes['pool']) == set(bcn.SIDES[:texts])


def test_second_text_is_declared():
  rows = {'tokens_BT': jax.ShapeDtypeStruct((2, 3), jnp.int32)}
  assert set(bcn.read_shapes(config(), rows)) == {'tokens_BT', 'characters_BTC'}
  assert {'tokens_BS', 'valid_BS', 'characters_BSC'} <= set(bcn.read_shapes(config(texts=2), rows))


def test_has_no_word_logits():
  with pytest.raises(InputError, match='predicts no words'):
    bcn.logits(config(), params_of(config()), Features(np.zeros((B, T, 30), np.float32)))
  with pytest.raises(InputError, match='texts: got 3'):
    bcn.Config(texts=3)
