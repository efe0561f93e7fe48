"""Precision, recall and F1 of each class, beside scikit-learn's where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from lmx.metrics import by_class

NUMBERS = {'cat': (2, 4, 8), 'dog': (0, 0, 3), 'cow': (0, 2, 0), 'elk': (0, 0, 0)}


def test_span_f1_of_known_examples():
  table = by_class.table(NUMBERS)
  assert table['cat'] == {'precision': 0.5, 'recall': 0.25, 'f1': pytest.approx(1 / 3), 'count': 8, 'predicted': 4}
  assert table['dog'] == {'precision': 0, 'recall': 0, 'f1': 0, 'count': 3, 'predicted': 0}
  assert table['cow'] == table['dog'] | {'count': 0, 'predicted': 2}
  assert by_class.macro_f1({name: table[name] for name in ('cat', 'dog', 'elk')}) == pytest.approx(1 / 6)
  assert by_class.macro_f1(table) == pytest.approx(1 / 9)  # cow is predicted, elk is neither true nor predicted
  head, cat, dog, cow, elk = by_class.lines(table)
  assert [line.split()[1:4] for line in (dog, cow, elk)] == [
    ['-', '0.0%', '0.0%'],
    ['0.0%', '-', '0.0%'],
    ['-', '-', '-'],
  ]
  assert head.split() == ['class', 'precision', 'recall', 'F1', 'count']
  assert cat.split() == ['cat', '50.0%', '25.0%', '33.3%', '8'] and len(head) == len(cat)


@pytest.mark.peer
def test_scores_match_scikit_learn():
  metrics = pytest.importorskip('sklearn.metrics')
  rng = np.random.default_rng(0)
  true, predicted = rng.integers(0, 4, 200), rng.integers(1, 5, 200)
  counts = {
    str(c): (np.sum((true == c) & (predicted == c)), np.sum(predicted == c), np.sum(true == c)) for c in range(5)
  }
  theirs = metrics.classification_report(true, predicted, output_dict=True, zero_division=0)
  ours = by_class.table(counts)
  for name, one in ours.items():
    assert [one[key] for key in ('precision', 'recall', 'f1', 'count')] == pytest.approx([*theirs[name].values()])
  assert by_class.macro_f1(ours) == pytest.approx(theirs['macro avg']['f1-score'])
