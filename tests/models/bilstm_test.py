"""The task model: where ELMo vectors stand, what is frozen, and the parts against their own definitions."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lmx import objectives
from lmx.engine import state, step
from lmx.errors import InputError
from lmx.layers import bilm, char_cnn, scalar_mix, word_input
from lmx.models import registry
from lmx.optim import build
from lmx.types import Features
from tests import drawn
from tests.reference import recurrent as reference

bilstm = registry.get('bilstm')
elmo = registry.get('elmo')
tag = objectives.get('tag')

B, T, C = 3, 6, 7
VALID = np.arange(T) < np.array([6, 3, 1])[:, None]
RNG = np.random.default_rng(0)
BATCH = {
  'tokens_BT': RNG.integers(0, 61, (B, T)).astype(np.int32),
  'characters_BTC': RNG.integers(1, 262, (B, T, C)).astype(np.int32),
  'labels_BT': RNG.integers(0, 3, (B, T)).astype(np.int32),
  'valid_BT': VALID,
  'weights_BT': VALID.astype(np.float32),
}
LABELS = tag.Config(labels=('B-x', 'I-x', 'O'))


def config(**changes):
  quiet = {'dropout': 0.0, 'dropout_elmo': 0.0, 'dropout_bilm': 0.0}
  return registry.config('bilstm', 'tiny', **{**quiet, **changes})


def params_of(cfg):
  return drawn.params(bilstm.init, cfg, std=drawn.by_size(2))


@functools.partial(jax.jit, static_argnums=0)
def run(cfg, params):
  return bilstm.apply(cfg, params, BATCH, (), all_layers=True)[0]


def contextual(cfg, params):
  return bilm.run_sentences(
    word_input.bilm_sizes(cfg), params, BATCH['characters_BTC'], VALID, bilm.init_state(word_input.bilm_sizes(cfg), B)
  )[0]


def test_layer_is_an_lstm_each_way_over_the_words_of_the_row():
  cfg = config(elmo='none', char_filters=())
  params = jax.tree.map(lambda x: np.asarray(x, np.float64), params_of(cfg))
  found = jax.device_get(run(cfg, params_of(cfg)))
  for b in range(B):
    n = int(VALID[b].sum())
    x_TE = params['embed']['table'][BATCH['tokens_BT'][b, :n]]
    for way, read, at in (('forward', x_TE, slice(0, 8)), ('backward', x_TE[::-1], slice(8, 16))):
      p = params['layer_00'][way]
      h, c, outputs = np.zeros(8), np.zeros(8), []
      for x in read:
        i, f, g, o = np.split(x @ p['input'] + h @ p['recurrent'] + p['bias'], 4)
        c = reference.sigmoid(f) * c + reference.sigmoid(i) * np.tanh(g)
        h = reference.sigmoid(o) * np.tanh(c)
        outputs.append(h)
      outputs = outputs if way == 'forward' else outputs[::-1]
      np.testing.assert_allclose(found.last_BTD[b, :n, at], outputs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
  ('place', 'width_in', 'width', 'mix'),
  [
    ('none', 10, 16, 'all'),
    ('output', 10, 30, 'last'),
    ('both', 24, 30, 'all'),
  ],
)
def test_elmo_vectors_are_added_where_configured(place, width_in, width, mix):
  cfg = config(elmo=place, mix=mix, mix_l2=0.0)
  params = params_of(cfg)
  names = {f'mix_{p}' for p in ('input', 'output') if place in (p, 'both')}
  assert {n for n in params if n.startswith('mix_')} == names and ('bilm' in params) == bool(names)

  @jax.jit
  def outputs(params):
    layers = contextual(cfg, params['bilm']) if names else None
    return run(cfg, params), {name: scalar_mix.mix(params[name], layers, VALID) for name in names}

  assert all(set(params[name]) == {'gamma', 'weights'} - ({'weights'} if mix == 'last' else set()) for name in names)
  found, mixed = jax.device_get(outputs(params))
  assert found.layers[0].shape[-1] == width_in and found.last_BTD.shape[-1] == width
  for name, mixed_BTD in mixed.items():
    where = found.layers[0] if name == 'mix_input' else found.last_BTD
    np.testing.assert_allclose(where[..., -14:][VALID], mixed_BTD[VALID], rtol=1e-5, atol=1e-6)


def test_its_bilm_is_the_language_model_without_its_output():
  """The run of a biLM can stand at params['bilm'] as it is."""
  cfg = config()
  sizes = {f.name: getattr(word_input.bilm_sizes(cfg), f.name) for f in dataclasses.fields(bilm.Sizes)}
  other = elmo.Config(V=9, N=sizes.pop('layers'), **sizes)
  theirs = drawn.shapes(elmo.init, other)
  shapes = lambda tree: jax.tree.map(lambda x: x.shape, dict(tree))
  assert shapes({k: v for k, v in theirs.items() if k != 'softmax'}) == shapes(params_of(cfg)['bilm'])

  @jax.jit
  def both(params):
    features, _ = elmo.apply(other, params, BATCH, elmo.init_state(other, B), all_layers=True)
    return features.layers, contextual(cfg, params)

  for a, b in zip(*both(params_of(cfg)['bilm']), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


FROZEN = config(frozen=True, mix_l2=0.25, bilm_layers=1)
HELD = (('^model/bilm/', 0.0, 0.0), ('.*', 1.0, 1.0))  # without it weight decay moves what has no gradient


@functools.cache
def updated(cfg, groups):
  """Parameters before and after three updates with weight decay, and the metrics of each."""
  options = build.Config(optimizer='adam', lr=0.05, weight_decay=0.1, groups=groups)
  normal = np.random.default_rng(2).standard_normal
  head = jax.eval_shape(lambda: tag.init(LABELS, bilstm, cfg, jax.random.key(2)))
  params = {'model': params_of(cfg), 'objective': jax.tree.map(lambda x: 0.3 * normal(x.shape, np.float32), head)}
  tx = build.make(options, params, functools.partial(bilstm.depth, cfg), cfg.N, 10, 10)
  train = step.make_train_step(bilstm, cfg, tag, LABELS, tx, build.rate(options, 10, 10))

  @jax.jit
  def updates(params, key):
    def body(now, _):
      now, _, metrics = train(now, (), BATCH, key)
      return now, metrics

    now, metrics = jax.lax.scan(body, state.create(params, tx, None), None, length=3)
    return now.params, metrics

  return params, *jax.device_get(updates(params, jax.random.key(3)))


def moved(before, after):
  return jax.tree.leaves(jax.tree.map(lambda a, b: float(np.abs(a - b).max()), after, before))


def test_frozen_bilm_does_not_move_at_all_while_its_mixes_learn():
  before, after, _ = updated(FROZEN, HELD)
  jax.tree.map(np.testing.assert_array_equal, after['model']['bilm'], before['model']['bilm'])
  for name in ('mix_input', 'mix_output', 'layer_00', 'embed'):
    assert min(moved(before['model'][name], after['model'][name])) > 1e-4, name


def test_trained_bilm_follows_its_parameter_groups():
  groups = (('^model/bilm/embed/', 0.0, 0.0), ('^model/bilm/', 0.01, 0.0), ('.*', 1.0, 0.0))
  before, after, _ = updated(config(frozen=False, bilm_layers=1), groups)
  before, after = before['model']['bilm'], after['model']['bilm']
  assert max(moved(before['embed'], after['embed'])) == 0
  others = [x for name in before if name != 'embed' for x in moved(before[name], after[name])]
  assert 0 < min(others) and max(others) < 0.01 * 0.05 * 3 * 1.01


def test_frozen_stops_the_gradient():
  """Every parameter of a biLM that is not frozen moves: see the test above."""
  loss = lambda p: jnp.sum(run(FROZEN, p).last_BTD ** 2)
  gradient = jax.jit(jax.grad(loss))(params_of(FROZEN))
  assert max(np.abs(x).max() for x in jax.tree.leaves(gradient['bilm'])) == 0
  assert min(np.abs(x).max() for x in jax.tree.leaves(gradient['mix_input'])) > 0


def test_lambda_is_a_term_of_the_loss_in_training_only():
  whole, _, metrics = updated(FROZEN, HELD)
  params = whole['model']
  wanted = 0.25 * sum(float(np.sum(np.square(params[f'mix_{p}']['weights']))) for p in ('input', 'output'))
  total, weight = (x[0] for x in metrics['mix_l2'])
  assert total / weight == pytest.approx(wanted, rel=1e-6) and bilstm.penalty_weights(FROZEN, BATCH)['mix_l2'] == weight
  assert metrics['loss'][0] == pytest.approx(metrics['nll'][0][0] / metrics['nll'][1][0] + wanted, rel=1e-6)
  measured = functools.partial(tag.loss, LABELS, bilstm, FROZEN)
  assert set(jax.eval_shape(measured, whole, BATCH, ()).sums) == {'nll'}
  gradient = jax.jit(jax.grad(lambda p: bilstm.penalties(FROZEN, p, None, BATCH)['mix_l2'] / B))(params)
  np.testing.assert_allclose(gradient['mix_input']['weights'], 0.5 * params['mix_input']['weights'], rtol=1e-6)


@pytest.mark.parametrize(('elmo', 'width'), [('none', 178), ('input', 1202)])
def test_sizes_match_the_released_tagger(elmo, width):
  """AllenNLP's ner.jsonnet and ner_elmo.jsonnet: inputs of 50 + 128 and 50 + 128 + 1024 columns."""
  shapes = drawn.shapes(bilstm.init, bilstm.Config(elmo=elmo))
  assert shapes['layer_00']['forward']['input'].shape == (width, 800)
  assert shapes['layer_01']['backward']['input'].shape == (400, 800) and 'layer_02' not in shapes
  assert shapes['embed']['spelling']['convolution_0']['kernel'].shape == (3, 16, 128)
  assert 'projection' not in shapes['embed']['spelling']


