"""ULMFiT's classifier: the plain form, windows, padding, statistics, and what a data set decides."""

from __future__ import annotations

import dataclasses
import functools
import warnings

import jax
import numpy as np
import pytest

from lmx.errors import InputError, InputWarning
from lmx.models import registry
from lmx.objectives import classify
from tests import drawn
from tests.reference import ulmfit

B, T, C = 4, 23, 3
LENGTHS = np.array([23, 8, 1, 15])
LABELS = {'dataset': {'name': 'made up'}, 'label_names': ['a', 'b', 'c']}


def config(**changes) -> classify.Config:
  quiet = {'dropout_pooled': 0.0, 'dropout_head': 0.0}
  return classify.Config(**({'classes': C, 'head': (7,), 'bptt': 8, **quiet} | changes))


@functools.cache
def model_of(name: str):
  model = registry.get(name)
  quiet = {f.name: 0.0 for f in dataclasses.fields(model.Config) if f.name.startswith('dropout')}
  return model, registry.config(name, 'tiny', V=61, **quiet)


@functools.cache
def start(name: str, cfg: classify.Config):
  model, model_cfg = model_of(name)
  return {
    'model': drawn.params(model.init, model_cfg),
    'objective': drawn.params(classify.init, cfg, model, model_cfg),
  }


def batch_of(lengths=LENGTHS, length=T, seed=0):
  rng = np.random.default_rng(seed)
  tokens_BT = rng.integers(0, 61, (len(lengths), T))[:, :length].astype(np.int32)
  return {
    'tokens_BT': tokens_BT,
    'valid_BT': np.arange(length) < np.asarray(lengths)[:, None],
    'labels_B': (np.arange(len(lengths)) % C).astype(np.int32),
    'row_weights_B': np.ones(len(lengths), np.float32),
  }


@functools.cache
def compiled(function, name, cfg):
  """`function` of the objective, such as `classify.predict`, for a model and a config."""
  return jax.jit(functools.partial(function, cfg, *model_of(name)))


def logits_of(batch, cfg, name='awd_lstm'):
  predict = compiled(classify.predict, name, cfg)
  return np.asarray(predict(start(name, cfg), batch, ())[0]['logits_BC'])


@functools.cache
def reader(name):
  model, model_cfg = model_of(name)
  state = model.init_state(model_cfg, 1)
  return jax.jit(lambda params, tokens_BT: model.apply(model_cfg, params, {'tokens_BT': tokens_BT}, state)[0].last_BTD)


def hidden(name, cfg, batch, b):
  """Last hidden layer of row b alone, all at once."""
  return np.asarray(reader(name)(start(name, cfg)['model'], batch['tokens_BT'][b : b + 1])[0, : LENGTHS[b]])


@pytest.mark.parametrize('name,pooled_length', [('awd_lstm', 15), ('rnn_lm', 0)])
def test_logits_are_the_plain_ones(name, pooled_length):
  cfg, batch = config(pooled_length=pooled_length), batch_of()
  rows = []
  for b in range(B):
    h_TD = hidden(name, cfg, batch, b)
    kept = ulmfit.windows_pooled(LENGTHS[b], cfg.bptt, pooled_length)
    rows.append(ulmfit.concat_pool(h_TD[kept.start :]))
  wanted, _ = ulmfit.head(start(name, cfg)['objective'], np.stack(rows), training=False)
  np.testing.assert_allclose(logits_of(batch, cfg, name), wanted, rtol=1e-5, atol=1e-5)


def test_padding_and_neighbours_change_nothing():
  """A document gives the same in whatever batch, however long its padding and whatever stands in it."""
  cfg, batch = config(pooled_length=15), batch_of()
  found = logits_of(batch, cfg)
  filled = {**batch, 'tokens_BT': np.where(batch['valid_BT'], batch['tokens_BT'], 7).astype(np.int32)}
  np.testing.assert_array_equal(logits_of(filled, cfg), found)
  for b in (2, 3):  # within one window, and beyond
    n = LENGTHS[b]
    alone = {k: v[b : b + 1, :n] if k.endswith('_BT') else v[b : b + 1] for k, v in batch.items()}
    np.testing.assert_allclose(logits_of(alone, cfg)[0], found[b], rtol=1e-5, atol=1e-5)


