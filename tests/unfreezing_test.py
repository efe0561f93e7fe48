"""A classifier with gradual unfreezing as a whole run: stopped in the middle of stages it ends as if never stopped."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

from experiments.ulmfit import classifier
from lmx import train
from lmx.checkpoint import manager
from lmx.config import resolve

CONFIG = 'experiments/ulmfit/quickstart.py:tiny'
OPTIONS = (
  'train.steps=8',
  'train.eval_every=8',
  'train.log_every=1',
  'data.fraction=0.2',
  'data.batching.buckets=()',
  'data.length=24',
  'optim.unfreeze_every=0.02',
  'optim.weight_decay=0.01',
  'parallel.data=1',
  'samples.count=0',
  'evaluation.split=valid',
  'evaluation.baselines=false',
  'checkpoint.every_steps=1',
  'checkpoint.keep_last=100',
  'objective.dropout_pooled=0.3',
  *(f'model.dropout_{part}=0.0' for part in ('input', 'hidden', 'output', 'embedding', 'weight')),
)
STAGE = 2  # updates of a stage: 0.02 epochs of 107 batches


def run(workdir, stops=(), monkeypatch=None):
  """Trains to the end, stopped after each of `stops` updates and started again."""
  for stop in (*stops, 0):
    if monkeypatch is not None:
      monkeypatch.setattr(train.Stop, 'requested', lambda self, done, stop=stop: done == stop)
    assert train.train(resolve.load(CONFIG, OPTIONS), workdir) == (75 if stop else 0)


def at(workdir, step):
  found, _, _ = manager.restore_params(workdir / 'checkpoints', None, step)
  return jax.tree.map(np.asarray, found)


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """A run that was never stopped."""
  directory = tmp_path_factory.mktemp('whole')
  run(directory)
  return directory


@pytest.mark.slow
def test_run_stopped_twice_is_bit_equal(whole, tmp_path, monkeypatch):
  run(tmp_path / 'run', (3, 7), monkeypatch)
  jax.tree.map(np.testing.assert_array_equal, at(tmp_path / 'run', 8), at(whole, 8))


def test_layers_join_one_after_another(whole):
  params = {step: at(whole, step) for step in range(1, 9)}
  first = {'layer_01': STAGE, 'layer_00': 2 * STAGE, 'embed': 3 * STAGE}
  for part, begin in first.items():
    for a, b in itertools.pairwise(params):
      before, after = (jax.tree.leaves(params[step]['model'][part]) for step in (a, b))
      same = all(x.tobytes() == y.tobytes() for x, y in zip(before, after, strict=True))
      assert same == (b <= begin), (part, a, b)
  head = lambda step: params[step]['objective']['block_0']
  assert not np.array_equal(head(1)['kernel'], head(3)['kernel'])
  assert not np.array_equal(head(1)['norm']['mean'], head(3)['norm']['mean'])


def test_paper_s_recipe_ends_with_epochs_of_all_layers():
  """Howard and Ruder 2018, section 3.3: the groups are the head, the layers and the embeddings."""
  for variant in set(classifier.VARIANTS) - {'tiny'}:
    cfg = classifier.get_config(variant)
    assert cfg.train.epochs > (1 + cfg.model.N) * cfg.optim.unfreeze_every, variant
