"""The mixture of a language model and its Kneser-Ney baseline against NumPy, and the cases without one."""

from __future__ import annotations

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from lmx import objectives
from lmx.cli import main as cli
from lmx.config import resolve
from lmx.data import corpus as corpora
from lmx.data.tokenizers import build
from lmx.engine import sharding
from lmx.evaluation import evaluate, report
from lmx.evaluation.parts import Subject, ngrams
from lmx.metrics import ngram
from lmx.runs import init
from tests import small_text

SETTINGS = {'batching': {'name': 'streams'}, 'batch_size': 2, 'length': 6}


@pytest.fixture(scope='module')
def corpus():
  """Rare words of the training split are frequent in the others, where an untrained model helps the n-gram model."""
  rng = np.random.default_rng(0)
  words = 'alpha beta gamma delta epsilon zeta eta theta iota kappa'.split()
  shares = np.array([30] * 5 + [1] * 5) / 155
  texts = [' '.join(rng.choice(words, 12, p=shares if i < 24 else None)) + '\n' for i in range(40)]
  tokenizer = build.train('words', texts, rule='lines', min_count=2)
  return corpora.Corpus.from_texts({'train': texts[:24], 'valid': texts[24:32], 'test': texts[32:]}, tokenizer)


def subject_of(corpus, split='test', **settings):
  given = {
    'model': {'name': 'rnn_lm', 'variant': 'tiny'},
    'train': {'steps': 1},
    'data': SETTINGS,
    'evaluation': {'order': 2},
    **settings,
  }
  run = resolve.to_run(resolve.resolve(given), corpus.tokenizer.vocab_size)
  params = jax.jit(lambda: init.init_params(run, jax.random.key(0)))()
  engine = sharding.Engine(sharding.Config(data=1), jax.devices()[:1])
  return Subject(run, corpus, params, engine, split, True)


def test_mixture_is_the_best_linear_interpolation_of_validation(corpus):
  subject = subject_of(corpus)
  found = ngrams.measure(subject).metrics
  V, train = corpus.tokenizer.vocab_size, np.asarray(corpus.splits['train'].tokens)
  model = ngram.kneser_ney(train, V, order=2)
  p, q = {}, {}
  for split in ('valid', 'test'):
    own = np.exp(-evaluate.token_nll(subject.run, corpus, subject.params, split))
    p[split] = own[np.isfinite(own)]
    q[split] = np.exp(-ngram.score(model, np.asarray(corpus.splits[split].tokens))[1])[np.isfinite(own)]
  assert np.isnan(own).sum() == 1  # the first token of the stream has no probability
  grid = np.linspace(0, 1, 2001)
  perplexities = [np.exp(-np.log(w * p['valid'] + (1 - w) * q['valid']).mean()) for w in grid]
  best = grid[np.argmin(perplexities)]
  assert 0.05 < best < 0.95
  weight = found['baselines']['mixture']['weight']
  assert weight == pytest.approx(best, abs=1e-3) == found['validation_baselines']['mixture']['weight']
  for split, name in (('test', 'baselines'), ('valid', 'validation_baselines')):
    mixed = found[name]['mixture']
    nll = -np.log(weight * p[split] + (1 - weight) * q[split])
    assert mixed['loss'] == pytest.approx(nll.mean(), rel=1e-6)
    words = corpus.splits[split].counts['words']
    assert mixed['perplexity_per_word'] == pytest.approx(np.exp(nll.sum() / words), rel=1e-6)
    assert mixed['tokens_counted'] == len(nll) and mixed['order'] == 2
  alone = ngrams.measure(subject._replace(validation_baselines=False)).metrics
  assert alone == {'baselines': found['baselines']}
  measured = ngrams.measure(subject._replace(split='valid')).metrics['baselines']
  assert measured == found['validation_baselines']


