"""Tagging on top of a model: the two losses, decoding within the scheme, and what is counted."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from lmx.errors import InputWarning
from lmx.objectives import tag
from lmx.types import Features, Model
from tests import drawn

NAMES = ('B-x', 'I-x', 'O')
RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 4, 3)).astype(np.float32)
VALID = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool)
BATCH = {
  'labels_BT': np.array([[2, 0, 1, 2], [0, 2, 0, 0]], np.int32),
  'valid_BT': VALID,
  'weights_BT': VALID.astype(np.float32),
  'x': X,
}
# A model whose features are the scores themselves.
MODEL = Model()
vars(MODEL).update(
  init=lambda cfg, key: {},
  apply=lambda cfg, params, batch, state, key=None: (
    Features(jnp.asarray(batch['x'] if 'x' in batch else np.zeros((1, 1, 3), np.float32))),
    state,
  ),
)


def params(crf: bool):
  zeros = lambda *shape: np.zeros(shape, np.float32)
  head = {'kernel': np.eye(3, dtype=np.float32), 'bias': zeros(3)}
  crf_zero = {'transitions': zeros(3, 3), 'start': zeros(3), 'end': zeros(3)}
  return {'model': {}, 'objective': head | ({'crf': crf_zero} if crf else {})}


@functools.cache
def _compiled(function, cfg):
  return jax.jit(functools.partial(function, cfg, MODEL, None))


def loss(cfg, params, batch, key=None):
  return _compiled(tag.loss, cfg)(params, batch, (), key)


def predict(cfg, params, batch):
  return _compiled(tag.predict, cfg)(params, batch, ())[0]


@pytest.mark.parametrize('crf', [True, False])
def test_without_transitions_both_losses_are_the_softmax_at_each_word(crf):
  cfg = tag.Config(labels=NAMES, crf=crf)
  out = loss(cfg, params(crf), BATCH)
  log_p = X - np.log(np.exp(X).sum(-1, keepdims=True))
  expected = -np.take_along_axis(log_p, BATCH['labels_BT'][..., None], -1)[..., 0][VALID].sum()
  assert float(out.sums['nll']) == pytest.approx(expected, rel=1e-5)
  assert float(tag.weights(cfg, BATCH)['nll']) == 6


def test_decoding_enforces_the_tagging_scheme_on_request():
  x = np.zeros((1, 3, 3), np.float32)
  x[0, 1] = [2.0, 5.0, 0.0]  # an I after O would be best
  x[0, 0, 2] = x[0, 2, 2] = 9.0
  batch = {'x': x, 'valid_BT': np.ones((1, 3), bool)}
  free = predict(tag.Config(labels=NAMES, constrained=False), params(True), batch)
  held = predict(tag.Config(labels=NAMES), params(True), batch)
  assert free['labels_BT'].tolist() == [[2, 1, 2]] and held['labels_BT'].tolist() == [[2, 0, 2]]
  plain = predict(tag.Config(labels=NAMES, crf=False), params(False), batch)
  assert plain['labels_BT'].tolist() == [[2, 0, 2]]


def test_spans_are_counted_over_batches_and_padding_is_none():
  cfg = tag.Config(labels=NAMES)
  x = 9.0 * np.eye(3, dtype=np.float32)[BATCH['labels_BT']]
  x[0, 2] = [0, 0, 9]  # the first span is cut short
  metrics = loss(cfg, params(True), {**BATCH, 'x': x}).metrics
  numbers = {name: float(metrics[f'spans_{name}'][0]) for name in ('right', 'predicted', 'true')}
  assert numbers == {'right': 1, 'predicted': 2, 'true': 2}
  totals = {name: (2 * float(a), 2 * float(b)) for name, (a, b) in metrics.items()}  # two such batches
  found = tag.report(cfg, totals, {})
  assert found['span_f1'] == pytest.approx(50.0) and found['accuracy'] == pytest.approx(5 / 6)
  assert tag.by_class(cfg, totals, ()) == {NAMES[1][2:]: [2, 4, 4]}
  assert tag.by_class(tag.Config(labels=('NOUN', 'VERB')), totals, ()) == {}
  assert tag.headline(cfg, {}) == 'span_f1' and tag.headline(tag.Config(labels=('NOUN', 'VERB')), {}) == 'error_percent'


@pytest.mark.parametrize('crf', [True, False])
def test_only_first_subwords_of_words_count(crf):
  """[CLS], a word in two pieces, a word, [SEP]: the same as the two words alone."""
  cfg = tag.Config(labels=NAMES, crf=crf)
  x = np.random.default_rng(0).normal(size=(1, 5, 3)).astype(np.float32)
  weights_BT = np.array([[0, 1, 0, 1, 0]], np.float32)
  labels_BT = np.array([[0, 0, 0, 1, 0]], np.int32)
  pieces = {'x': x, 'valid_BT': np.ones((1, 5), bool), 'labels_BT': labels_BT, 'weights_BT': weights_BT}
  words = {
    'x': x[:, [1, 3]],
    'valid_BT': np.ones((1, 2), bool),
    'labels_BT': labels_BT[:, [1, 3]],
    'weights_BT': np.ones((1, 2), np.float32),
  }
  head = params(crf)
  if crf:
    head['objective'] |= {'crf': drawn.params(lambda key: tag.init_crf(key, 3))}
  found, expected = (loss(cfg, head, batch) for batch in (pieces, words))
  for name, (total, weight) in expected.metrics.items():
    np.testing.assert_allclose(found.metrics[name], (total, weight), rtol=1e-5, err_msg=name)
  said, alone = (predict(cfg, head, batch) for batch in (pieces, words))
  np.testing.assert_array_equal(said['labels_BT'][:, :2], alone['labels_BT'])
  assert said['words_BT'].tolist() == [[True, True, False, False, False]]


def test_dropout_of_the_head_needs_a_key():
  cfg = tag.Config(labels=NAMES, crf=False, dropout=0.5)
  still = loss(cfg, params(False), BATCH).sums['nll']
  dropped = loss(cfg, params(False), BATCH, jax.random.key(0)).sums['nll']
  plain = loss(tag.Config(labels=NAMES, crf=False), params(False), BATCH).sums['nll']
  assert float(still) == float(plain)
  assert float(dropped) != float(still)


def test_labels_that_mark_no_spans_are_counted_by_word():
  cfg = tag.Config(labels=('ADJ', 'NOUN', 'VERB'))
  out = loss(cfg, params(True), BATCH)
  assert set(out.metrics) == {'nll', 'accuracy'}
  found = tag.report(cfg, {k: (float(a), float(b)) for k, (a, b) in out.metrics.items()}, {})
  assert found['error_percent'] == pytest.approx(100 * (1 - found['accuracy']))


def test_head_parameters_declare_label_axes():
  for crf in (True, False):
    cfg, found = tag.Config(labels=NAMES, crf=crf), params(crf)['objective']
    leaves = {'/'.join(path): x for path, x in flatten_dict(found).items()}
    assert leaves.keys() <= tag.labelled(cfg).keys()
    assert all(leaves[name].shape[axis] == 3 for name in leaves for axis in tag.labelled(cfg)[name])


@pytest.mark.parametrize(('scorer', 'count'), [('conlleval', 3), ('srl_eval', 2)])
def test_role_scorer_ignores_the_predicate(scorer, count):
  cfg = tag.Config(labels=('B-A0', 'B-V', 'O'), crf=False, scorer=scorer)
  sure = 9 * np.eye(3, dtype=np.float32)[BATCH['labels_BT']]
  metrics = loss(cfg, params(False), {**BATCH, 'x': sure}).metrics
  assert [float(metrics[f'spans_{name}'][0]) for name in ('right', 'predicted', 'true')] == [count] * 3
  assert ('as srl-eval' in tag.protocol(cfg, None, None)[-1]) == (scorer == 'srl_eval')


def test_labels_that_do_not_mark_spans_among_those_that_do_are_named():
  manifest = lambda *names: {'token_label_names': names, 'dataset': {'name': 'tagged_files'}}
  with pytest.warns(InputWarning, match='got the labels B_PER; labels mark spans but for these, so words are measured'):
    cfg = tag.resolve(tag.Config(), manifest('B-PER', 'B_PER', 'I-PER', 'O'))
  assert tag.headline(cfg, {}) == 'error_percent'