def test_without_a_projection_a_word_is_the_maxima_of_its_filters():
  cfg = config(elmo='none', char_projection=0)
  run_both = jax.jit(lambda p: (run(cfg, p), char_cnn.apply(p['embed']['spelling'], BATCH['characters_BTC'])))
  found, spelt = jax.device_get(run_both(params_of(cfg)))
  np.testing.assert_allclose(found.layers[0][..., 6:], spelt, rtol=1e-6)
  assert spelt.shape == (B, T, 5) and np.min(spelt) == 0 < np.max(spelt)  # after the ReLU


def test_has_no_word_logits():
  with pytest.raises(InputError, match='predicts no words'):
    bilstm.logits(config(), params_of(config()), Features(np.zeros((B, T, 30), np.float32)))
  with pytest.raises(InputError, match='mix_l2: got 0.1'):
    bilstm.Config(mix='last', mix_l2=0.1)


def test_it_learns_to_tag_by_the_letters():
  """Words never seen with an embedding of their own are told by their letters."""
  cfg = config(elmo='none', V=3)
  labels_BT = (BATCH['characters_BTC'][..., 2] % 2 * 2).astype(np.int32)
  batch = {**BATCH, 'tokens_BT': 0 * BATCH['tokens_BT'], 'labels_BT': labels_BT}
  objective = objectives.get('tag')
  optimizer = optax.adam(0.02)

  @jax.jit
  def train(params, key):
    params = {'model': params, 'objective': tag.init(LABELS, bilstm, cfg, key)}

    def body(carry, _):
      params, moments = carry
      loss = lambda p: objective.loss(LABELS, bilstm, cfg, p, batch, (), jax.random.key(0)).sums['nll']
      updates, moments = optimizer.update(jax.grad(loss)(params), moments)
      return (optax.apply_updates(params, updates), moments), None

    params = jax.lax.scan(body, (params, optimizer.init(params)), None, length=150)[0][0]
    return tag.predict(LABELS, bilstm, cfg, params, batch, ())[0]

  found = train(params_of(cfg), jax.random.key(1))
  assert (np.asarray(found['labels_BT']) == batch['labels_BT'])[VALID].mean() > 0.9
