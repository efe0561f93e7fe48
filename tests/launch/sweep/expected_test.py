"""Expected best validation over k trials in the report of a sweep."""

from __future__ import annotations

import csv
import itertools
import math
import types

import pytest

from launch.sweep import expected as curves
from launch.sweep import metrics, report
from tests.launch.sweep.place import DRAW, SPACE

pytest.importorskip('optuna', reason='needs the extra `sweep`')


def curve(place):
  with (place.dir / 'expected.csv').open() as file:
    return [float(row['expected_best']) for row in csv.DictReader(file)]


def expected(values, choose=min):
  """The mean best of all k-tuples of the values, drawn with replacement."""
  n = len(values)
  means = []
  for k in range(1, n + 1):
    bests = [choose(draws) for draws in itertools.product(values, repeat=k)]
    means.append(sum(bests) / len(bests))
  return means


def test_curve_is_the_mean_best_of_all_draws(place, monkeypatch):
  monkeypatch.setattr(report, 'draw', DRAW)
  place.child(steps=2, seconds=0)
  assert place.run(SPACE, '--trials=4', '--sampler=random') == 0
  values = [float(row['loss']) for row in place.table()]
  assert curve(place) == pytest.approx(expected(values))
  text = (place.dir / 'table.md').read_text()
  assert 'Expected best loss of k trials (Dodge et al. 2019), from 4 trials:' in text
  assert f'| 4 | {expected(values)[3]:.6g} | 0.8 s |' in text  # 0.2 seconds each
  assert (place.dir / 'expected.png').stat().st_size > 1000


def row(state, value, rank=0):
  return report.Row(rank, 0, state, value, None, 4, 3.0, {}, '')


def test_curve_of_a_rising_metric_with_pruned_and_failed_trials():
  plan = types.SimpleNamespace(metric=metrics.Metric('accuracy', 'maximize'), sampler='tpe')
  rows = [row('COMPLETE', 0.7, 1), row('COMPLETE', 0.5, 2), row('PRUNED', 0.2), row('PRUNED', None)]
  rows += [row('FAIL', 0.9), row('RUNNING', 0.95), row('COMPLETE', math.inf, 3)]
  found = curves.curve(rows, plan)
  assert found.best == pytest.approx(expected([0.7, 0.5, 0.2], max)) and found.seconds == 3
  assert found.note == (
    'from 3 trials, 1 of them pruned (their last validation), without 1 failed; the estimate assumes random trials, '
    'which those of tpe are not'
  )
  assert curves.curve(rows[:1], plan) is None
