"""Baseline rows of classifiers and regressions: constants and TF-IDF on the rows of the run."""

from __future__ import annotations

import json
import types

import numpy as np
import pytest

from lmx import objectives
from lmx.data import pipeline
from lmx.evaluation import parts, report
from lmx.evaluation.parts import bag_of_words, classification
from lmx.metrics import bag_of_words as models
from lmx.objectives import classify, regress

ROWS = {
  # The first of two classes that are equally frequent is "no", but most test rows are "yes".
  'train': [('good good', 'yes'), ('bad bad', 'no'), ('good fine', 'yes'), ('bad dull', 'no')],
  'valid': [('good', 'yes')],
  'test': [('good', 'yes'), ('bad', 'no'), ('bad', 'yes'), ('fine', '')],
}
SCORES = {'yes': '4.5', 'no': '0.5', '': ''}


def subject(tmp_path, split='test', *, scored=False, pairs=False, **data):
  for name, rows in ROWS.items():
    row = lambda text, label: {'text': text, **({'other': 'a ' + text} if pairs else {}), 'label': label}
    lines = [json.dumps(row(text, SCORES[label] if scored else label)) + '\n' for text, label in rows]
    (tmp_path / f'{name}.jsonl').write_text(''.join(lines))
  texts = ('text', 'other') if pairs else ('text',)
  given = {'manual_dir': str(tmp_path), 'cache_dir': str(tmp_path / 'cache'), 'tokenizer': 'words', **data}
  batching = {'name': 'texts', 'form': 'plain'}
  cfg = pipeline.Config(dataset='table_files', batching=batching, texts=texts, scores=scored, **given)
  corpus = pipeline.load(cfg)
  module = regress if scored else classify
  objective = module.resolve(module.Config(), corpus.manifest)
  name = 'regress' if scored else 'classify'
  run = types.SimpleNamespace(data=cfg, objective=objective, objective_name=name)
  return parts.Subject(run, corpus, {}, None, split)


def baselines(*given, **more):
  return bag_of_words.measure(subject(*given, **more)).metrics['baselines']


def test_classes_have_a_constant_and_tfidf_on_the_same_labelled_rows(tmp_path):
  pytest.importorskip('sklearn')
  found = baselines(tmp_path)
  constant, linear = found['majority'], found['tfidf']
  assert constant['label'] == 'no' and constant['accuracy'] == pytest.approx(1 / 3)
  assert constant['f1'] == constant['matthews'] == 0
  assert linear['accuracy'] == pytest.approx(2 / 3) and linear['matthews'] == pytest.approx(0.5)
  assert linear['training_rows'] == 4 and linear['regression'] == 'logistic regression'
  few = baselines(tmp_path, train_documents=3)
  assert few['tfidf']['training_rows'] == 3
  both = baselines(tmp_path, train_splits=('train', 'valid'))
  assert both['tfidf']['training_rows'] == 5


def test_scores_have_the_mean_and_ridge_regression(tmp_path):
  pytest.importorskip('sklearn')
  found = baselines(tmp_path, scored=True, pairs=True)
  assert found['mean'] == {'rmse': pytest.approx(2.0)}  # of the training rows: 2.5
  assert found['tfidf']['pearson'] > 0.4 and found['tfidf']['features'] == models.OF_PAIRS
  assert bag_of_words.lines({'baselines': found})[0].endswith('; mean of the training scores: rmse 2.000)')


def test_summary_shows_the_rows_and_the_missing_extra(tmp_path, monkeypatch):
  monkeypatch.setattr(models, 'is_installed', lambda: False)
  found = baselines(tmp_path)
  metrics = {'model': 'gpt:own', 'metric': 'accuracy', 'accuracy': 0.9, 'tokens_counted': 3, 'unit': 'documents'}
  metrics |= {'dataset': 'table_files', 'split': 'test', 'protocol': 'texts', 'baselines': found}
  lines = report.summary(metrics, objectives.get('classify')).splitlines()
  assert lines[2].split() == ['majority', 'class,', '"no"', '33.33%']
  assert lines[3].endswith("TF-IDF, logistic regression   needs pip install 'lmx[baselines]'")


def test_reasons_for_no_linear_model(tmp_path, monkeypatch):
  monkeypatch.setattr(models, 'is_installed', lambda: True)
  one = subject(tmp_path)
  monkeypatch.setattr(bag_of_words, 'MOST_ROWS', 3)
  assert bag_of_words.measure(one).metrics['baselines']['tfidf']['skipped'] == '4 training rows; at most 3'
  monkeypatch.setattr(bag_of_words, 'MOST_ROWS', 4)
  monkeypatch.setattr(bag_of_words, 'MOST_CHARACTERS', 30)
  assert 'more than 30 characters' in bag_of_words.measure(one).metrics['baselines']['tfidf']['skipped']
  (tmp_path / 'train.jsonl').unlink()
  assert 'cannot be read' in bag_of_words.measure(one).metrics['baselines']['tfidf']['skipped']


def test_option_adds_naive_bayes_of_the_labelled_documents(tmp_path):
  pytest.importorskip('sklearn')
  run, corpus, *_ = subject(tmp_path)
  found = classification._bag_of_words(run, corpus, 'test')
  assert found == {'naive_bayes': pytest.approx(2 / 3), 'tfidf': pytest.approx(2 / 3)}
  assert np.isclose(found['tfidf'], baselines(tmp_path)['tfidf']['accuracy'])
