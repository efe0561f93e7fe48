"""The auxiliary losses against the restatement, when each layer stops, and the evaluation by last positions."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lmx import objectives
from lmx.config import resolve
from lmx.data import pipeline
from lmx.data.batching import windows
from lmx.data.corpus import Corpus, Split
from lmx.data.tokenizers.characters import Bytes
from lmx.engine import sharding, state, step
from lmx.errors import InputError
from lmx.evaluation import evaluate
from lmx.models import registry
from lmx.optim import averaging
from tests import drawn
from tests.reference import character_transformer as reference

model = registry.get('character_transformer')
gpt2 = registry.get('gpt2')
objective = objectives.get('character_aux')

B, T = 4, 8
CFG = registry.config('character_transformer', 'tiny', V=31, T=T, N=4, dropout=0.0, scan=True)
SWITCHES = ('every_position', 'every_layer', 'second_target')


@functools.cache
def params():
  return drawn.params(model.init, CFG)


def batch(seed=0, second=True):
  tokens = np.random.default_rng(seed).integers(0, CFG.V, (B, T + 2)).astype(np.int32)
  found = {'tokens_BT': tokens[:, :T], 'targets_BT': tokens[:, 1:-1], 'weights_BT': np.ones((B, T), np.float32)}
  return found | ({'second_BT': tokens[:, 2:]} if second else {}), tokens


@functools.partial(jax.jit, static_argnums=(0, 3))
def _output(cfg, params, batch, total, made, key):
  progress = (made, total) if total else None
  found = objective.loss(cfg, model, CFG, {'model': params}, batch, (), key, progress=progress)
  return found, objective.weights(cfg, batch)


def output(cfg, batch, made=0, total=0, key=None):
  return _output(cfg, params(), batch, total, np.int32(made), jax.random.key(0) if key is None else key)


def mean(cfg, batch, **progress):
  found, weights = output(cfg, batch, **progress)
  assert found.sums.keys() == weights.keys() == found.metrics.keys()
  return sum(float(found.sums[term] / weights[term]) for term in found.sums)


@pytest.mark.parametrize(
  'switches',
  [
    (True, True, True),
    (False, True, True),
    (True, False, True),
    (True, True, False),
    (False, False, False),
  ],
  ids=str,
)
def test_matches_reference(switches):
  """Of each row of the ablations, at the start, after half of one layer's time, and when the last layer is alone."""
  cfg = objective.Config(**dict(zip(SWITCHES, switches, strict=True)), second_weight=0.5 if switches[0] else 0.3)
  given, tokens = batch()
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params())
  for made in (0, 7, 20):
    options = dict(zip(SWITCHES, switches, strict=True)) | {'made': made, 'total': 40, 'weight': cfg.second_weight}
    expected = np.mean([reference.objective(exact, row, T, 'post', model.EPS, **options) for row in tokens])
    assert mean(cfg, given, made=made, total=40) == pytest.approx(expected, rel=1e-5)
  if all(switches):
    assert mean(cfg, given) == pytest.approx(mean(cfg, given, made=0, total=40), rel=1e-6)


def test_each_layer_stops_at_its_update_to_the_update():
  """l / (2N) of the training: of 64 layers and 4 million updates after every 31,250; N = 4 and 42 updates below."""
  assert objective.last_updates(64, 4_000_000)[:2] == [31_250, 62_500]
  assert objective.last_updates(64, 4_000_000)[-1] == 2_000_000 - 31_250
  for layers, total in ((4, 42), (12, 4_000_001), (64, 999), (3, 1), (64, 40_000_000)):
    stops = objective.last_updates(layers, total)
    for layer, stop in zip(range(1, layers), stops, strict=True):
      assert (stop - 1) * 2 * layers < layer * total <= stop * 2 * layers  # the last update before, the first after
  given, _ = batch()
  gradient = jax.jit(
    jax.grad(
      lambda p, made: sum(
        objective.loss(
          objective.Config(), model, CFG, {'model': p}, given, (), jax.random.key(0), progress=(made, 42)
        ).sums.values()
      )
    )
  )
  trained = {}
  for made in (5, 6, 10, 11, 15, 16, 41):
    output = jax.device_get(gradient(params(), np.int32(made))['output'])
    trained[made] = [
      all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(output[f'layer_{i:02d}'])) for i in range(CFG.N)
    ]
    silent = [not any(np.abs(x).max() > 0 for x in jax.tree.leaves(output[f'layer_{i:02d}'])) for i in range(CFG.N)]
    assert silent == [not x for x in trained[made]]
  assert trained == {
    5: [True] * 4,
    6: [False, True, True, True],
    10: [False, True, True, True],
    11: [False, False, True, True],
    15: [False, False, True, True],
    16: [False, False, False, True],
    41: [False, False, False, True],
  }


