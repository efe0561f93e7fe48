"""Evaluation with the continuous cache, over a whole split in parts, against its definition."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lmx.config import resolve
from lmx.data import corpus as corpora
from lmx.data import pipeline
from lmx.data.tokenizers import build
from lmx.engine import sharding
from lmx.errors import InputError
from lmx.evaluation import evaluate
from lmx.evaluation.parts import Subject, cache
from lmx.models import awd_lstm
from tests import drawn
from tests.reference import cache as reference

TEXT = ''.join(np.random.default_rng(0).choice(['to be ', 'or not ', 'that is ', 'the question ']) for _ in range(40))


@pytest.fixture(scope='module')
def corpus():
  tokenizer = build.train('characters', [TEXT])
  return corpora.Corpus.from_texts({name: [TEXT] for name in ('train', 'valid', 'test')}, tokenizer)


def run_of(corpus, **changes):
  sections = {
    'model': {'name': 'awd_lstm', 'variant': 'tiny', **changes.pop('model', {})},
    'data': {'batching': 'streams', 'batch_size': 4, 'length': 16, 'eval_batch_size': 3, **changes.pop('data', {})},
    'train': {'steps': 1},
    'parallel': {'data': 1},
    'evaluation': {'cache': (30, 0.2, 0.7), 'batch_size': 1, **changes},
  }
  return resolve.to_run(resolve.resolve(sections), corpus.tokenizer.vocab_size)


def measure(run, corpus, params):
  engine = sharding.Engine(sharding.Config(data=1), jax.devices()[:1])
  return cache.measure(Subject(run, corpus, params, engine, 'valid')).metrics['cache']


def params_of(run):
  return {'model': drawn.params(awd_lstm.init, run.model, std=drawn.by_size(3)), 'objective': {}}


@pytest.mark.parametrize('cutoffs', [(), (4, 9)], ids=['softmax', 'adaptive softmax'])
def test_whole_split_equals_the_definition(corpus, cutoffs):
  """With an adaptive softmax too, which evaluates the targets' probabilities alone."""
  run = run_of(corpus, model={'cutoffs': cutoffs})
  params = params_of(run)
  found = measure(run, corpus, params)
  tokens = np.asarray(corpus.splits['valid'].tokens).astype(np.int64)
  batch = {'tokens_BT': tokens[None, :-1].astype(np.int32)}
  features, _ = awd_lstm.apply(run.model, params['model'], batch, awd_lstm.init_state(run.model, 1))
  p_TV = np.asarray(jax.nn.softmax(awd_lstm.logits(run.model, params['model'], features)[0]), np.float64)
  mixture = reference.probabilities(np.asarray(features.last_BTD[0], np.float64), tokens[1:], p_TV, 30, 0.2, 0.7)
  expected = -np.log(mixture[np.arange(len(tokens) - 1), tokens[1:]]).mean()
  plain = -np.log(p_TV[np.arange(len(tokens) - 1), tokens[1:]]).mean()
  assert found['loss'] == pytest.approx(expected, rel=1e-5) and abs(expected - plain) > 0.01
  assert (found['window'], found['lambda'], found['theta']) == (30, 0.2, 0.7)


def test_window_longer_than_the_split_keeps_all_of_it(corpus):
  found = []
  for window in (len(corpus.splits['valid'].tokens), 2**30):
    run = run_of(corpus, cache=(window, 0.2, 0.7))
    found.append(measure(run, corpus, params_of(run)))
  assert found[1]['window'] == 2**30 and found[0]['loss'] == pytest.approx(found[1]['loss'], rel=1e-6)


def test_final_evaluation_sets_its_own_batch_rows(corpus):
  run = run_of(corpus)
  assert (run.data.eval_batch_size, evaluate.final_data(run).eval_batch_size) == (3, 1)
  assert evaluate.final_data(run_of(corpus, batch_size=0)).eval_batch_size == 3
  rows = [pipeline.batches(d, corpus, 'valid', 0, train=False).batch_size for d in (run.data, evaluate.final_data(run))]
  assert rows == [3, 1]


def test_windows_without_state_are_rejected(corpus):
  run = run_of(corpus, data={'batching': 'windows'})
  with pytest.raises(InputError, match='evaluation.cache.*reads streams'):
    measure(run, corpus, params_of(run))
