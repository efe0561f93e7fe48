"""Naive Bayes by its definition; the regression's optimum by its conditions."""

from __future__ import annotations

import json
import types

import numpy as np
import pytest
from scipy import sparse, special

from lmx.data import pipeline
from lmx.evaluation.parts import classification
from lmx.metrics import bag_of_words

TEXTS = ('a good film', 'good , good', 'a bad film', 'bad and dull')
LABELS = np.array([1, 1, 0, 0])


def test_naive_bayes_adds_one_to_each_count():
  counts_IF = sparse.csr_matrix(np.array([[2.0, 0, 1], [0, 1, 1], [0, 3, 0]]))
  scores_JC = bag_of_words.naive_bayes(counts_IF, np.array([0, 1, 1]), sparse.csr_matrix([[1.0, 0, 2]]), 2)
  wanted = [np.log(1 / 3) + np.log(3 / 6) + 2 * np.log(2 / 6), np.log(2 / 3) + np.log(1 / 8) + 2 * np.log(2 / 8)]
  assert scores_JC[0] == pytest.approx(wanted)


def test_regression_is_at_the_optimum():
  """There the gradient of the penalised loss is 0: the weights are the summed errors."""
  x_IF = sparse.csr_matrix(np.random.default_rng(0).random((12, 5)))
  labels_I = np.arange(12) % 3
  scores_JC = bag_of_words.logistic_regression(x_IF, labels_I, sparse.eye_array(5).tocsr(), 3)
  bias_C = bag_of_words.logistic_regression(x_IF, labels_I, sparse.csr_matrix((1, 5)), 3)[0]
  error_IC = special.softmax(x_IF @ (scores_JC - bias_C) + bias_C, axis=1) - np.eye(3)[labels_I]
  assert np.allclose(scores_JC - bias_C, -(x_IF.T @ error_IC), atol=1e-3)
  assert np.allclose(error_IC.sum(axis=0), 0, atol=1e-3)


def test_classifiers_learn_words_and_ignore_unknown_ones():
  found = bag_of_words.accuracies(TEXTS, LABELS, ('Good !', 'dull , unheard'), np.array([1, 0]), 2)
  assert found == {'naive_bayes': 1.0, 'tfidf': 1.0}
  assert bag_of_words._features('A bad, Bad') == ['a', 'bad', ',', 'bad', 'a bad', 'bad ,', ', bad']


def test_evaluation_reads_the_documents_that_a_run_was_trained_on(tmp_path):
  """A row without a label is skipped."""
  lines = {
    'train': [('good good', 'yes'), ('bad bad', 'no')],
    'valid': [('good', 'yes')],
    'test': [('good', 'yes'), ('bad', 'no'), ('fine', '')],
  }
  for split, rows in lines.items():
    text = ''.join(json.dumps({'text': text, 'label': label}) + '\n' for text, label in rows)
    (tmp_path / f'{split}.jsonl').write_text(text)
  given = {'manual_dir': str(tmp_path), 'cache_dir': str(tmp_path / 'cache'), 'tokenizer': 'words'}
  cfg = pipeline.Config(dataset='table_files', batching={'name': 'texts', 'form': 'plain'}, **given)
  corpus, run = pipeline.load(cfg), types.SimpleNamespace(data=cfg)
  assert classification._bag_of_words(run, corpus, 'test') == {'naive_bayes': 1.0, 'tfidf': 1.0}
