"""A work directory of an earlier lmx evaluates, generates and resumes to the numbers that the lmx of its time gave.

`fixtures/gpt2_words` is a run of GPT-2 (2 layers of width 16, words of 4 kB of text), stopped after 20 of 30 updates by
the code of commit 95826bf. `expected.json` has what that code then made of it: the metrics of `lmx evaluate`, the texts
of `lmx generate`, and, after `lmx train` has finished it, the results and the sum of |parameter| by path.
"""

from __future__ import annotations

import json
import pathlib
import shutil

import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from lmx.checkpoint import manager
from lmx.cli import main as cli
from lmx.evaluation import report
from lmx.runs import restore

FIXTURE = pathlib.Path(__file__).parent / 'fixtures' / 'gpt2_words'
EXPECTED = json.loads((FIXTURE / 'expected.json').read_text())


@pytest.fixture
def workdir(tmp_path, monkeypatch) -> pathlib.Path:
  """The run, with its text where its config names it: in the current directory."""
  shutil.copytree(FIXTURE / 'text', tmp_path / 'text')
  shutil.unpack_archive(FIXTURE / 'run.zip', tmp_path / 'run')
  monkeypatch.chdir(tmp_path)
  return tmp_path / 'run'


def assert_same(found, expected, name: str = '') -> None:
  """Compare JSON values, numbers to a relative 2e-5: compilers round differently."""
  if isinstance(expected, dict):
    assert found.keys() == expected.keys(), name
    for key in expected:
      assert_same(found[key], expected[key], f'{name}/{key}')
  elif isinstance(expected, float):
    assert found == pytest.approx(expected, rel=2e-5), name
  else:
    assert found == expected, name


def test_old_run_evaluates_to_the_same_metrics(workdir):
  assert cli.main(['evaluate', f'--workdir={workdir}', '--split=test', '--which=last', '--output=found.json']) == 0
  found = json.loads(pathlib.Path('found.json').read_text())
  assert found['baselines'].pop('mixture')['loss'] > 0  # a later baseline
  assert (found.pop('words_counted'), found.pop('word_rule')) == (166, 'tokens')  # later keys
  assert_same(found, EXPECTED['evaluate'])


@pytest.mark.parametrize('kind, option', [('greedy', '--greedy'), ('sampled', '--seed=1')])
def test_old_run_generates_the_same_text(workdir, capsys, kind, option):
  prompt = ['--prompt=three and four are', '--tokens=16', option]
  assert cli.main(['generate', f'--workdir={workdir}', '--which=last', *prompt]) == 0
  assert capsys.readouterr().out == EXPECTED[kind]


def test_old_run_resumes_to_the_same_parameters(workdir, tmp_path_factory, monkeypatch):
  assert cli.main(['train', f'--config={workdir}/config.json', f'--workdir={workdir}']) == 0
  results = json.loads((workdir / 'results.json').read_text())
  assert_same({name: results[name] for name in EXPECTED['resume']}, EXPECTED['resume'])
  params, _, step = manager.restore_params(workdir / 'checkpoints', None, 'last')
  assert step == 30
  leaves = {'/'.join(path): np.asarray(leaf, np.float64) for path, leaf in flatten_dict(params).items()}
  found = {path: [list(leaf.shape), float(np.abs(leaf).sum())] for path, leaf in leaves.items()}
  assert found.keys() == EXPECTED['parameters'].keys()
  for path, (shape, size) in EXPECTED['parameters'].items():
    assert found[path] == [shape, pytest.approx(size, rel=2e-5)], path
  monkeypatch.chdir(tmp_path_factory.mktemp('elsewhere'))  # its text is named by a relative path
  later = report.evaluate_restored(restore.load(workdir), 'test').metrics  # by the code that wrote the results
  assert {**results, **later} == results
