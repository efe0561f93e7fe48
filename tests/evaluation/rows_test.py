"""Saved rows of language models, of translations and of objectives that report sums; rows of other files."""

from __future__ import annotations

import functools
import json

import jax
import numpy as np
import pytest

from lmx import objectives, statistics
from lmx.cli import main
from lmx.config import resolve
from lmx.data import corpus as corpora
from lmx.data import pipeline
from lmx.data.tokenizers import build
from lmx.engine import sharding
from lmx.errors import InputError
from lmx.evaluation import ensemble, evaluate, report, rows
from lmx.evaluation import translation as translations
from lmx.evaluation.parts import Subject
from lmx.evaluation.rows import language_model, totals, translation
from lmx.runs import init

WORDS = 'alpha beta gamma delta epsilon zeta eta theta iota kappa'.split()


def make_corpus(separate):
  """Return a corpus of lines, each a document if `separate`, else all of a split in one document."""
  draw = np.random.default_rng(0)
  lines = [' '.join(draw.choice(WORDS, draw.integers(3, 9))) + '\n' for _ in range(30)]
  tokenizer = build.train('words', lines, rule='lines')
  join = lambda some: some if separate else [''.join(some)]
  return corpora.Corpus.from_texts(
    {'train': join(lines), 'valid': join(lines[:9]), 'test': join(lines[9:20])}, tokenizer
  )


def run_of(corpus, **sections):
  given = {'model': {'name': 'nplm', 'variant': 'tiny'}, 'train': {'steps': 1}, 'parallel': {'data': 1}, **sections}
  return resolve.to_run(resolve.resolve(given), corpus.tokenizer.vocab_size)


@pytest.fixture(scope='module')
def engine():
  return sharding.Engine(sharding.Config(data=1), jax.devices()[:1])


def test_language_model_saves_its_loss_by_document_or_line(engine):
  both = []
  for separate in (True, False):
    corpus = make_corpus(separate)
    run = run_of(corpus, evaluation={'save_rows': True, 'baselines': False}, data={'batch_size': 3, 'length': 5})
    params = engine.build(functools.partial(init.init_params, run), jax.random.key(0))
    evaluation = report.evaluate_run(run, corpus, params, engine, 'test')
    metrics = evaluation.metrics
    found = [json.loads(line) for line in evaluation.rows.splitlines()]
    assert metrics['rows']['unit'] == ('documents' if separate else 'lines') and len(found) == 11
    assert sum(row['tokens'] for row in found) == metrics['tokens_counted']
    for metric in ('loss', 'perplexity_per_token', 'perplexity_per_word', 'bits_per_character', 'bits_per_byte'):
      measure = rows.measure(metric, found, metrics)
      assert measure.statistic(measure.values) == pytest.approx(metrics[metric], rel=1e-5)
    values = np.array([[row['loss'], row['tokens']] for row in found])
    expected = statistics.bootstrap(values, lambda x: np.exp(x[:, 0].sum() / x[:, 1].sum()))
    measure = rows.measure('perplexity_per_token', found, metrics)
    np.testing.assert_allclose(statistics.bootstrap(measure.values, measure.statistic)[:2], expected[:2], rtol=1e-6)
    assert metrics['interval'][0] < metrics['perplexity_per_word'] < metrics['interval'][1]
    both.append([row['tokens'] for row in found])
  assert both[0] == both[1]


def test_text_without_lines_has_windows():
  split = make_corpus(False).split('test')
  bounds, unit = language_model._bounds(split, None, 10)
  assert unit == 'windows' and bounds[0] == 0 and bounds[-1] == len(split.tokens)
  assert set(np.diff(bounds)[:-1]) == {10}


def test_objectives_without_rows_are_refused_before_training(tmp_path, capsys):
  command = ['train', '--config=experiments/word2vec/quickstart.py:tiny', f'--workdir={tmp_path}/run']
  assert main.main([*command, '--config.evaluation.save_rows=true']) == 2
  assert (
    'evaluation.save_rows: got true; expected false, because an evaluation by objective "skipgram"'
    in capsys.readouterr().err
  )
  assert not (tmp_path / 'run/config.json').exists()
  without = [name for name in objectives.names() if not objectives.get(name).ROWS]
  assert without == ['skipgram'] and all(
    rows.get(objectives.get(name).ROWS) for name in objectives.names() if name not in without
  )


