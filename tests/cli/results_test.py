"""Metrics of several runs in one table: means and spreads over seeds, and never over other settings or data."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import scipy.stats

from lmx.cli import main


def put(folder, seed, value, *, name='rte', lr=1e-3, config=None, **more):
  folder.mkdir(parents=True)
  found = {
    'name': name,
    'model': 'bert:base',
    'dataset': 'glue/rte',
    'split': 'valid',
    'metric': 'accuracy',
    'accuracy': value,
    'loss': 2 * value,
    'seed': seed,
    'data_hash': 'a' * 64,
    **more,
  }
  (folder / 'results.json').write_text(json.dumps(found))
  (folder / 'config.json').write_text(json.dumps({'seed': seed, 'optim': {'lr': lr}, **(config or {})}))
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
  low, high = scipy.stats.t.interval(0.95, 3, np.mean(values), scipy.stats.sem(values))
  assert (rows[0]['interval']['low'], rows[0]['interval']['high']) == pytest.approx((low, high))
  assert (rows[0]['interval']['n'], rows[0]['interval']['method']) == (4, 't') and rows[1]['interval'] is None
  assert (rows[0]['least'], rows[0]['greatest']) == (0.58, 0.7) and not rows[0]['differing']
  out = capsys.readouterr().out
  assert f'{np.mean(values):.3f} {low:.3f} to {high:.3f}' in out and 'glue/rte/valid' in out and 'differ' not in out
  assert main.main(['results', *runs[:4], '--metric=loss']) == 0
  assert f'{2 * np.mean(values):.3f}' in capsys.readouterr().out


def test_single_run_has_its_bootstrap_interval(tmp_path, capsys):
  more = {'interval': [0.44, 0.56], 'rows': {'kind': 'classification', 'count': 277}}
  run = put(tmp_path / 'a', 0, 0.5, **more)
  expected = {'low': 0.44, 'high': 0.56, 'n': 277, 'method': 'bootstrap'}
  assert rows_of(tmp_path, run)[0]['interval'] == expected and '0.440 to 0.560' in capsys.readouterr().out
  assert main.main(['results', run, '--metric=loss']) == 0
  assert '0.440' not in capsys.readouterr().out
  rows = rows_of(tmp_path, run, put(tmp_path / 'b', 1, 0.6, **more))
  assert rows[0]['interval']['method'] == 't'


def test_uncharged_unknown_words_are_named_beside_the_value(tmp_path, capsys):
  run = put(tmp_path / 'a', 0, 0.5, metric='bits_per_byte', bits_per_byte=2.0, unknown_words=7)
  assert rows_of(tmp_path, run)[0]['uncharged'] == '7 unknown words not charged'
  assert capsys.readouterr().out.splitlines()[1].endswith('bert:base, glue/rte/valid, 7 unknown words not charged')
  assert rows_of(tmp_path, run, '--metric=loss')[0]['uncharged'] == ''


def test_f1_names_its_class(tmp_path, capsys):
  runs = [put(tmp_path / f'a{i}', i, 0.5, metric='f1', f1=0.25, positive='duplicate') for i in range(2)]
  assert rows_of(tmp_path, *runs)[0]['positive'] == 'duplicate'
  assert ' f1 of duplicate ' in capsys.readouterr().out


def test_correlation_with_constant_predictions_is_shown_as_nan(tmp_path, capsys):
  runs = [put(tmp_path / 'a', 0, 'NaN'), put(tmp_path / 'b', 1, 'Infinity'), put(tmp_path / 'c', 2, 0.5)]
  for some in (runs[:1], runs):
    assert main.main(['results', *some]) == 0
    assert 'nan' in capsys.readouterr().out


def rows_of(tmp_path, *runs):
  assert main.main(['results', *runs, f'--output={tmp_path}/table.json']) == 0
  return json.loads((tmp_path / 'table.json').read_text())['rows']


def test_different_settings_are_separate_rows(tmp_path, capsys):
  runs = [put(tmp_path / 'a0', 0, 0.5), put(tmp_path / 'a1', 1, 0.7), put(tmp_path / 'b', 0, 0.9, lr=1e-2)]
  rows = rows_of(tmp_path, *runs)
  assert [(row['runs'], row['mean'], row['workdirs']) for row in rows] == [
    (2, pytest.approx(0.6), runs[:2]),
    (1, 0.9, runs[2:]),
  ]
  out = capsys.readouterr().out
  assert f'{runs[0]}, {runs[1]}: optim.lr=0.001\n' in out and f'{runs[2]}: optim.lr=0.01\n' in out
  assert rows_of(tmp_path, runs[0], put(tmp_path / 'c', 0, 0.5))[0]['same_seed']
  assert 'same seed' in capsys.readouterr().out


def test_different_data_is_a_separate_row(tmp_path, capsys):
  """Two tables of the user's have one name, data set and config."""
  runs = [put(tmp_path / 'news', 0, 0.901), put(tmp_path / 'sick', 1, 0.801, data_hash='b' * 64)]
  assert [row['mean'] for row in rows_of(tmp_path, *runs)] == [0.901, 0.801]
  assert f'{runs[0]}: data aaaaaaaa\n' in (out := capsys.readouterr().out) and f'{runs[1]}: data bbbbbbbb\n' in out


