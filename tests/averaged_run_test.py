"""A run with NT-ASGD: its trigger, what is measured, the second run from its best, and going on after a stop."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

from lmx import train
from lmx.checkpoint import manager
from lmx.config import resolve
from lmx.data import pipeline
from lmx.engine import sharding
from lmx.evaluation import report
from lmx.reporting import run_log
from lmx.runs.restore import load
from tests import small_text

BASE = 'experiments/awd_lstm/quickstart.py:tiny'
# An unsteady rate, so that the validation loss rises soon; one shape for all windows, one compilation.
QUICK = (
  'parallel.data=1',
  'evaluation.baselines=false',
  'evaluation.cache=()',
  'samples.count=0',
  'train.steps=12',
  'train.eval_every=2',
  'train.log_every=1',
  'data.vocab_size=300',
  'data.batching.length_multiple=0',
  'optim.lr=60',
  'optim.nonmono=0',
  'evaluation.which=last',
  'data.eval_batch_size=64',
  'evaluation.batch_size=64',
)


@pytest.fixture(scope='module')
def quick(tmp_path_factory):
  """Settings of a small run."""
  return [*QUICK, *small_text.settings(tmp_path_factory.mktemp('text'), lines=480)]


@pytest.fixture(scope='module')
def run(quick):
  return lambda workdir, *overrides: train.train(resolve.load(BASE, [*quick, *overrides]), workdir)


def saved(workdir, tree):
  found, meta, step = manager.restore_params(workdir / 'checkpoints', None, 'last', tree=tree)
  return jax.tree.map(np.asarray, found), meta['progress'], step


def leaves(tree):
  return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def test_averaging_starts_at_the_trigger_and_is_evaluated(run, tmp_path):
  assert run(tmp_path) == 0
  written = json.loads((tmp_path / 'results.json').read_text())
  valid = [r for r in run_log.read_metrics(tmp_path) if r['split'] == 'valid']
  losses = [r['loss'] for r in valid]
  first = next(k for k in range(1, len(losses)) if losses[k] > min(losses[:k]))
  average, progress, step = saved(tmp_path, 'ema')
  assert written['trigger_step'] == progress['trigger'] == valid[first]['step'] < 12
  assert progress['losses'] == losses[: first + 1]
  assert [r['averaged'] for r in valid] == [0.0] * (first + 1) + [1.0] * (len(valid) - first - 1)
  assert bool(average['begun']) and int(average['updates']) == step - progress['trigger'] > 1
  params, _, _ = saved(tmp_path, 'params')
  assert np.abs(leaves(average['mean']) - leaves(params)).max() > 1e-3
  restored = load(tmp_path, 'last')
  np.testing.assert_array_equal(leaves(restored.params), leaves(average['mean']))
  # What is in results.json is the loss of the mean: the same from the restored run.
  found = report.evaluate_restored(restored, 'test').metrics
  assert found['loss'] == pytest.approx(written['loss'], rel=1e-5)


def test_without_trigger_average_equals_parameters(run, tmp_path):
  assert run(tmp_path, 'optim.nonmono=100', 'train.steps=4') == 0
  average, progress, _ = saved(tmp_path, 'ema')
  np.testing.assert_array_equal(leaves(average['mean']), leaves(saved(tmp_path, 'params')[0]))
  assert progress['trigger'] is None and len(progress['losses']) == 2
  assert json.loads((tmp_path / 'results.json').read_text())['trigger_step'] is None


@pytest.mark.slow
def test_run_stopped_before_and_after_the_trigger_continues_bit_equal(run, tmp_path, monkeypatch):
  assert run(tmp_path / 'whole') == 0
  trigger = saved(tmp_path / 'whole', 'ema')[1]['trigger']
  for stop in (trigger, trigger + 1):
    with monkeypatch.context() as patch:
      patch.setattr(train.Stop, 'requested', lambda self, done, stop=stop: done >= stop)
      assert run(tmp_path / 'parts') == 75
    assert saved(tmp_path / 'parts', 'params')[2] == stop
  assert run(tmp_path / 'parts') == 0
  for tree in ('params', 'ema'):
    (whole, progress, _), (parts, same, _) = saved(tmp_path / 'whole', tree), saved(tmp_path / 'parts', tree)
    np.testing.assert_array_equal(leaves(whole), leaves(parts))
    assert {**progress, 'seconds': 0} == {**same, 'seconds': 0}


@pytest.mark.slow
def test_fine_tuning_starts_from_the_mean_and_ends_at_the_trigger(run, tmp_path):
  assert run(tmp_path / 'first', 'train.steps=6') == 0
  start = load(tmp_path / 'first').params
  tuned = ('optim.asgd=start', f'train.init_from={tmp_path / "first"}')
  assert run(tmp_path / 'still', *tuned, 'optim.lr=1e-30', 'train.steps=2') == 0
  np.testing.assert_allclose(leaves(load(tmp_path / 'still').params), leaves(start), rtol=1e-6)
  assert run(tmp_path / 'tuned', *tuned, 'optim.lr=200', 'train.steps=40') == 0
  results = json.loads((tmp_path / 'tuned' / 'results.json').read_text())
  average, progress, step = saved(tmp_path / 'tuned', 'ema')
  assert results['trigger_step'] == progress['trigger'] == step < 40  # the run has ended there
  assert int(average['updates']) == step


def test_validation_once_per_epoch_follows_epochs_of_different_lengths(quick, tmp_path):
  epochs = ('train.eval_every=0', 'train.steps=0', 'train.epochs=2.5')
  run_config = resolve.to_run(resolve.load(BASE, [*quick, *epochs]), 300)
  corpus = pipeline.load(run_config.data)
  session = train.Session(run_config, corpus, sharding.Engine(run_config.parallel), tmp_path, '')
  ends = [session.batches.steps_in(e) for e in (1, 2, 2.5)]
  assert ends[1] != 2 * ends[0] and session.total_steps == ends[2]
  validated = []
  for session.done in range(1, ends[2] + 1):
    validated += [session.done] if session._is_validation_due() else []
  assert validated == ends
