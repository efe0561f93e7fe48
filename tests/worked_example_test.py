"""The model of docs/add_model.md, pasted as it is there, and the same with a gate: the contract, and a training."""

from __future__ import annotations

import importlib
import inspect
import json
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import textwrap

import pytest

import lmx.models
from lmx import train
from lmx.config import resolve
from tests import contract_test, structure_test

LIKE = 'rnn_lm'  # a causal model of tokens: what it is held to, bag is too
GATE = (  # what becomes of the text with a gate of its own, layer_00
  ('  N = 0  # layers between', '  N = 1  # layers between'),
  ('embed_key, head_key = jax.random.split(key)', 'embed_key, head_key, gate_key = jax.random.split(key, 3)'),
  (
    "    'head': {'table'",
    "    'layer_00': {'gate': embedding.table(gate_key, cfg.D, cfg.D, cfg.init_std)},\n    'head': {'table'",
  ),
  (
    '[..., None]).astype(cfg.dtype)\n',
    '[..., None]).astype(cfg.dtype)\n'
    "  gate_DD = params['layer_00']['gate'].astype(cfg.dtype)\n"
    "  h_BTD = h_BTD * jax.nn.sigmoid(jnp.einsum('BTD,DE->BTE', x_BTD, gate_DD))\n",
  ),
)


def pasted(root: pathlib.Path) -> dict[str, str]:
  """The files of the text, by their paths."""
  text = (root / 'docs/add_model.md').read_text()
  found = re.findall(r'`([\w/]+\.py)`:\n\n *```python\n(.*?)^ *```', text, re.S | re.M)
  return {path: textwrap.dedent(source) for path, source in found}


def gated(files: dict[str, str]) -> dict[str, str]:
  """The same with a gate, as another model."""
  model = files['lmx/models/bag.py']
  for old, new in GATE:
    assert model.count(old) == 1, old
    model = model.replace(old, new)
  experiment = files['experiments/bag/quickstart.py'].replace("'name': 'bag'", "'name': 'bag_gated'")
  return {'lmx/models/bag_gated.py': model, 'experiments/bag_gated/quickstart.py': experiment}


@pytest.fixture(scope='module', autouse=True)
def folder(root, tmp_path_factory):
  """Where both are, and `lmx.models` finds them."""
  folder = tmp_path_factory.mktemp('pasted')
  files = pasted(root)
  assert set(files) == {'lmx/models/bag.py', 'experiments/bag/quickstart.py', 'tests/models/bag_test.py'}
  for path, source in {**files, **gated(files)}.items():
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(source)
  lmx.models.__path__.append(str(folder / 'lmx/models'))
  importlib.invalidate_caches()
  yield folder
  lmx.models.__path__.remove(str(folder / 'lmx/models'))
  for name in ('bag', 'bag_gated'):
    sys.modules.pop(f'lmx.models.{name}', None)
    vars(lmx.models).pop(name, None)


def applicable():
  """(test of the contract, its arguments but the model's name) for each that LIKE is held to."""
  found = []
  for name, function in inspect.getmembers(contract_test, inspect.isfunction):
    for mark in getattr(function, 'pytestmark', ()):
      values = mark.args[1] if mark.name == 'parametrize' else ()
      if LIKE in values:
        found.append(pytest.param(function, (), id=name))
      elif any(value[0] == LIKE for value in values if isinstance(value, tuple)):
        found.append(pytest.param(function, ('base',), id=name))
  return found


@pytest.mark.parametrize('name', ['bag', pytest.param('bag_gated', marks=pytest.mark.slow)])
@pytest.mark.parametrize('function, more', applicable())
def test_worked_example_contract(name, function, more):
  function(name, *more)


def test_contract_is_all_there():
  names = [case.id for case in applicable()]
  assert len(names) >= 17 and {'test_overfits_one_batch', 'test_sizes_below_1_are_rejected'} <= set(names)


@pytest.mark.parametrize('name', ['bag', 'bag_gated'])
def test_generated_model_file_form(name, folder, monkeypatch):
  monkeypatch.setattr(structure_test, 'ROOT', folder)
  (folder / 'lmx/objectives').mkdir(exist_ok=True)
  (folder / 'lmx/objectives/causal_lm.py').touch()
  structure_test.test_model_file_has_the_contract(name)


def test_worked_example_test_passes(folder):
  runpy.run_path(str(folder / 'tests/models/bag_test.py'))['test_equals_numpy']()


@pytest.mark.parametrize('name', ['bag', pytest.param('bag_gated', marks=pytest.mark.slow)])
def test_worked_example_trains(name, folder, tmp_path):
  changes = ('train.steps=2', 'train.eval_every=2', 'data.fraction=0.05', 'parallel.data=1', 'samples.tokens=2')
  loaded = resolve.load(f'{folder}/experiments/{name}/quickstart.py:tiny', changes)
  assert loaded.model.V == 0
  assert train.train(loaded, tmp_path) == 0
  found = json.loads((tmp_path / 'results.json').read_text())
  assert found['model'].startswith(name) and found['loss'] < 7


@pytest.mark.slow
def test_commands_of_the_text(root, tmp_path):
  """In a copy of the repository: the line of the table too, and both commands as they are printed."""
  for part in ('lmx', 'experiments', 'launch', 'tests', 'README.md', 'docs', 'setup.cfg', 'constraints.txt'):
    copy = shutil.copytree if (root / part).is_dir() else shutil.copy
    copy(root / part, tmp_path / part)
  for path, source in pasted(root).items():
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(source)
  text = (root / 'docs/add_model.md').read_text()
  table, line = tmp_path / 'experiments/tables/quickstart.py', re.search(r"`('bag': .*)`", text)
  assert line
  changed, count = re.subn(r'(?m)^(_MODELS.* = \{\n)', rf'\1  {line[1]}\n', table.read_text())
  assert count == 1
  table.write_text(changed)
  tests, training = re.findall(r'`((?:pytest|lmx train) [^`]* ?-k bag|lmx train --config=experiments/bag[^`]*)`', text)
  row = 'tests/experiments_test.py::test_rows_of_the_quickstart_table_are_of_the_model_that_they_name'
  for command in (tests, f'pytest {row}', f'{training} --config.parallel.data=1'):
    program, *words = command.split()
    program = {'pytest': ['-m', 'pytest', '-q', '-p', 'no:cacheprovider'], 'lmx': ['-m', 'lmx.cli.main']}[program]
    done = subprocess.run([sys.executable, *program, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
  assert json.loads((tmp_path / 'runs/bag/results.json').read_text())['steps'] == 20
