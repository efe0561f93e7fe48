"""Notebooks carry no outputs, and run from the first cell to the last on a freshly trained run (slow)."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted(str(p.relative_to(ROOT)) for p in (ROOT / 'notebooks').glob('*.ipynb'))


@pytest.mark.parametrize('path', NOTEBOOKS)
def test_outputs_are_stripped(path):
  for cell in json.loads((ROOT / path).read_text())['cells']:
    assert not cell.get('outputs') and cell.get('execution_count') is None, cell['source']


@pytest.mark.slow
@pytest.mark.parametrize('path', NOTEBOOKS)
def test_runs(path, tmp_path, monkeypatch):
  nbformat = pytest.importorskip('nbformat', reason='needs the extra "notebooks"')
  nbclient = pytest.importorskip('nbclient', reason='needs the extra "notebooks"')
  monkeypatch.setenv('XLA_FLAGS', '')  # one device, as a reader of the notebook has
  workdir = tmp_path / 'run'
  train = [sys.executable, '-m', 'lmx.cli.main', 'train', '--config=experiments/rnn_lm/quickstart.py:tiny']
  subprocess.run([*train, f'--workdir={workdir}'], check=True, cwd=ROOT, timeout=300)
  monkeypatch.setenv('LMX_RUN', str(workdir))
  monkeypatch.setenv('PYTHONPATH', os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')]))
  notebook = nbformat.read(ROOT / path, as_version=4)
  nbclient.NotebookClient(notebook, timeout=300, kernel_name='python3').execute(cwd=str(ROOT))
  printed = [o for cell in notebook.cells for o in cell.get('outputs', [])]
  assert any('image/png' in o.get('data', {}) for o in printed)
