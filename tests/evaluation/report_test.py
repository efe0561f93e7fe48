"""The summary of a measurement."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from lmx import objectives
from lmx.evaluation import report


@pytest.mark.parametrize(
  'accuracy, majority, warns',
  [(0.6, 0.6, True), (0.58, 0.6, True), (0.0, 0.6, True), (0.61, 0.6, False), (1.0, 1.0, False)],
)
def test_majority_class_baseline_warning(accuracy, majority, warns):
  figures = {
    'model': 'bert:tiny',
    'metric': 'accuracy',
    'accuracy': accuracy,
    'dataset': 'table_files',
    'split': 'test',
    'tokens_counted': 100,
    'unit': 'rows',
    'protocol': 'texts',
    'majority_accuracy': majority,
    'majority_class': 1,
    'labels': ['World', 'Sports'],
  }
  summary = functools.partial(report.summary, objective=objectives.get('classify'))
  message = f'warning: accuracy: got {accuracy:.1%}; always predicting "Sports" has 60.0%; train longer'
  assert (message in summary(figures)) == warns
  named = figures | {'metric': 'f1', 'f1': 0.5, 'positive': 'Sports'}
  assert summary(named).startswith('f1 of Sports on table_files/test')
  assert 'f1 of Sports' in summary(named | {'metric': 'accuracy'})
  without = {key: x for key, x in figures.items() if not key.startswith('majority')}
  assert 'warning' not in summary(without)


@pytest.mark.parametrize(('spread', 'warns'), [(0.001, True), (0.02, False)])
def test_nearly_equal_predictions_of_a_regression_are_reported(spread, warns):
  objective, scores = objectives.get('regress'), np.arange(5.0)
  pairs = np.stack([2 + spread * scores, scores, np.ones(5)], axis=1)
  totals = {'pairs_B3': pairs, 'squared_error': (np.square(pairs[:, 0] - scores).sum(), 5.0)}
  found = objective.report(objective.Config(), totals, {})
  assert found['deviation_ratio'] == pytest.approx(spread)
  about = {'metric': 'pearson', 'model': 'm', 'dataset': 'd', 'split': 'test', 'unit': 'rows', 'protocol': 'texts'}
  lines = report.summary(found | about | {'tokens_counted': 5}, objective)
  assert (f'warning: predictions: got nearly the same for all rows, with {spread:.2%}' in lines) == warns
