"""The summary of a measurement."""

from __future__ import annotations

import functools

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