def test_other_protocol_or_unknown_config_is_a_separate_row(tmp_path):
  runs = [put(tmp_path / 'a', 0, 0.5, protocol='batch 1'), put(tmp_path / 'b', 1, 0.6, protocol='batch 2')]
  for i in range(2):
    runs.append(put(tmp_path / f'c{i}', i, 0.7))
    (tmp_path / f'c{i}/config.json').unlink()
  assert [row['runs'] for row in rows_of(tmp_path, *runs)] == [1, 1, 1, 1]


def test_model_names_do_not_split_groups(tmp_path):
  runs = [put(tmp_path / 'a', 0, 0.5), put(tmp_path / 'b', 1, 0.6, model='bert 12x768, 109.5M')]
  assert [row['runs'] for row in rows_of(tmp_path, *runs)] == [2]


@pytest.mark.parametrize('which, count', [('average', 2), ('best', 1)])
def test_checkpoint_spacing_separates_averaged_runs(tmp_path, which, count):
  configs = [{'evaluation': {'which': which}, 'checkpoint': {'every_steps': every}} for every in (600, 1500)]
  runs = [put(tmp_path / str(i), 0, 0.5, config=config) for i, config in enumerate(configs)]
  assert len(rows_of(tmp_path, *runs)) == count


def test_keys_without_effect_do_not_split_groups(tmp_path):
  configs = [{'parallel': {'fsdp': n}, 'data': {'manual_dir': f'd{n}'}, 'train': {'log_every': n}} for n in range(2)]
  assert rows_of(tmp_path, *(put(tmp_path / f'a{i}', i, 0.5, config=c) for i, c in enumerate(configs)))[0]['runs'] == 2


def test_fine_tuned_pretraining_seeds_are_one_row(tmp_path):
  def fine_tuning(name, start):
    return put(tmp_path / name, len(list(tmp_path.iterdir())), 0.5, config={'train': {'init_from': str(start)}})

  for i in range(2):
    put(tmp_path / f'lm{i}', i, 0.1, name='lm')
  put(tmp_path / 'other', 0, 0.1, name='lm', lr=1e-2)
  runs = [fine_tuning(f'task{i}', tmp_path / f'lm{i}') for i in range(2)] + [fine_tuning('task2', tmp_path / 'other')]
  runs += [fine_tuning('task3', tmp_path / 'imported'), fine_tuning('task4', tmp_path / 'task4')]
  assert [row['runs'] for row in rows_of(tmp_path, *runs)] == [2, 1, 1, 1]


def test_unfinished_runs_are_rejected(tmp_path, capsys):
  run = put(tmp_path / 'a', 0, 0.5)
  (tmp_path / 'c').mkdir()
  for arguments, message in (
    ([str(tmp_path / 'c')], 'results.json: missing'),
    ([run, '--metric=accuraci'], '--metric: got "accuraci"'),
    ([str(tmp_path / 'a/config.json')], 'no field "name"'),
  ):
    assert main.main(['results', *arguments]) == 2
    assert message in capsys.readouterr().err


def curve(folder, values, every=10):
  records = [{'step': every * i, 'split': 'valid', 'accuracy': value} for i, value in enumerate(values, 1)]
  records.insert(1, {'step': 5, 'split': 'train', 'loss': 1.0})
  (folder / 'metrics.jsonl').write_text(''.join(json.dumps(record) + '\n' for record in records))


def test_seeds_are_plotted_as_one_curve_with_a_band(tmp_path, monkeypatch):
  from matplotlib.axes import Axes

  drawn, bands = {}, []
  plot, fill = Axes.plot, Axes.fill_between
  monkeypatch.setattr(
    Axes,
    'plot',
    lambda self, x, y, **more: (drawn.update({more['label']: (list(x), list(y))}), plot(self, x, y, **more))[1],
  )
  monkeypatch.setattr(
    Axes,
    'fill_between',
    lambda self, x, low, high, **more: (
      bands.append((list(x), list(low), list(high))),
      fill(self, x, low, high, **more),
    )[1],
  )
  runs = [put(tmp_path / f'a{i}', i, 0.5) for i in range(3)] + [put(tmp_path / 'b', 0, 0.5, lr=2e-3)]
  for i, values in enumerate(([0.1, 0.4, 0.6], [0.3, 0.2, 0.9], [0.2, 0.6], [0.5, 0.7])):
    curve(tmp_path / ('a0', 'a1', 'a2', 'b')[i], values)
  assert main.main(['results', *runs, f'--plot={tmp_path}/curves.png']) == 0
  assert drawn['rte optim.lr=0.001 (3 runs)'] == ([10, 20], pytest.approx([0.2, 0.4]))  # where all were measured
  assert bands == [([10, 20], [0.1, 0.2], [0.3, 0.6])] and drawn['rte optim.lr=0.002'] == ([10, 20], [0.5, 0.7])
  assert (tmp_path / 'curves.png').read_bytes().startswith(b'\x89PNG')


def test_missing_metrics_are_not_plotted(tmp_path, capsys):
  runs = [put(tmp_path / f'a{i}', i, 0.5) for i in range(2)]
  curve(tmp_path / 'a0', [0.1, 0.2])
  for arguments, message in (
    (['--metric=loss'], '--metric: got "loss"'),
    ([], '--metric: got "accuracy"'),
  ):
    assert main.main(['results', *runs, f'--plot={tmp_path}/curves.png', *arguments]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / 'curves.png').exists()
  curve(tmp_path / 'a1', [0.1, 0.2], every=7)
  assert main.main(['results', *runs, f'--plot={tmp_path}/curves.png']) == 2
  assert 'rte: got runs that were measured at different steps' in capsys.readouterr().err
