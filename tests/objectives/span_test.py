"""Answers as spans on top of a model: the loss by hand, places that count, and errors."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.config import schema
from lmx.errors import InputError
from lmx.layers import span_head
from lmx.objectives import span
from lmx.prediction import question_answering
from lmx.types import Features, Model
from tests import drawn

X = np.random.default_rng(0).normal(size=(3, 6, 2)).astype(np.float32)
VALID = np.arange(6) < np.array([[6], [4], [5]])
BATCH = {
  'tokens_BT': np.zeros((3, 6), np.int32),
  'valid_BT': VALID,
  'starts_B': np.array([2, 0, 1]),
  'ends_B': np.array([3, 0, 1]),
  'row_weights_B': np.array([1, 1, 0], np.float32),
  'x': X,
}
MODEL = Model()  # its features are the scores themselves
MODEL.apply = lambda cfg, params, batch, state, key=None: (Features(jnp.asarray(batch['x'])), ())
PARAMS = {'model': {}, 'objective': {'kernel': np.eye(2, dtype=np.float32), 'bias': np.zeros(2, np.float32)}}


@functools.cache
def compiled(function, cfg):
  return jax.jit(functools.partial(function, cfg, MODEL, None))


def test_loss_is_the_mean_over_both_span_ends():
  out = compiled(span.loss, span.Config())(PARAMS, BATCH, ())
  expected = 0.0
  for b, (start, end) in enumerate(((2, 3), (0, 0))):
    x = X[b, : VALID[b].sum()].astype(np.float64)
    log_p = x - np.log(np.exp(x).sum(0))
    expected -= (log_p[start, 0] + log_p[end, 1]) / 2
  np.testing.assert_allclose(out.sums['nll'], expected, rtol=1e-5)
  assert span.weights(span.Config(), BATCH) == {'nll': 2.0}
  right = {
    **BATCH,
    'starts_B': np.array([X[b, :n, 0].argmax() for b, n in enumerate((6, 4, 5))]),
    'ends_B': np.array([X[b, :n, 1].argmax() for b, n in enumerate((6, 4, 5))]),
  }
  assert compiled(span.loss, span.Config())(PARAMS, right, ()).metrics['accuracy'] == (2.0, 2.0)
  scores = compiled(span.predict, span.Config())(PARAMS, BATCH, ())[0]['scores_BT2']
  assert (np.asarray(scores)[~VALID] == span.NEVER).all()


def test_data_without_answers_is_rejected():
  with pytest.raises(InputError, match='has no answers that are spans'):
    span.resolve(span.Config(), {'dataset': {'name': 'x'}})


def reference(head, x_TD, among_T, start, null):
  """XLNet's head of one row in float64: scores of begin, of end given `start`, and the odds of no answer."""
  line = lambda name, x: x @ head[name]['kernel'] + head[name].get('bias', 0.0)
  begin_T = np.where(among_T, line('begin', x_TD)[:, 0], -np.inf)
  h_TD = np.tanh(line('end_in', np.concatenate([x_TD, np.repeat(x_TD[start][None], len(x_TD), 0)], 1)))
  h_TD = (h_TD - h_TD.mean(1, keepdims=True)) / h_TD.std(1, keepdims=True)
  end_T = line('end_out', h_TD * head['end_norm']['scale'] + head['end_norm']['bias'])[:, 0]
  p_T = np.exp(begin_T - begin_T.max())
  both = np.concatenate([p_T @ x_TD / p_T.sum(), x_TD[null]])
  return begin_T, np.where(among_T, end_T, -np.inf), line('none_out', np.tanh(line('none_in', both)))[0]


def log_softmax(x):
  return x - x.max() - np.log(np.exp(x - x.max()).sum())


WIDE = np.random.default_rng(2).normal(size=(3, 6, 5)).astype(np.float32)


