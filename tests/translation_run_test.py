"""A run on pairs in batches by tokens, whose rows differ: the same on one device and on two, and measured whole."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

from lmx import train
from lmx.checkpoint import manager
from lmx.config import resolve
from lmx.data import pipeline
from lmx.reporting import run_log
from lmx.runs import restore
from tests import small_text

BASE = {
  'model': {'name': 'transformer', 'variant': 'tiny', 'encoder_layers': 1, 'decoder_layers': 1, 'dropout': 0.0},
  'data': {
    'tokenizer': 'words',
    'length': 12,
    'batching': {'name': 'translation', 'tokens': 192, 'buckets': (8,)},
  },
  'optim': {'optimizer': 'sgd', 'lr': 0.5},
  'train': {'steps': 6, 'eval_every': 6, 'log_every': 1},
  'evaluation': {'split': 'valid'},
  'samples': {'count': 0},
}


@pytest.fixture(scope='module')
def numbers(tmp_path_factory):
  return small_text.numbers(tmp_path_factory.mktemp('numbers'), train=400, held_out=30)


@pytest.mark.slow
def test_rows_that_differ_are_divided_among_devices(numbers, tmp_path):
  found, losses, figures = {}, {}, {}
  for name, overrides in (('one', ['parallel.data=1']), ('two', ['parallel.mode=pmap', 'parallel.data=2'])):
    assert train.train(resolve.resolve(BASE, [*numbers, *overrides]), tmp_path / name) == 0
    run = restore.load(tmp_path / name, 'last')
    found[name] = np.concatenate([np.ravel(x) for x in jax.tree.leaves(run.params)])
    losses[name] = [r['loss'] for r in run_log.read_metrics(tmp_path / name) if r['split'] == 'train']
    figures[name] = json.loads((tmp_path / name / 'results.json').read_text())
  np.testing.assert_allclose(found['two'], found['one'], atol=1e-5)
  assert losses['two'] == pytest.approx(losses['one'], rel=1e-4) and losses['one'][-1] < losses['one'][0]
  assert figures['two']['loss'] == pytest.approx(figures['one']['loss'], rel=1e-5)
  split = pipeline.load(run.run.data).splits['valid']
  tokens = int(np.diff(split.offsets)[1::2].sum())  # of the targets, the end of each among them
  assert figures['two']['tokens_counted'] == figures['one']['tokens_counted'] == tokens > 30


@pytest.mark.slow
def test_validation_can_use_the_smoothed_loss(numbers, tmp_path):
  smoothed = ['objective.smoothing=0.3', 'objective.validation=smoothed', 'train.eval_every=2', 'parallel.data=1']
  assert train.train(resolve.resolve(BASE, [*numbers, *smoothed]), tmp_path) == 0
  looks = [record for record in run_log.read_metrics(tmp_path) if record['split'] == 'valid']
  lowest = min(look['smoothed_loss'] for look in looks)
  assert len(looks) == 3 and lowest > min(look['loss'] for look in looks)
  meta = manager.read_meta(tmp_path / 'checkpoints', 'last')
  assert meta['progress']['best'] == pytest.approx(lowest, rel=1e-6)
  results = json.loads((tmp_path / 'results.json').read_text())
  assert results['smoothed_loss'] == pytest.approx(lowest, rel=1e-6)  # of the best checkpoint
