"""Figures of several runs in one table: means and spreads, what is no run, and what should not be put together."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from lmx.cli import main


def put(folder, seed, value, *, name='rte', lr=1e-3, **more):
  folder.mkdir()
  found = {'name': name, 'model': 'bert:base', 'dataset': 'glue/rte', 'split': 'valid', 'metric': 'accuracy',
           'accuracy': value, 'loss': 2 * value, 'seed': seed, **more}  # fmt: skip
  (folder / 'results.json').write_text(json.dumps(found))
  (folder / 'config.json').write_text(json.dumps({'seed': seed, 'optim': {'lr': lr}}))
  return str(folder)


def test_means_and_spreads_of_seeds(tmp_path, capsys):
  values = [0.61, 0.66, 0.58, 0.7]
  runs = [put(tmp_path / f'a{i}', i, value) for i, value in enumerate(values)]
  runs.append(put(tmp_path / 'b', 0, 0.5, name='wnli'))
  assert main.main(['results', *runs, f'--output={tmp_path}/table.json']) == 0
  rows = json.loads((tmp_path / 'table.json').read_text())['rows']
  assert [row['runs'] for row in rows] == [4, 1] and rows[0]['seeds'] == [0, 1, 2, 3]
  assert rows[0]['mean'] == pytest.approx(np.mean(values))
  assert rows[0]['deviation'] == pytest.approx(np.std(values, ddof=1))
  assert rows[0]['error'] == pytest.approx(np.std(values, ddof=1) / math.sqrt(4))
  assert (rows[0]['least'], rows[0]['greatest']) == (0.58, 0.7) and rows[0]['same_config']
  out = capsys.readouterr().out
  assert f'{np.mean(values):.3f}' in out and 'glue/rte/valid' in out and 'differ' not in out
  assert main.main(['results', *runs[:4], '--metric=loss']) == 0
  assert f'{2 * np.mean(values):.3f}' in capsys.readouterr().out


def test_other_configs_and_seeds_twice_are_said(tmp_path, capsys):
  runs = [put(tmp_path / 'a', 0, 0.5), put(tmp_path / 'b', 0, 0.6, lr=1e-2)]
  assert main.main(['results', *runs]) == 0
  out = capsys.readouterr().out
  assert 'same seed' in out and 'differ in more than the seed' in out


def test_what_is_no_finished_run(tmp_path, capsys):
  run = put(tmp_path / 'a', 0, 0.5)
  (tmp_path / 'c').mkdir()
  for arguments, message in (
    ([str(tmp_path / 'c')], 'is the run finished?'),
    ([run, '--metric=accuraci'], 'has no figure "accuraci"; did you mean "accuracy"'),
    ([str(tmp_path / 'a/config.json')], 'has no name, model'),
  ):
    assert main.main(['results', *arguments]) == 2
    assert message in capsys.readouterr().err