def test_auxiliary_losses_follow_training_progress():
  """`state.step` decides, so a resumed run and microbatches do what an uninterrupted whole batch does."""
  given, _ = batch()
  tx, losses = optax.with_extra_args_support(optax.set_to_zero()), {}
  for accumulate in (1, 2):
    train = jax.jit(
      step.make_train_step(
        model, CFG, objective, objective.Config(), tx, lambda n: 0.0, accumulate=accumulate, total_steps=40
      )
    )
    at = state.create({'model': params(), 'objective': {}}, tx, averaging.init(params(), 0.0))
    for made in (4, 5, 39):
      _, _, metrics = train(at.replace(step=np.int32(made)), (), given, jax.random.key(0))
      losses[accumulate, made] = float(metrics['loss'])
      assert metrics['nll'][1] == metrics['layers'][1] == given['weights_BT'].size
  for made in (4, 5, 39):
    assert losses[1, made] == pytest.approx(losses[2, made], rel=1e-6)
    assert losses[1, made] == pytest.approx(mean(objective.Config(), given, made=made, total=40), rel=1e-5)
  assert losses[1, 4] > losses[1, 5] + 1 > losses[1, 39] + 2
  unknowing = step.make_train_step(model, CFG, objective, objective.Config(), tx, lambda n: 0.0)
  with pytest.raises(ValueError, match='total_steps'):
    unknowing(at, (), given, jax.random.key(0))


def test_targets_of_rows_that_end():
  """Without `second_BT` the token after the next is read from the row; the last counted position is the one kept."""
  given, tokens = batch(second=False)
  given['weights_BT'][1, 5:] = 0.0
  given['weights_BT'][2] = 0.0
  found = objective.weights(objective.Config(), given)
  assert {k: float(v) for k, v in found.items()} == {'nll': 2 * T + 5, 'layers': 2 * T + 5, 'second': 2 * (T - 1) + 4}
  last = objective.weights(objective.Config(every_position=False), given | {'second_BT': tokens[:, 2:]})
  assert {k: float(v) for k, v in last.items()} == {'nll': 3, 'layers': 3, 'second': 3}
  ended = given | {'second_BT': np.where(np.arange(T) < T - 1, tokens[:, 2:], -1).astype(np.int32)}
  ended['weights_BT'] = np.ones((B, T), np.float32)
  whole = given | {'weights_BT': np.ones((B, T), np.float32)}
  found, expected = (output(objective.Config(), given)[0].sums for given in (ended, whole))
  for name in expected:
    assert float(found[name]) == pytest.approx(float(expected[name]), rel=1e-6)


def test_evaluation_uses_only_last_layer_and_next_token():
  given, _ = batch()
  for cfg in (objective.Config(), objective.Config(False, False, False)):

    @jax.jit
    def run(params, cfg=cfg):
      features, _ = model.apply(CFG, params, given, ())
      expected = jnp.sum(model.nll(CFG, params, features, given['targets_BT']))
      return objective.loss(cfg, model, CFG, {'model': params}, given, ()), expected

    found, expected = run(params())
    assert found.sums.keys() == found.metrics.keys() == {'nll'}
    assert [float(x) for x in found.metrics['nll']] == pytest.approx([float(expected), B * T], rel=1e-6)
  with pytest.raises(InputError, match='objective.name: got character_aux'):
    objective.loss(objective.Config(), gpt2, None, {'model': {}}, given, ())


def run_of(stride, made, **evaluation):
  sections = {
    'model': {'name': 'character_transformer', 'variant': 'tiny', 'V': 256, 'T': T},
    'data': {'tokenizer': 'bytes', 'batching': 'windows', 'batch_size': 4, 'length': T},
    'train': {'steps': 1},
    'parallel': {'data': 1},
    'evaluation': {'stride': stride, **evaluation},
  }
  return resolve.to_run(resolve.resolve(sections), made.tokenizer.vocab_size)


