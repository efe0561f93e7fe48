"""Metrics of a run, from its work directory."""

from __future__ import annotations

import json

import pytest

from launch.sweep.metrics import (
  Measurement,
  Metric,
  file_version,
  has_ended,
  measure,
  progress,
  read_records,
)
from lmx.errors import InputError
from lmx.records import read_setting

pytest.importorskip('optuna', reason='needs the extra `sweep`')


def test_metric_has_a_direction():
  assert Metric.parse('perplexity_per_word') == Metric('perplexity_per_word', 'minimize')
  assert Metric.parse('accuracy') == Metric('accuracy', 'maximize')
  assert Metric.parse('results.bleu') == Metric('bleu', 'maximize', True)
  assert Metric.parse('reward:max') == Metric('reward', 'maximize')
  for text in ('reward', 'loss:up', ':min'):
    with pytest.raises(InputError, match=':min or :max'):
      Metric.parse(text)


def test_metric_matches_the_parameters_that_a_run_measures(tmp_path):
  looks = [(2, 3.0, 0.5), (4, 'NaN', 'NaN'), (6, 2.0, 0.6), (8, 2.5, 0.7)]
  lines = [{'step': s, 'split': 'valid', 'loss': loss, 'accuracy': a, 'seconds': 10.0 * s} for s, loss, a in looks]
  lines.append({'step': 9, 'split': 'train', 'loss': 0.1, 'seconds': 91.0})
  (tmp_path / 'metrics.jsonl').write_text('\n'.join(map(json.dumps, lines)) + '\n{"step": 10, "spl')
  accuracy = Metric.parse('accuracy')
  assert measure(tmp_path, Metric.parse('loss')) == Measurement(2.0, 6, 9, 91.0)
  assert measure(tmp_path, accuracy).value == 0.6
  (tmp_path / 'config.json').write_text('{"evaluation": {"which": "last"}}')
  assert measure(tmp_path, accuracy).value == 0.7
  for name in ('accuracy', 'headline'):
    (tmp_path / 'config.json').write_text(json.dumps({'train': {'best_by': name}}))
    (tmp_path / 'results.json').write_text('{"metric": "accuracy"}')
    assert measure(tmp_path, Metric.parse('loss')).step == 8  # accuracy 0.7
  with pytest.raises(InputError, match='no metric "bleu".*accuracy, loss'):
    measure(tmp_path, Metric.parse('bleu'))
  (tmp_path / 'results.json').write_text('{"bleu": 17.5}')
  assert measure(tmp_path, Metric.parse('results.bleu')).value == 17.5


def test_headline_without_a_validation_matches_the_evaluated_step(tmp_path):
  records = [{'step': step, 'split': 'valid', 'loss': loss} for step, loss in ((2, 3.0), (4, 1.0), (6, 2.0))]
  (tmp_path / 'metrics.jsonl').write_text(''.join(json.dumps(record) + '\n' for record in records))
  (tmp_path / 'config.json').write_text(json.dumps({'train': {'best_by': 'headline'}}))
  (tmp_path / 'results.json').write_text(json.dumps({'metric': 'bleu', 'bleu': 20.0, 'step': 4}))
  assert measure(tmp_path, Metric.parse('loss'))[:2] == (1.0, 4)


def test_progress_of_a_run(tmp_path):
  assert progress(tmp_path) == 'begins'
  lines = [{'step': 5, 'split': 'valid', 'loss': 3.0}, {'step': 1200, 'split': 'train', 'loss': 2.5}]
  (tmp_path / 'metrics.jsonl').write_text('\n'.join(map(json.dumps, lines)) + '\n{"step": 1300, "spl')
  assert progress(tmp_path) == 'step 1,200, train 2.5, valid 3'
  (tmp_path / 'config.json').write_text('{"train": {"steps": 2400}}')
  assert progress(tmp_path) == 'step 1,200 of 2,400, train 2.5, valid 3'


def test_run_on_a_bucket_is_followed(bucket):
  assert file_version(bucket / 'metrics.jsonl') is None and not has_ended(bucket)
  assert read_records(bucket) == [] and read_setting(bucket, 'train', 'steps') is None
  lines = [json.dumps({'step': step, 'split': 'valid', 'loss': 3.0 - step, 'seconds': 1.0}) for step in (1, 2)]
  (bucket / 'metrics.jsonl').write_text(lines[0] + '\n')
  before = file_version(bucket / 'metrics.jsonl')
  (bucket / 'metrics.jsonl').write_text('\n'.join(lines) + '\n')
  assert before is not None and file_version(bucket / 'metrics.jsonl') != before
  (bucket / 'config.json').write_text('{"train": {"steps": 2}}')
  (bucket / 'results.json').write_text('{}')
  assert has_ended(bucket) and read_setting(bucket, 'train', 'steps') == 2
  assert measure(bucket, Metric.parse('loss')) == Measurement(1.0, 2, 2, 1.0)