@pytest.mark.parametrize('better', [0, 1])
def test_weight_of_a_model_that_is_better_at_every_token(better):
  nll = [np.full(20, 3.0), np.full(20, 3.0)]
  nll[better] = np.linspace(0.5, 1.5, 20)
  assert ngrams.best_weight(*nll) == pytest.approx(1 - better, abs=1e-3)


def test_reason_without_a_mixture(corpus, monkeypatch):
  subject = subject_of(corpus)

  def reason(subject):
    found = ngrams.measure(subject).metrics['baselines']
    assert found['kneser_ney']['perplexity_per_word'] > 1
    assert ngrams.notes({'split': 'test', 'baselines': found}) == []  # the table has the reason
    return found['mixture']['skipped']

  without = dataclasses.replace(corpus, splits={name: corpus.splits[name] for name in ('train', 'test')})
  assert reason(subject._replace(corpus=without, validation_baselines=False)) == 'no split valid to choose the weight'
  sharded = sharding.Engine(sharding.Config(data=1, fsdp=2), jax.devices()[:2])
  assert reason(subject._replace(engine=sharded)) == 'parameters sharded over devices'
  monkeypatch.setattr(ngrams, 'MOST', 100)
  assert reason(subject) == '216 positions to read again, more than 100'
  monkeypatch.setattr(jax, 'process_count', lambda: 2)
  assert reason(subject) == 'several processes'


def test_summary_has_a_line_for_the_mixture(corpus):
  metrics = {
    **{'model': 'rnn_lm', 'metric': 'perplexity_per_word', 'perplexity_per_word': 90.0, 'tokens_counted': 9},
    **{'unit': 'tokens', 'dataset': 'embedded', 'split': 'test', 'protocol': 'streams'},
    'baselines': {
      'unigram': {'perplexity_per_word': 300.0},
      'kneser_ney': {'order': 5, 'perplexity_per_word': 95.0},
      'mixture': {'order': 5, 'weight': 0.625, 'perplexity_per_word': 80.0},
    },
  }
  lines = report.summary(metrics, objectives.get('causal_lm')).splitlines()
  assert [line.split()[-1] for line in lines[1:5]] == ['90.00', '95.00', '80.00', '300.00']
  assert 'mixed with Kneser-Ney' in lines[3] and lines[-1] == '  (mixed with weight 0.62 of the model, chosen on valid)'
  metrics['baselines']['mixture'] = {'skipped': 'several processes'}
  lines = report.summary(metrics, objectives.get('causal_lm')).splitlines()
  assert lines[3].split() == ['mixed', 'with', 'Kneser-Ney', 'several', 'processes']


def test_runs_with_a_mixture_are_evaluated_reported_and_compared(tmp_path, capsys):
  """`lmx evaluate` measures the mixture of the run again; `lmx report` and `lmx compare` read its results."""
  text = [f'--config.{setting}' for setting in small_text.settings(tmp_path)]
  changes = ('train.steps=2', 'samples.count=0', 'parallel.data=1', 'evaluation.baselines=true')
  options = [*text, *(f'--config.{change}' for change in changes), '--config.evaluation.save_rows=true']
  runs = [tmp_path / name for name in ('a', 'b')]
  command = ['train', '--config=experiments/rnn_lm/quickstart.py:tiny', f'--workdir={runs[0]}', *options]
  assert cli.main(command) == 0
  shutil.copytree(*runs)
  trained = json.loads((runs[0] / 'results.json').read_text())
  assert 'mixed with Kneser-Ney' in capsys.readouterr().err
  file = tmp_path / 'out.json'
  assert cli.main(['evaluate', f'--workdir={runs[0]}', f'--output={file}']) == 0
  again = json.loads(file.read_text())['baselines']['mixture']
  assert again == pytest.approx(trained['baselines']['mixture'], rel=1e-4)
  assert cli.main(['report', str(runs[0])]) == 0
  assert 'mixture' in (runs[0] / 'report.html').read_text()
  assert cli.main(['compare', *map(str, runs)]) == 0