@functools.cache
def corpus():
  text = 'A window moves by one character, and its last position is read.'
  return Corpus.from_texts({'train': [text], 'valid': [text], 'test': [text]}, Bytes())


@functools.cache
def _scorer(cfg):
  def log_p(params, tokens_BT):
    features, _ = model.apply(cfg, params, {'tokens_BT': tokens_BT}, ())
    return jax.nn.log_softmax(model.logits(cfg, params, features)[0])

  return jax.jit(log_p)


@pytest.mark.parametrize('stride', [0, 1, 3])
def test_measurement_equals_a_plain_loop_over_windows(stride):
  """Stride 1: each token by the window that ends before it, the first ones with what there is; and so it is said."""
  run = run_of(stride, corpus(), batch_size=5)
  engine = sharding.Engine(run.parallel, jax.devices()[:1])
  params = drawn.params(model.init, run.model)
  eval_step = engine.compile_eval(step.make_eval_step(model, run.measured, objective, run.objective))
  batches = pipeline.batches(evaluate.final_data(run), corpus(), 'test', pipeline.EVAL_SEED, train=False)
  totals = evaluate.measure(eval_step, {'model': params, 'objective': {}}, lambda rows: (), batches, engine)
  text, expected = np.asarray(corpus().splits['test'].tokens).astype(np.int32), 0.0
  scored = _scorer(run.model)
  for t in range(1, len(text)):  # predicted by the first window that ends behind it
    start = -(-max(t - T, 0) // (stride or T)) * (stride or T)
    assert start <= t - 1 and (stride != 1 or start == max(0, t - T))
    window = np.pad(text[start:t], (0, T - t + start))
    expected -= float(scored(params, window[None])[t - 1 - start, text[t]])
  assert totals['nll'] == (pytest.approx(expected, rel=1e-5), len(text) - 1)
  found = evaluate.compute_results(run, corpus(), 'test', totals)
  assert found['metric'] == 'bits_per_character'
  assert found['bits_per_character'] == pytest.approx(expected / np.log(2) / len(text), rel=1e-5)
  words = {0: f'length {T}', 1: 'of which the last position is predicted', 3: 'a window every 3 tokens'}
  assert words[stride] in found['protocol']


def test_stride_of_the_measurement_is_checked():
  made = corpus()
  assert evaluate.final_data(run_of(2, made)).batching.stride == 2 and run_of(2, made).data.batching.stride == 0
  assert run_of(0, made).data == evaluate.final_data(run_of(0, made))
  with pytest.raises(InputError, match=f'evaluation.stride: got {T + 1}'):
    run_of(T + 1, made)
  packed = {
    'data': {'batching': 'packed'},
    'train': {'steps': 1},
    'evaluation': {'stride': 2},
    'model': {'name': 'rnn_lm', 'variant': 'tiny'},
  }
  with pytest.raises(InputError, match='evaluation.stride: got 2'):
    resolve.to_run(resolve.resolve(packed), 256)


def test_windows_give_the_token_after_the_target_where_the_text_has_one():
  tokens = np.arange(23, dtype=np.uint32)
  split = Split('train', tokens, np.array([0, 23]), None, None, {})
  made = functools.partial(windows.Windows, split, 2, 4, vocab_size=99)
  train = made(seed=3, train=True, second=True)
  ended = 0
  for i in range(20 * train.steps):
    found = train(i)
    expected = np.where(found['targets_BT'] < 22, found['targets_BT'] + 1, -1)
    np.testing.assert_array_equal(found['second_BT'], expected)
    assert found['second_BT'].dtype == np.int32
    ended += (found['second_BT'] < 0).sum()
  assert ended  # some epoch reaches the end of the text
  assert 'second_BT' not in made(seed=3, train=False, second=True)(0)
  assert 'second_BT' not in made(seed=3, train=True)(0)


def test_fields_of_the_config():
  assert {f.name for f in dataclasses.fields(objective.Config)} == {*SWITCHES, 'second_weight', 'reduction'}
  with pytest.raises(InputError, match='objective.second_weight: got -1.0'):
    objective.Config(second_weight=-1.0)
