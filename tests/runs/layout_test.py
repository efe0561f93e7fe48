"""Runs that store stacked layers and a padded vocabulary: as those that do not, from either's checkpoints."""

from __future__ import annotations

import functools
import json
import shutil

import jax
import numpy as np
import pytest

from lmx import train
from lmx.checkpoint import manager
from lmx.config import resolve
from lmx.engine import sharding
from lmx.errors import InputError
from lmx.runs import init, restore, training
from tests import small_text

BASE = 'experiments/gpt2/quickstart.py:tiny'
OWN = ('parallel.stack_layers=false', 'parallel.data=1')
V = 299  # of the text
STORED = ('parallel.pad_vocabulary=128', 'parallel.fsdp=2', 'parallel.tensor=2', 'parallel.data=1')


@pytest.fixture(scope='module')
def settings(tmp_path_factory):
  words = [f'w{i}' for i in range(50)]
  return (
    *small_text.settings(tmp_path_factory.mktemp('text'), words, lines=200),
    'model.scan=true',
    'model.N=3',
    'optim.layer_decay=0.5',
    'optim.ema=0.5',
    'train.steps=4',
    'train.eval_every=2',
    'checkpoint.every_steps=2',
    'evaluation.baselines=false',
    'samples.count=0',
  )


@pytest.fixture(scope='module')
def run(settings):
  return lambda workdir, *overrides: train.train(resolve.load(BASE, [*settings, *overrides]), workdir)


@pytest.fixture(scope='module')
def finished(run, tmp_path_factory):
  """Work directories of the same run in both layouts."""
  workdirs = {name: tmp_path_factory.mktemp(name) / 'run' for name in ('own', 'stored')}
  assert run(workdirs['own'], *OWN) == run(workdirs['stored'], *STORED) == 0
  return workdirs


def half_way(workdir, tmp_path):
  """Copy of a run as it was after the second of four updates."""
  copy = shutil.copytree(workdir, tmp_path / 'run')
  shutil.rmtree(copy / 'checkpoints' / 'step_000000004')
  (copy / 'results.json').unlink()
  return copy


def arrays(tree):
  return {jax.tree_util.keystr(path): np.asarray(x) for path, x in jax.tree_util.tree_leaves_with_path(tree)}


def saved(workdir):
  return manager.restore_params(workdir / 'checkpoints', None, 'last')[0]


def assert_near(a, b):
  a, b = arrays(a), arrays(b)
  assert a.keys() == b.keys()
  for name in a:
    np.testing.assert_allclose(a[name], b[name], rtol=0, atol=1e-6, err_msg=name)


def test_both_layouts_train_the_same_model(finished):
  own, stored = (restore.load(finished[name], 'last') for name in ('own', 'stored'))
  assert_near(stored.params, own.params)
  assert 'layer_00' in saved(finished['own'])['model']
  model = saved(finished['stored'])['model']
  assert 'layers_00_02' in model and stored.cfg.V == V and len(model['embed']['tokens']) == 384
  losses = [json.loads((finished[name] / 'results.json').read_text())['loss'] for name in finished]
  assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(
  'start,end', [('own', STORED), *(pytest.param('stored', end, marks=pytest.mark.slow) for end in (OWN, STORED))]
)
def test_run_continues_in_either_layout(start, end, finished, run, tmp_path):
  workdir = half_way(finished[start], tmp_path)
  assert run(workdir, *end) == 0
  if end == STORED and start == 'stored':
    expected, found = arrays(saved(finished['stored'])), arrays(saved(workdir))
    assert all(np.array_equal(found[name], x) for name, x in expected.items())
  assert_near(restore.load(workdir, 'last').params, restore.load(finished['own'], 'last').params)


def test_run_of_an_earlier_version_keeps_its_layout(finished, run, tmp_path):
  workdir = half_way(finished['own'], tmp_path)
  config = json.loads((workdir / 'config.json').read_text())
  del config['semantics']['stacked_layers']
  for field in ('stack_layers', 'pad_vocabulary', 'reduce_dtype'):
    del config['parallel'][field]
  (workdir / 'config.json').write_text(json.dumps(config))
  (workdir / 'checksums.json').unlink()
  assert run(workdir, 'parallel.data=1') == 0
  expected, found = arrays(saved(finished['own'])), arrays(saved(workdir))
  assert found.keys() == expected.keys() and all(np.array_equal(found[name], x) for name, x in expected.items())


def test_average_of_checkpoints_is_in_the_models_layout(settings, finished):
  run = resolve.to_run(resolve.load(BASE, [*settings, *OWN]), V)
  shapes = jax.eval_shape(functools.partial(init.init_params, run), jax.random.key(0))
  layout = init.stored_layout(run, shapes)
  own, stored = (restore.average(finished[name] / 'checkpoints', shapes, layout, 2) for name in ('own', 'stored'))
  assert own[1] == stored[1] == (2, 4)
  assert_near(stored[0], own[0])


def test_same_seed_gives_the_same_parameters_in_every_layout(settings):
  found = {}
  for layout in (OWN, STORED, (*STORED[:1], 'parallel.mode=pmap', 'parallel.data=2')):
    run = resolve.to_run(resolve.load(BASE, [*settings, *layout]), V)
    engine = sharding.Engine(run.parallel, jax.devices()[: 4 if 'pmap' not in str(layout) else 2])
    built = training.build_step(run, engine, total_steps=4, steps_per_epoch=4, microbatches=1)
    state = engine.build(built.create, jax.random.key(0))
    found[layout] = arrays(built.layout.view(engine.to_one_device(state.params)))
  for other in found.values():
    assert all(np.array_equal(other[name], x) for name, x in found[OWN].items())


def test_model_without_a_table_of_its_vocabulary_cannot_pad_it():
  run = resolve.to_run(resolve.load('experiments/elmo/quickstart.py:tiny', ['parallel.pad_vocabulary=8']), V)
  with pytest.raises(InputError, match=r'parallel.pad_vocabulary: got 8'):
    init.stored_layout(run, {'model': {'embed': {}}, 'objective': {}})
  with pytest.raises(InputError, match='parallel.pad_vocabulary: got 0'):
    resolve.load(BASE, ['parallel.pad_vocabulary=0'])