def test_training_normalises_by_the_batch_and_returns_the_running_statistics():
  cfg, batch = config(bptt=0), batch_of()
  batch['row_weights_B'][2] = 0.0
  params = start('rnn_lm', cfg)
  out = compiled(classify.loss, 'rnn_lm', cfg)(params, batch, (), jax.random.key(0))
  real = [0, 1, 3]
  x_BD = np.stack([ulmfit.concat_pool(hidden('rnn_lm', cfg, batch, b)) for b in real])
  logits, running = ulmfit.head(params['objective'], x_BD, training=True)
  log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  nll = -sum(log_p[i, batch['labels_B'][b]] for i, b in enumerate(real))
  np.testing.assert_allclose(out.sums['nll'], nll, rtol=1e-5)
  assert classify.weights(cfg, batch)['nll'] == 3.0
  found = {name: block['norm'] for name, block in out.statistics['objective'].items()}
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, running)


@functools.cache
def differentiated(cfg):
  loss = functools.partial(classify.loss, cfg, *model_of('rnn_lm'))
  return jax.jit(jax.grad(lambda params, batch: loss(params, batch, (), jax.random.key(0)).sums['nll']))


def gradient(cfg, batch):
  return jax.device_get(differentiated(cfg)(start('rnn_lm', cfg), batch))


def test_gradient_flows_only_into_pooled_windows():
  """Tokens of windows that are not pooled get no gradient, though the state read from them reaches the logits."""
  batch = batch_of(lengths=(23, 22, 23, 21))
  batch['tokens_BT'] = (np.arange(T) + np.zeros((B, 1))).astype(np.int32)  # a token for each position
  moved = np.abs(gradient(config(pooled_length=8), batch)['model']['embed']['table']).max(1) > 0
  assert not moved[:16].any() and moved[16:21].all()
  moved = np.abs(gradient(config(), batch)['model']['embed']['table']).max(1) > 0
  assert moved[:21].all()
  other = {**batch, 'tokens_BT': np.where(np.arange(T) < 8, 50, batch['tokens_BT']).astype(np.int32)}
  cfg = config(pooled_length=8)
  assert not np.allclose(logits_of(other, cfg, 'rnn_lm'), logits_of(batch, cfg, 'rnn_lm'), atol=1e-6)


def test_state_is_carried_without_a_gradient():
  """With pooling 'last' the gradient stays inside the last window, where one window has all of them."""
  batch = batch_of(lengths=(24, 24, 24, 24), length=T)
  batch['tokens_BT'] = (np.arange(T) + np.zeros((B, 1))).astype(np.int32)
  batch['valid_BT'][:] = True
  reach = lambda bptt: np.abs(gradient(config(bptt=bptt, pooling='last'), batch)['model']['embed']['table']).max(1) > 0
  assert not reach(8)[:16].any() and reach(8)[16:23].all() and reach(0)[:23].all()


def test_recomputing_changes_no_gradient():
  batch = batch_of()
  plain, again = gradient(config(), batch), gradient(config(remat=True), batch)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), plain, again)


def test_statistics_get_no_gradient():
  found = gradient(config(), batch_of())['objective']['block_0']
  np.testing.assert_array_equal(found['norm']['mean'], 0.0)
  np.testing.assert_array_equal(found['norm']['variance'], 0.0)
  assert np.abs(found['norm']['scale']).max() > 0 and np.abs(found['kernel']).max() > 0


def test_metrics_count_each_class():
  cfg, batch = config(), batch_of()
  batch['row_weights_B'][3] = 0.0
  out = compiled(classify.loss, 'rnn_lm', cfg)(start('rnn_lm', cfg), batch, ())
  guess = logits_of(batch, cfg, 'rnn_lm').argmax(1)
  right = (guess == batch['labels_B'])[:3]
  assert tuple(map(float, out.metrics['accuracy'])) == (right.sum(), 3.0)
  for c in range(C):
    assert tuple(map(float, out.metrics[f'accuracy_class_{c}'])) == (float(right[c]), 1.0)
  totals = {k: tuple(map(float, v)) for k, v in out.metrics.items()}
  report = classify.report(cfg, totals, {})
  assert report['error_percent'] == pytest.approx(100 * (1 - right.mean()))
  assert report['loss'] == pytest.approx(totals['nll'][0] / 3)
  assert classify.headline(cfg, report) in report and not any('predicted' in name for name in report)
  found = classify.by_class(cfg, totals, ['a', 'b', 'c'])
  assert found == {'abc'[c]: [right[c], sum(guess[:3] == c), 1] for c in range(C)}


