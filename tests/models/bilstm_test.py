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
from lmx.layers import bilm, char_cnn
from lmx.models import bilstm, elmo, registry
from lmx.objectives import tag
from lmx.optim import build
from tests.reference import recurrent as reference

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


@functools.cache
def params_of(cfg):
  leaves, tree = jax.tree.flatten(bilstm.init(cfg, jax.random.key(0)))
  keys = jax.random.split(jax.random.key(1), len(leaves))
  return tree.unflatten([x + 0.1 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)])


def run(cfg, params=None):
  apply = jax.jit(functools.partial(bilstm.apply, cfg, all_layers=True))
  return apply(params or params_of(cfg), BATCH, ())[0]


def contextual(cfg):
  read = jax.jit(functools.partial(bilm.sentences, bilstm.sizes(cfg)))
  begin = bilm.init_state(bilstm.sizes(cfg), B)
  return read(params_of(cfg)['bilm'], BATCH['characters_BTC'], VALID, begin)[0]


def test_a_layer_is_an_lstm_each_way_over_the_words_of_the_row():
  cfg = config(elmo='none', char_filters=())
  params = jax.tree.map(lambda x: np.asarray(x, np.float64), params_of(cfg))
  found = run(cfg)
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
  ('place', 'width_in', 'width'),
  [
    ('none', 10, 16),
    ('output', 10, 30),
    ('both', 24, 30),
  ],
)
def test_elmo_stands_where_it_is_asked_for(place, width_in, width):
  cfg = config(elmo=place)
  found = run(cfg)
  assert found.layers[0].shape[-1] == width_in and found.last_BTD.shape[-1] == width
  names = {f'mix_{p}' for p in ('input', 'output') if place in (p, 'both')}
  assert {n for n in params_of(cfg) if n.startswith('mix_')} == names and ('bilm' in params_of(cfg)) == bool(names)
  if place == 'none':
    return
  layers = contextual(cfg)
  for name in names:
    mixed = bilstm.mix(params_of(cfg)[name], layers, VALID)
    where = found.layers[0] if name == 'mix_input' else found.last_BTD
    np.testing.assert_allclose(where[..., -14:][VALID], mixed[VALID], rtol=1e-5, atol=1e-6)


def test_its_bilm_is_the_language_model_without_its_output():
  """The run of a biLM can stand at params['bilm'] as it is."""
  cfg = config()
  sizes = {f.name: getattr(bilstm.sizes(cfg), f.name) for f in dataclasses.fields(bilm.Sizes)}
  other = elmo.Config(V=9, N=sizes.pop('layers'), **sizes)
  theirs = jax.eval_shape(functools.partial(elmo.init, other), jax.random.key(0))
  shapes = lambda tree: jax.tree.map(lambda x: x.shape, dict(tree))
  assert shapes({k: v for k, v in theirs.items() if k != 'softmax'}) == shapes(params_of(cfg)['bilm'])
  apply = jax.jit(functools.partial(elmo.apply, other, all_layers=True))
  features, _ = apply(params_of(cfg)['bilm'], BATCH, elmo.init_state(other, B))
  for a, b in zip(features.layers, contextual(cfg), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def updated(cfg, groups, steps=3):
  """Parameters before and after updates with weight decay, and the metrics of the last."""
  options = build.Config(optimizer='adam', lr=0.05, weight_decay=0.1, groups=groups)
  head = tag.init(LABELS, bilstm, cfg, jax.random.key(2))
  params = {'model': params_of(cfg), 'objective': head}
  tx = build.make(options, params, functools.partial(bilstm.depth, cfg), cfg.N, 10, 10)
  train = jax.jit(step.make_train_step(bilstm, cfg, tag, LABELS, tx, build.rate(options, 10, 10)))
  now, metrics = state.create(params, tx, None), {}
  for _ in range(steps):
    now, _, metrics = train(now, (), BATCH, jax.random.key(3))
  return params, now.params, metrics


def test_a_frozen_bilm_does_not_move_at_all_while_its_mixes_learn():
  for frozen in (True, False):  # the group alone holds it too
    before, after, _ = updated(config(frozen=frozen), (('^model/bilm/', 0.0, 0.0), ('.*', 1.0, 1.0)))
    jax.tree.map(np.testing.assert_array_equal, after['model']['bilm'], before['model']['bilm'])
    for name in ('mix_input', 'mix_output', 'layer_00', 'embed'):
      moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), after['model'][name], before['model'][name])
      assert min(jax.tree.leaves(moved)) > 1e-4, name


def test_a_bilm_that_is_trained_moves_as_its_group_says():
  before, after, _ = updated(config(frozen=False), (('^model/bilm/', 0.01, 0.0), ('.*', 1.0, 0.0)))
  moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), after['model']['bilm'], before['model']['bilm'])
  assert 0 < min(jax.tree.leaves(moved)) and max(jax.tree.leaves(moved)) < 0.01 * 0.05 * 3 * 1.01


