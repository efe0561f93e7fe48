"""The picture of a run's losses: what it shows, and that it can be drawn of next to nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib import image

from lmx.reporting import loss_curve

DRAWS = True  # of tests/conftest.py

RECORDS = [{'step': step, 'split': 'train', 'loss': 10 / step} for step in range(1, 41)]
RECORDS += [{'step': step, 'split': 'valid', 'loss': 5 / step} for step in range(10, 41, 10)]


def test_smoothing():
  x = np.linspace(5, 1, 400)
  noisy = x + np.random.default_rng(0).normal(size=400) * 0.2
  smoothed = loss_curve.smooth(noisy)
  assert smoothed[0] == noisy[0]
  assert np.abs(smoothed - x)[50:].max() < 0.2 and np.abs(smoothed - x)[50:].std() < 0.06
  assert np.mean(smoothed[50:-20] - x[50:-20]) == pytest.approx(0, abs=0.02)  # it does not lag
  assert loss_curve.smooth(np.array([3.0, math.nan, 1.0]))[[0, 2]].tolist() == [3.0, 1.0]
  assert len(loss_curve.smooth(np.zeros(0))) == 0
  spiked = np.where(np.arange(400) == 100, 1e30, x)
  np.testing.assert_allclose(loss_curve.smooth(spiked)[150:], loss_curve.smooth(x)[150:], rtol=1e-12)


@pytest.mark.parametrize(
  'records', [[], [{'step': 1, 'split': 'train', 'loss': math.nan}], [{'step': 3, 'split': 'valid', 'loss': 90.0}]]
)
def test_plot_of_few_points_is_drawn(tmp_path, records):
  loss_curve.draw(records, tmp_path / 'loss.png', {}, '8 tokens')
  assert image.imread(tmp_path / 'loss.png').std() > 0.01


def test_right_axis_is_perplexity_and_only_where_the_loss_is_per_token(tmp_path, monkeypatch):
  texts = []
  monkeypatch.setattr(loss_curve, '_draw_perplexity', lambda axes: texts.append(axes.get_ylabel()))
  base = {'model': 'm', 'dataset': 'd', 'split': 'test'}
  for metric, value in (('masked_perplexity', 2.0), ('perplexity_per_word', math.inf)):
    assert texts == []
    loss_curve.draw(RECORDS, tmp_path / 'loss.png', base | {'metric': metric, metric: value})
  assert texts == ['loss (nats per token)']


def test_plot_marks_where_averaging_starts(tmp_path):
  pictures = {}
  for trigger in (None, 20, 40):  # at 40 the run ended
    results = {'model': 'm', 'dataset': 'd', 'split': 'test', 'metric': 'masked_perplexity', 'masked_perplexity': 2.0}
    loss_curve.draw(RECORDS, tmp_path / 'a.png', results | {'trigger_step': trigger})
    pictures[trigger] = image.imread(tmp_path / 'a.png')
  np.testing.assert_array_equal(pictures[None], pictures[40])
  changed = np.flatnonzero((pictures[None] != pictures[20]).any(axis=(0, 2)))
  assert len(changed) and 0.4 < changed[0] / pictures[20].shape[1] < 0.6


@pytest.mark.parametrize('low, high', [(3.3, 6.9), (3.90, 4.05), (0.01, 14.0), (0.5, 0.52)])
def test_ticks_of_the_right_axis(low, high):
  from matplotlib.figure import Figure

  axes = Figure().add_subplot()
  axes.set_ylim(low, high)
  loss_curve._draw_perplexity(axes)
  (right,) = axes.child_axes
  ticks = right.get_yticks()
  assert 3 <= len(ticks) <= 11
  assert low <= min(ticks) and max(ticks) <= high
  for tick, label in zip(ticks, right.get_yticklabels(), strict=True):
    assert math.exp(tick) == pytest.approx(float(label.get_text().replace(',', '')), rel=2e-3)


@pytest.mark.parametrize('split', ['valid', 'test'])
def test_baselines_are_lines_at_their_validation_losses_and_name_both(split):
  """The curve beside them is of the validation split; a loss of another split is only written."""
  from matplotlib.figure import Figure

  axes = Figure().add_subplot()
  results = {
    'split': split,
    'baselines': {'kneser_ney': {'loss': 4.5, 'order': 5}},
    'validation_baselines': {'kneser_ney': {'loss': 5.25, 'order': 5}},
  }
  loss_curve._draw_results(axes, results['validation_baselines'], results, 40)
  (line,), (text,) = axes.get_lines(), axes.texts
  assert set(line.get_ydata()) == {5.25} and text.xy[1] == 5.25
  assert text.get_text() == 'Kneser-Ney 5-gram: validation 5.250' + (', test 4.500' if split == 'test' else '')


@pytest.mark.parametrize('end', [2.2, 3.3, 4.4, 5.5])
@pytest.mark.parametrize('trigger', [None, 20])
def test_labels_cross_neither_curves_nor_each_other(tmp_path, monkeypatch, end, trigger):
  """The curves end at, above and below the lines of the baselines, whose labels are beside them."""
  from matplotlib.text import Annotation

  axes = []
  arrange = loss_curve._arrange
  monkeypatch.setattr(loss_curve, '_arrange', lambda one: axes.append(one) or arrange(one))
  losses = {'kneser_ney': {'loss': 4.4, 'order': 5}, 'unigram': {'loss': 4.7}, 'mixture': {'loss': 3.0}}
  results = {
    **{'model': 'm', 'dataset': 'd', 'split': 'test', 'metric': 'perplexity_per_word', 'perplexity_per_word': 90.0},
    **{'baselines': losses, 'validation_baselines': losses, 'trigger_step': trigger},
  }
  records = [
    {'step': step, 'split': split, 'loss': end + gap + 4 / (1 + step / 40)}
    for split, every, gap in (('train', 1, -0.1), ('valid', 40, 0.0))
    for step in range(every, 401, every)
  ]
  loss_curve.draw(records, tmp_path / 'loss.png', results)
  labels = [text for text in axes[0].texts if isinstance(text, Annotation)]
  assert len(labels) == 3 + (trigger is not None)  # of both baselines, which the mixture is not, and the best loss
  boxes = [label.get_window_extent() for label in labels]
  assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
  smooth = [line for line in axes[0].get_lines() if line.get_alpha() is None]
  curves = [line.get_transform().transform(line.get_xydata()) for line in smooth]
  assert len(curves) == 4 + (trigger is not None)
  for label, box in zip(labels, boxes, strict=True):
    assert axes[0].bbox.y0 <= box.y0 and box.y1 <= axes[0].bbox.y1
    for curve in curves:
      fine = np.stack([np.interp(np.linspace(0, 1, 5000), np.linspace(0, 1, len(curve)), x) for x in curve.T], 1)
      assert not box.count_contains(fine), label.get_text()
