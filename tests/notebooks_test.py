"""Notebooks carry no outputs and nothing of one machine, and run from the first cell to the last (slow)."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.documents_test import check_commands

ROOT = pathlib.Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted(str(p.relative_to(ROOT)) for p in (ROOT / 'notebooks').glob('*.ipynb'))
OURS = ('lmx', 'experiments', 'launch')
OF_TUPLES = {'_replace', '_asdict', '_fields', '_make'}  # public, as the documentation of namedtuple says
ON_A_RUN = ('notebooks/quickstart.ipynb',)  # needs the run of the quickstart


def cells(path: str, kind: str) -> list[str]:
  found = json.loads((ROOT / path).read_text())['cells']
  return [''.join(cell['source']) for cell in found if cell['cell_type'] == kind]


def modules(tree: ast.AST) -> Iterator[tuple[str, str, str]]:
  """(name in the notebook, module, what of it or '') of every import."""
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      for alias in node.names:
        yield alias.asname or alias.name.split('.')[0], alias.name if alias.asname else alias.name.split('.')[0], ''
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0 and node.module, ast.unparse(node)
      for alias in node.names:
        yield alias.asname or alias.name, node.module, alias.name


def imported(module: str, name: str) -> Any:
  """A module of ours, or what a notebook takes from it; AttributeError if there is no such thing."""
  try:
    return importlib.import_module(f'{module}.{name}' if name else module)
  except ModuleNotFoundError:
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize('path', NOTEBOOKS)
def test_output_has_only_the_generated_text(path):
  notebook = json.loads((ROOT / path).read_text())
  assert notebook['metadata'] == {
    'kernelspec': {'display_name': 'Python 3', 'language': 'python', 'name': 'python3'},
    'language_info': {'name': 'python'},
  }
  assert (notebook['nbformat'], notebook['nbformat_minor']) == (4, 5)
  ids = [cell['id'] for cell in notebook['cells']]
  assert len(set(ids)) == len(ids)
  for cell in notebook['cells']:
    assert not cell.get('outputs') and cell.get('execution_count') is None and not cell['metadata'], cell['source']


@pytest.mark.parametrize('path', NOTEBOOKS)
def test_no_absolute_path(path):
  for source in cells(path, 'code'):
    for node in ast.walk(ast.parse(source)):
      if isinstance(node, ast.Constant) and isinstance(node.value, str):
        assert not re.match(r'(/\w|~|[A-Za-z]:\\|file:)', node.value), node.value
  for source in cells(path, 'markdown'):
    assert not re.search(r'(?<![\w.)])(/(home|Users|tmp|root|mnt)/|~/|[A-Z]:\\)', source), source


@pytest.mark.parametrize('path', NOTEBOOKS)
def test_notebook_code_parses_and_uses_public_names(path):
  tree = ast.parse('\n'.join(cells(path, 'code')))
  known: dict[str, Any] = {}
  for local, module, name in modules(tree):
    if module.split('.')[0] not in OURS:
      assert importlib.util.find_spec(module.split('.')[0]), f'{path} imports {module}'
      continue
    assert not any(part.startswith('_') for part in f'{module}.{name}'.split('.')), f'{path} imports {module}.{name}'
    known[local] = imported(module, name)
  assigned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
  assert not assigned & known.keys(), f'{path} puts something else in the place of {assigned & known.keys()}'
  for node in ast.walk(tree):
    if isinstance(node, ast.Attribute):
      assert not node.attr.startswith('_') or node.attr in OF_TUPLES | {'__file__'}, f'{path}: .{node.attr}'
      if isinstance(node.value, ast.Name) and node.value.id in known:
        assert hasattr(known[node.value.id], node.attr), f'{path}: {node.value.id}.{node.attr} does not exist'


@pytest.mark.parametrize('path', NOTEBOOKS)
def test_notebook_states_and_checks_its_result(path):
  first, *_ = cells(path, 'markdown')
  assert first.startswith('# '), first
  if path not in ON_A_RUN:
    found = [node for source in cells(path, 'code') for node in ast.walk(ast.parse(source))]
    assert sum(isinstance(node, ast.Assert) for node in found) >= 3, path
  assert f'](../../{path})' in (ROOT / 'docs/notebooks/index.md').read_text(), f'no page names {path}'


@pytest.mark.parametrize('path', NOTEBOOKS)
def test_commands_parse_and_their_configs_load(path):
  check_commands('\n'.join(cells(path, 'markdown')))


@pytest.mark.slow
@pytest.mark.parametrize('path', NOTEBOOKS)
def test_runs(path, tmp_path, monkeypatch):
  nbformat = pytest.importorskip('nbformat', reason='needs the extra "notebooks"')
  nbclient = pytest.importorskip('nbclient', reason='needs the extra "notebooks"')
  pytest.importorskip('ipykernel', reason='needs the extra "notebooks"')
  monkeypatch.setenv('XLA_FLAGS', '')  # one device, as a reader of the notebook has
  if path in ON_A_RUN:
    train = [sys.executable, '-m', 'lmx.cli.main', 'train', '--config=experiments/rnn_lm/quickstart.py:tiny']
    subprocess.run([*train, f'--workdir={tmp_path / "run"}'], check=True, cwd=ROOT, timeout=300)
    monkeypatch.setenv('LMX_RUN', str(tmp_path / 'run'))
  monkeypatch.setenv('LMX_RUNS', str(tmp_path / 'runs'))
  monkeypatch.setenv('PYTHONPATH', os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')]))
  notebook = nbformat.read(ROOT / path, as_version=4)
  nbclient.NotebookClient(notebook, timeout=500, kernel_name='python3').execute(cwd=str(ROOT))
  printed = [o for cell in notebook.cells for o in cell.get('outputs', [])]
  assert any('image/png' in o.get('data', {}) for o in printed)