def test_frozen_cuts_the_gradient():
  def gradient(cfg):
    loss = lambda p: jnp.sum(run(cfg, p).last_BTD ** 2)
    return jax.jit(jax.grad(loss))(params_of(config()))['bilm']

  assert max(np.abs(x).max() for x in jax.tree.leaves(gradient(config(frozen=True)))) == 0
  assert min(np.abs(x).max() for x in jax.tree.leaves(gradient(config(frozen=False)))) > 0


def test_lambda_is_a_term_of_the_loss_in_training_only():
  cfg = config(mix_l2=0.25)
  params = params_of(cfg)
  wanted = 0.25 * sum(float(np.sum(np.square(params[f'mix_{p}']['weights']))) for p in ('input', 'output'))
  whole = {'model': params, 'objective': tag.init(LABELS, bilstm, cfg, jax.random.key(2))}
  out = jax.jit(functools.partial(step.training_loss, bilstm, cfg, tag, LABELS))(whole, BATCH, (), jax.random.key(0))
  total, weight = out.metrics['mix_l2']
  assert total / weight == pytest.approx(wanted, rel=1e-6) and bilstm.penalty_weights(cfg, BATCH)['mix_l2'] == weight
  measured = functools.partial(tag.loss, LABELS, bilstm, cfg)
  assert set(jax.eval_shape(measured, whole, BATCH, ()).sums) == {'nll'}
  gradient = jax.jit(jax.grad(lambda p: bilstm.penalties(cfg, p, None, BATCH)['mix_l2'] / B))(params)
  np.testing.assert_allclose(gradient['mix_input']['weights'], 0.5 * params['mix_input']['weights'], rtol=1e-6)
  _, _, metrics = updated(cfg, (('.*', 1.0, 1.0),), steps=1)
  assert metrics['loss'] > metrics['nll'][0] / metrics['nll'][1] + 0.9 * wanted


@pytest.mark.parametrize(('elmo', 'width'), [('none', 178), ('input', 1202)])
def test_the_sizes_are_those_of_the_released_tagger(elmo, width):
  """AllenNLP's ner.jsonnet and ner_elmo.jsonnet: inputs of 50 + 128 and 50 + 128 + 1024 columns."""
  shapes = jax.eval_shape(functools.partial(bilstm.init, bilstm.Config(elmo=elmo)), jax.random.key(0))
  assert shapes['layer_00']['forward']['input'].shape == (width, 800)
  assert shapes['layer_01']['backward']['input'].shape == (400, 800) and 'layer_02' not in shapes
  assert shapes['embed']['spelling']['convolution_0']['kernel'].shape == (3, 16, 128)
  assert 'projection' not in shapes['embed']['spelling']
  cfg = config(elmo='none', char_projection=0)
  spelt = char_cnn.apply(params_of(cfg)['embed']['spelling'], BATCH['characters_BTC'])
  np.testing.assert_allclose(run(cfg).layers[0][..., 6:], spelt, rtol=1e-6)
  assert spelt.shape == (B, T, 5) and float(jnp.min(spelt)) == 0 < float(jnp.max(spelt))  # after the ReLU


def test_it_says_that_it_predicts_no_words():
  with pytest.raises(InputError, match='predicts no words'):
    bilstm.logits(config(), params_of(config()), run(config()))
  wrong = (({'elmo': 'middle'}, 'unknown "middle"'), ({'dropout': 1.0}, 'below 1'), ({'N': 0}, 'N is 0'))
  for changes, message in wrong:
    with pytest.raises(InputError, match=message):
      bilstm.Config(**changes)


def test_it_learns_to_tag_by_the_letters():
  """Words never seen with an embedding of their own are told by their letters."""
  cfg = config(elmo='none', V=3)
  labels_BT = (BATCH['characters_BTC'][..., 2] % 2 * 2).astype(np.int32)
  batch = {**BATCH, 'tokens_BT': 0 * BATCH['tokens_BT'], 'labels_BT': labels_BT}
  objective = objectives.get('tag')
  params = {'model': bilstm.init(cfg, jax.random.key(0)), 'objective': tag.init(LABELS, bilstm, cfg, jax.random.key(1))}
  optimizer = optax.adam(0.02)

  @jax.jit
  def train(params):
    def body(carry, _):
      params, moments = carry
      loss = lambda p: objective.loss(LABELS, bilstm, cfg, p, batch, (), jax.random.key(0)).sums['nll']
      updates, moments = optimizer.update(jax.grad(loss)(params), moments)
      return (optax.apply_updates(params, updates), moments), None

    return jax.lax.scan(body, (params, optimizer.init(params)), None, length=150)[0][0]

  found, _ = tag.predict(LABELS, bilstm, cfg, train(params), batch, ())
  assert (np.asarray(found['labels_BT']) == batch['labels_BT'])[VALID].mean() > 0.9