def test_totals_are_what_the_objective_sums(engine):
  """Of a memory that is carried from batch to batch too."""
  corpus = make_corpus(True)
  options = {'objective': {'name': 'causal_lm'}, 'data': {'batch_size': 4, 'length': 6}}
  run = run_of(corpus, model={'name': 'rnn_lm', 'variant': 'tiny'}, **options)
  params = engine.build(functools.partial(init.init_params, run), jax.random.key(0))
  found, _ = totals.collect(Subject(run, corpus, params, engine, 'test'), ())
  batches = pipeline.batches(evaluate.final_data(run), corpus, 'test', pipeline.EVAL_SEED, train=False)
  sums = evaluate.compute_totals(run, params, batches, engine)
  counts = np.array([row['totals']['nll'] for row in found]).sum(axis=0)
  np.testing.assert_allclose(counts, sums['nll'], rtol=1e-5)
  assert len(found) == batches.steps * batches.batch_size > 4


def test_totals_of_arrays_give_what_the_objective_reports():
  """Areas of the classes of each image: the metrics are those of the arrays of all images."""
  segment = objectives.get('segment')
  areas_BC3 = np.array([[[5, 6, 7], [2, 3, 4]], [[1, 2, 2], [8, 9, 9]], [[0, 1, 4], [3, 6, 5]]])
  whole = segment.report(segment.Config(classes=2, auxiliary=0), {'nll': (6.0, 30.0), 'areas_BC3': areas_BC3}, {})
  found = [
    {'row': i, 'totals': {'nll': [2.0, 10.0], 'areas_BC3': areas_C3.tolist()}} for i, areas_C3 in enumerate(areas_BC3)
  ]
  about = {'rows': {'kind': 'totals', 'objective': 'segment', 'options': {'classes': 2, 'auxiliary': 0}}} | whole
  for metric in ('miou', 'pixel_accuracy', 'loss'):
    measure = rows.measure(metric, found, about)
    assert measure.statistic(measure.values) == pytest.approx(whole[metric])
  some = rows.measure('miou', found, about)
  part = segment.report(segment.Config(classes=2, auxiliary=0), {'nll': (2.0, 10.0), 'areas_BC3': areas_BC3[:1]}, {})
  assert some.statistic(some.values[:1]) == pytest.approx(part['miou'])


@pytest.mark.parametrize('lower_case', [False, True])
def test_translation_metrics_follow_their_signatures(lower_case):
  references = ['Ein Haus-Boot liegt am See .', 'der Hund läuft schnell nach Hause', 'Das ist „gut“, oder nicht?'] * 2
  hypotheses = ['ein Haus-Boot liegt am See .', 'der Hund rennt schnell nach Hause', 'Das ist "gut", nicht?'] * 2
  scores = translations.compute_scores(hypotheses, references, sides=('en', 'de'), lower_case=lower_case)
  pairs = [translations.TranslatedPair('a source', *pair) for pair in zip(hypotheses, references, strict=True)]
  run = resolve.to_run(
    resolve.resolve(
      {'model': {'name': 'transformer', 'variant': 'tiny'}, 'train': {'steps': 1}, 'evaluation': {'beam': 2}}
    ),
    10,
  )
  found, unit = translation.collect(Subject(run, None, None, None, 'test'), pairs)
  assert unit == 'sentences' and found[1] == {
    'row': 1,
    'source': 'a source',
    'hypothesis': hypotheses[1],
    'reference': references[1],
  }
  about = scores | {'rows': {'kind': 'translation'}}
  for metric in ('bleu', 'bleu_lower', 'bleu_tokenised', 'bleu_tokenised_lower', 'chrf'):
    measure = rows.measure(metric, found, about)
    assert measure.statistic(measure.values) == pytest.approx(scores[metric], abs=1e-9)


def test_ensembles_have_no_rows():
  run = run_of(make_corpus(True), evaluation={'save_rows': True})
  ensemble._check_options(run, [])  # a member's own setting
  with pytest.raises(InputError, match=r'evaluation\.save_rows: got true for an ensemble'):
    ensemble._check_options(run, ['evaluation.save_rows=true'])


def test_rows_of_another_evaluation_are_refused(tmp_path):
  metrics = {'metric': 'accuracy', 'accuracy': 0.5, 'rows': {'kind': 'classification', 'count': 2, 'digest': '0' * 16}}
  rows.write(tmp_path, '{"row": 0}\n{"row": 1}\n')
  with pytest.raises(InputError, match=r'rows\.jsonl: got other rows'):
    rows.read(tmp_path, metrics)
  assert rows.read(tmp_path, {'metric': 'accuracy'}) is None