def xlnet_case():
  head = drawn.params(lambda key: span_head.init(5, 0.5, key), std=0.5)
  passage_BT = np.arange(6) < np.array([[4], [2], [3]])
  batch = {
    **BATCH,
    'x': WIDE,
    'passage_BT': passage_BT,
    'null_B': np.array([5, 3, 4]),
    'starts_B': np.array([2, 3, 1]),
    'ends_B': np.array([3, 3, 1]),
  }
  return {'model': {}, 'objective': head}, jax.tree.map(lambda x: np.asarray(x, np.float64), head), batch


def test_xlnet_head_scores_the_end_given_the_start():
  params, exact, batch = xlnet_case()
  cfg = span.Config(head='xlnet', null_weight=0.25)
  out, nll, null, known = compiled(span.loss, cfg)(params, batch, ()), 0.0, 0.0, 0
  for b in range(2):  # the third row is padding
    start, end, none = (int(batch[key][b]) for key in ('starts_B', 'ends_B', 'null_B'))
    among_T = batch['passage_BT'][b] | (np.arange(6) == none)
    begin_T, end_T, odds = reference(exact, WIDE[b].astype(np.float64), among_T, start, none)
    nll -= (log_softmax(begin_T)[start] + log_softmax(end_T)[end]) / 2
    null += 0.25 * np.log1p(np.exp(-odds if start == none else odds))
    known += (odds > 0) == (start == none)
  np.testing.assert_allclose(out.sums['nll'], nll, rtol=1e-5)
  np.testing.assert_allclose(out.sums['null'], null, rtol=1e-5)
  assert out.metrics['null_accuracy'] == (known, 2.0) and set(span.weights(cfg, batch)) == set(span.terms(cfg))
  totals = {name: (float(x), float(n)) for name, (x, n) in out.metrics.items()}
  np.testing.assert_allclose(span.report(cfg, totals, None)['loss'], (nll + null) / 2, rtol=1e-5)


def test_xlnet_head_scores_ends_for_the_best_starts():
  params, exact, batch = xlnet_case()
  cfg = span.Config(head='xlnet', begins=2, ends=3)
  found = jax.device_get(compiled(span.predict, cfg)(params, batch, ())[0])
  for b in range(3):
    none = int(batch['null_B'][b])
    among_T, x_TD = batch['passage_BT'][b] | (np.arange(6) == none), WIDE[b].astype(np.float64)
    begin_T, _, odds = reference(exact, x_TD, among_T, 0, none)
    np.testing.assert_allclose(found['odds_B'][b], odds, rtol=1e-4)
    best = np.argsort(-begin_T)[:2]
    np.testing.assert_array_equal(found['begin_BK'][b], best)
    for k, start in enumerate(best):
      end_T = log_softmax(reference(exact, x_TD, among_T, start, none)[1])
      top = np.argsort(-end_T)[:3]
      np.testing.assert_array_equal(found['end_BKE'][b, k], top)
      np.testing.assert_allclose(found['scores_BKE'][b, k], log_softmax(begin_T)[start] + end_T[top], rtol=1e-4)


def test_answers_are_chosen_among_the_tried_spans():
  """A beginning must be where its window shows most around it, an end in the passage, and the span not too long."""
  row = {
    'begin_BK': np.array([1, 4]),
    'end_BKE': np.array([[3, 0], [5, 9]]),
    'odds_B': np.float32(0.5),
    'scores_BKE': np.log([[0.4, 0.3], [0.2, 0.1]]),
    'passage_BT': np.arange(10) < 8,
    'best_BT': np.arange(10) > 0,
  }
  chosen = schema.Evaluation(answer_length=3, n_best=20)
  odds, spans = question_answering._window(row, chosen)
  assert odds == 0.5 and [s[1:] for s in spans] == [(1, 3), (4, 5)]
  assert [s[1:] for s in question_answering._window(row, schema.Evaluation(answer_length=2))[1]] == [(4, 5)]
  assert question_answering._window({**row, 'best_BT': np.arange(10) > 1}, chosen)[1] == spans[1:]
