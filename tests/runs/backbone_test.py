"""A file of torchvision's ResNet in train.init_from: the backbone of a run, and settings that do not fit it."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from safetensors.numpy import save_file

from lmx.errors import InputError
from lmx.interop import torchvision
from lmx.models import cfnet, registry
from lmx.runs import backbone, start
from tests import untrained

CFG = registry.config('cfnet', 'tiny', blocks=(1, 1), widths=(4, 6))


def run_with(path, cfg=CFG, parts=()):
  settings = f'train.init_from={path}', f'train.init_parts={parts}'
  return dataclasses.replace(untrained.load('experiments/cfnet/quickstart.py:tiny', *settings).run, model=cfg)


def shapes_of(cfg=CFG):
  return {'model': jax.eval_shape(lambda: cfnet.init(cfg, jax.random.key(0))), 'objective': {}}


@pytest.fixture
def path(tmp_path):
  rng, tensors = np.random.default_rng(0), {'fc.weight': np.zeros((3, 3), np.float32)}
  shapes = {'/'.join(leaf): x.shape for leaf, x in flatten_dict(shapes_of()['model']).items()}
  shapes = {leaf: shape for leaf, shape in shapes.items() if leaf.startswith(('stem', 'layer'))}
  for leaf, shape in shapes.items():
    order = (3, 2, 0, 1) if len(shape) == 4 else (0,)
    x = np.ascontiguousarray(rng.standard_normal(shape).astype(np.float32).transpose(order))
    tensors[torchvision._name(leaf, shapes)] = np.abs(x) if leaf.endswith('variance') else x
  save_file(tensors, tmp_path / 'resnet.safetensors')
  return tmp_path / 'resnet.safetensors'


def test_backbone_is_loaded_without_the_head(path):
  taken, note = backbone.take(run_with(path), shapes_of())
  assert {*taken} == {'model'} and {*taken['model']} == {'stem', 'layer_00', 'layer_01'}
  for name, part in taken['model'].items():
    assert jax.tree.map(np.shape, part) == jax.tree.map(np.shape, shapes_of()['model'][name])
  count, total = len(jax.tree.leaves(taken)), len(jax.tree.leaves(shapes_of()))
  assert f'{count} of {total} arrays taken, the heads are newly initialised; not read: fc' in note


@pytest.mark.parametrize(
  ('changes', 'parts', 'message'),
  [
    ({}, ('model',), 'train.init_parts: got model'),
    ({'norm': 'group'}, (), 'train.init_from: got'),
    ({'blocks': (1, 2)}, (), 'got no tensor "layer2.1.conv1.weight"'),
    ({'blocks': (1,) * 3, 'widths': (4, 6, 6)}, (), 'got no tensor "layer3.0'),
    ({'stem': 'deep'}, (), 'got no tensor "conv1.0.weight"'),
    ({'widths': (4, 8)}, (), 'tensor "layer2.0.conv1.weight": got shape'),
  ],
)
def test_settings_that_do_not_fit_the_file_are_rejected(changes, parts, message, path):
  cfg = dataclasses.replace(CFG, **changes)
  with pytest.raises(InputError, match=message):
    backbone.take(run_with(path, cfg, parts), shapes_of(cfg))


def test_file_is_a_backbone_only_for_models_of_images(path):
  words = untrained.load('experiments/gpt2/quickstart.py:tiny', f'train.init_from={path}').run
  assert (start._source(run_with(path)), start._source(words)) == ('backbone', 'word_table')


def test_run_starts_from_the_file(path):
  run = run_with(path)
  taken, notes = start.take(run, shapes_of(), None, None)
  assert notes == [backbone.take(run, shapes_of())[1]] and taken['model'].keys() >= {'stem', 'layer_00'}
