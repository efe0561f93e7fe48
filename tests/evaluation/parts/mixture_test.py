"""The likelihood of every token in its place, and what is measured with it: mixtures and n-gram models."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

from lmx import objectives
from lmx.cli import main as cli
from lmx.config import resolve
from lmx.data import corpus as corpora
from lmx.data import pipeline
from lmx.data.tokenizers import build
from lmx.engine import sharding, step
from lmx.errors import InputError
from lmx.evaluation import evaluate
from lmx.evaluation.parts import Subject, mixture
from lmx.metrics import class_ngram, interpolated_trigram, ngram
from lmx.models import registry
from lmx.runs import init
from tests import small_text
from tests.reference import nplm as reference

TRAIN = 'experiments/nplm/quickstart.py:tiny'


@pytest.fixture(scope='module')
def corpus():
  rng = np.random.default_rng(0)
  words = 'alpha beta gamma delta epsilon zeta eta theta iota kappa'.split()
  texts = [' '.join(rng.choice(words, 12)) + '\n' for _ in range(40)]
  tokenizer = build.train('words', texts, rule='lines')
  return corpora.Corpus.from_texts({'train': texts, 'valid': texts[:9], 'test': texts[9:14]}, tokenizer)


def run_of(corpus, name='nplm', evaluation=None, objective=None, **data):
  given = {
    'model': {'name': name, 'variant': 'tiny'},
    'train': {'steps': 1},
    'data': data,
    'evaluation': evaluation or {},
    'objective': objective or {},
  }
  run = resolve.to_run(resolve.resolve(given), corpus.tokenizer.vocab_size)
  return run, jax.jit(lambda: init.init_params(run, jax.random.key(0)))()


@pytest.mark.parametrize(
  'name, data, predicted',
  [
    ('nplm', {'batch_size': 3, 'length': 5}, -1),
    ('rnn_lm', {'batch_size': 2, 'length': 8}, -1),
    ('gpt2', {'batching': {'name': 'windows', 'stride': 4}, 'batch_size': 3, 'length': 10}, -1),
    ('gpt2', {'batching': 'packed', 'batch_size': 2, 'length': 20}, 0),
  ],
)
def test_tokens_add_up_to_the_split(corpus, name, data, predicted):
  run, params = run_of(corpus, name, **data)
  nll = evaluate.token_nll(run, corpus, params, 'test')
  model, objective = registry.get(run.model_name), objectives.get(run.objective_name)
  engine = sharding.Engine(sharding.Config(data=1), jax.devices()[:1])
  eval_step = engine.compile_eval(step.make_eval_step(model, run.model, objective, run.objective))
  batches = pipeline.batches(run.data, corpus, 'test', 0, train=False)
  begin = lambda rows: model.init_state(run.model, rows)
  totals = evaluate.measure(eval_step, engine.build(lambda p: p, params), begin, batches, engine)
  assert int((~np.isnan(nll)).sum()) == totals['nll'][1] == len(nll) + predicted
  assert np.nansum(nll) == pytest.approx(totals['nll'][0], rel=1e-5)


@pytest.mark.parametrize('length', [4, 7, 64])
def test_every_token_keeps_its_position(corpus, length):
  """In one stream, a window goes on over the ends of rows, whatever their length."""
  run, params = run_of(corpus, batch_size=5, eval_batch_size=1, length=length)
  nll = evaluate.token_nll(run, corpus, params, 'test')
  p = jax.tree.map(np.asarray, params['model'])
  layer, table_VD, h = p['layer_00'], p['output']['table'], run.model.h
  exact = {
    'C': p['embed']['table'],
    'H': layer['kernel'].T,
    'd': layer['bias'],
    'U': table_VD[:, :h],
    'W': table_VD[:, h:],
    'b': p['output']['bias'],
  }
  tokens = corpus.splits['test'].tokens.astype(int).tolist()
  p_of = lambda i: reference.probabilities(exact, tokens[:i], run.model.n)[tokens[i]]
  expected = [-np.log(p_of(i)) for i in range(1, len(tokens))]
  assert np.isnan(nll[0])
  np.testing.assert_allclose(nll[1:], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('weight', [0.0, 0.3, 1.0])
@pytest.mark.parametrize('kind', ['trigram', 'kneser_ney'])
def test_mixture_averages_probabilities(corpus, kind, weight):
  options = {'mixture': kind, 'mixture_weight': weight, 'order': 3}
  run, params = run_of(corpus, evaluation=options, batch_size=1, length=9)
  engine = sharding.Engine(sharding.Config(data=1), jax.devices()[:1])
  metrics = mixture.measure(Subject(run, corpus, params, engine, 'test')).metrics
  found = metrics['mixture']
  own = evaluate.token_nll(run, corpus, params, 'test')[1:]
  train, valid, test = (np.asarray(corpus.splits[name].tokens) for name in ('train', 'valid', 'test'))
  V = corpus.tokenizer.vocab_size
  if kind == 'trigram':
    _, other = interpolated_trigram.score(interpolated_trigram.fit(train, valid, V), test)
  else:
    _, other = ngram.score(ngram.kneser_ney(train, V, order=3), test)
  p = weight * np.exp(-own) + (1 - weight) * np.exp(-other[1:])
  assert found['perplexity_per_token'] == pytest.approx(np.exp(-np.log(p).mean()), rel=1e-6)
  assert found['tokens_counted'] == len(test) - 1
  name = {'trigram': 'trigram', 'kneser_ney': 'ikn3'}[kind]
  assert found['parts']['run'] == pytest.approx(np.exp(own.mean()))
  assert found['parts'][name] == pytest.approx(np.exp(other[1:].mean()))
  assert f'mixed with {name}, weight {weight:g}' in mixture.notes(metrics)[0]


def test_ngrams_by_name(corpus):
  found = mixture.evaluate_ngrams(corpus, ['valid', 'test'], ['trigram', 'kn3', 'ikn3', 'kn1'])
  assert [(r['model'], r['split']) for r in found[:3]] == [('trigram', 'valid'), ('trigram', 'test'), ('kn3', 'valid')]
  train, test = (np.asarray(corpus.splits[name].tokens) for name in ('train', 'test'))
  expected = {
    'kn3': ngram.kneser_ney(train, corpus.tokenizer.vocab_size, order=3, backoff=True, minimum=2),
    'ikn3': ngram.kneser_ney(train, corpus.tokenizer.vocab_size, order=3),
  }
  for record in found:
    if record['split'] == 'test' and record['model'] in expected:
      total, each = ngram.score(expected[record['model']], test)
      assert record['perplexity_per_token'] == pytest.approx(np.exp(total / len(each)))
      assert record['tokens_counted'] == record['words_counted'] == len(test) and record['word_rule'] == 'tokens'


def test_class_models_by_name(corpus):
  records = mixture.evaluate_ngrams(corpus, ['test'], ['class3_4', 'class2_4', 'class2_3'])
  assert {record['train_tokens'] for record in records} == {corpus.splits['train'].counts['tokens']}
  train, test = (np.asarray(corpus.splits[name].tokens) for name in ('train', 'test'))
  for record, (order, size) in zip(records, ((3, 4), (2, 4), (2, 3)), strict=True):
    class_of = class_ngram.exchange(train, corpus.tokenizer.vocab_size, size)
    total, _ = class_ngram.score(class_ngram.fit(train, class_of, order), test)
    assert record['perplexity_per_token'] == pytest.approx(np.exp(total / len(test)))


def test_unmeasured_programs_are_reported(corpus):
  with pytest.raises(InputError, match='unknown n-gram model "kn0"'):
    mixture.evaluate_ngrams(corpus, ['test'], ['kn0'])
  with pytest.raises(InputError, match='no split "exam"'):
    mixture.evaluate_ngrams(corpus, ['exam'], ['kn2'])
  with pytest.raises(InputError, match='evaluation.mixture: unknown "bigram"'):
    run_of(corpus, evaluation={'mixture': 'bigram'})
  with pytest.raises(InputError, match='mixture_weight: got 1.5'):
    run_of(corpus, evaluation={'mixture_weight': 1.5})
  run, params = run_of(corpus, 'bert', batching='packed')
  with pytest.raises(InputError, match='does not predict each token'):
    evaluate.token_nll(run, corpus, params, 'test')
  run, params = run_of(corpus, 'gpt2', batching={'name': 'windows', 'drawn': 3})
  with pytest.raises(InputError, match='data.batching.drawn: got 3; expected 0, because every token'):
    evaluate.token_nll(run, corpus, params, 'test')


def test_from_the_command_line(tmp_path, capsys):
  """A run records its mixture, `lmx evaluate` measures it again, `lmx ngrams` the n-gram models alone."""
  work = tmp_path / 'run'
  text = [f'--config.{setting}' for setting in small_text.settings(tmp_path)]
  options = [*text, '--config.train.steps=1', '--config.evaluation.mixture=trigram', '--config.samples.count=0']
  assert cli.main(['train', f'--config={TRAIN}', f'--workdir={work}', '--config.parallel.data=1', *options]) == 0
  trained = json.loads((work / 'results.json').read_text())['mixture']
  file = tmp_path / 'out.json'
  arguments = [f'--workdir={work}', '--mixture=trigram:0.5', '--no-baselines', f'--output={file}']
  assert cli.main(['evaluate', *arguments]) == 0
  again = json.loads(file.read_text())
  assert again['mixture']['perplexity_per_token'] == pytest.approx(trained['perplexity_per_token'], rel=1e-5)
  assert again['perplexity_per_token'] == pytest.approx(trained['parts']['run'], rel=1e-4)
  assert 'mixed with trigram, weight 0.5' in capsys.readouterr().out
  assert cli.main(['ngrams', f'--config={TRAIN}', *text, '--split=test', '--models=trigram', f'--output={file}']) == 0
  (alone,) = json.loads(file.read_text())
  assert alone['perplexity_per_token'] == pytest.approx(trained['parts']['trigram'], rel=1e-2)  # one token more
  assert cli.main(['ngrams', f'--config={TRAIN}', *text, f'--output={tmp_path}/no/where.json', '--models=kn1']) == 2
  generated = ['ngrams', '--config=experiments/ntm/quickstart.py:tiny']
  assert cli.main(generated) == 2 and 'data.dataset: got "generated"' in capsys.readouterr().err