@pytest.mark.parametrize('name,pooling', [('gpt2', 'last'), ('gpt2', 'concat'), ('bert', 'pooled'), ('bert', 'first')])
def test_every_model_can_be_classified_with(name, pooling):
  model, model_cfg = registry.get(name), registry.config(name, 'tiny', V=61)
  cfg = config(bptt=0, pooling=pooling, head=(), normalize=False)

  def run(key):
    head = classify.init(cfg, model, model_cfg, key)
    params = {'model': model.init(model_cfg, key), 'objective': head}
    return head, classify.predict(cfg, model, model_cfg, params, batch_of(), ())[0]

  head, found = jax.eval_shape(run, jax.random.key(0))
  assert found['logits_BC'].shape == (B, C)
  assert head['block_0']['kernel'].shape == ((3 if pooling == 'concat' else 1) * model_cfg.D, C)


def test_invalid_values_are_rejected():
  model, model_cfg = model_of('rnn_lm')
  with pytest.raises(InputError, match='got 0 labels'):
    classify.resolve(classify.Config(), {**LABELS, 'label_names': []})
  with pytest.raises(InputError, match='objective.classes: got 5'):
    classify.resolve(classify.Config(classes=5), LABELS)
  assert classify.resolve(classify.Config(), LABELS).classes == 3
  with pytest.raises(InputError, match='objective.classes: got 0'):
    classify.init(classify.Config(), model, model_cfg, jax.random.key(0))
  with pytest.raises(InputError, match='objective.pooling: got "pooled"'):
    classify.init(config(pooling='pooled'), model, model_cfg, jax.random.key(0))
  with pytest.raises(InputError, match='did you mean "concat"'):
    classify.Config(pooling='conct')
  gpt2, cfg = registry.get('gpt2'), registry.config('gpt2', 'tiny', V=61)
  params = {'model': drawn.params(gpt2.init, cfg)}
  with pytest.raises(InputError, match='objective.bptt: got'):
    classify.predict(config(), gpt2, cfg, params, batch_of(), ())


def test_majority_class_and_the_confusions():
  logits_IC = np.eye(3)[[0, 1, 1, 1]]
  found = classify.summarize(classify.Config(classes=3), {'logits_BC': logits_IC, 'truth': np.array([0, 1, 1, 2])})
  assert found == {'majority_class': 1, 'majority_accuracy': 0.5, 'confusion': [[1, 0, 0], [0, 2, 0], [0, 1, 0]]}
  many = classify.summarize(classify.Config(classes=51), {'logits_BC': np.eye(51)[:4], 'truth': np.array([7, 7, 7, 2])})
  assert many == {'majority_class': 7, 'majority_accuracy': 0.75}


@pytest.mark.parametrize('names', [['0', '1.5'], [str(i) for i in range(21)]])
def test_score_labels_suggest_regression(names):
  with pytest.warns(InputWarning, match=f'data.label: got {len(names)} numeric labels'):
    classify.resolve(classify.Config(), {**LABELS, 'label_names': names})
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    for classes in (['0', '1'], ['no', '1.5']):
      classify.resolve(classify.Config(), {**LABELS, 'label_names': classes})


@pytest.mark.parametrize(
  ('names', 'positive', 'index'),
  [
    (['0', '1'], '0.0', 0),
    (['0.0', '1.0'], '0.0', 0),  # labels of an earlier version
    (['False', 'True'], 'False', 0),
    (['false', 'true'], 'False', 0),  # the command line reads false as Python's
    (['a', 'b'], 'a', 0),
    (['a', 'caf\u00e9'], 'cafe\u0301', 1),
    (['a', 'b'], '', 1),
  ],
)
def test_positive_class_is_named_as_labels_are(names, positive, index):
  assert classify.resolve(classify.Config(positive=positive), {**LABELS, 'label_names': names}).positive_index == index


def test_labels_alike_are_warned_of():
  with pytest.warns(InputWarning, match='different classes: cafe\u0301, caf\u00e9$'):
    classify.resolve(classify.Config(), {**LABELS, 'label_names': ['cafe\u0301', 'caf\u00e9', 'tea']})
  with pytest.warns(InputWarning, match='in case or Unicode form'):
    classify.resolve(classify.Config(), {**LABELS, 'label_names': ['False', 'True', 'true']})
  with pytest.raises(InputError, match='no label "True"; did you mean "true"'):
    classify.resolve(classify.Config(positive='True'), {**LABELS, 'label_names': ['TRUE', 'no', 'true']})
