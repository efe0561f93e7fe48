"""Limits of a sweep: `--budget`, `--timeout` and the random start of tpe."""

from __future__ import annotations

import json
import re

import pytest

from launch.sweep import budget
from lmx.errors import InputError
from tests.launch.sweep.place import GRID, SPACE, states

pytest.importorskip('optuna', reason='needs the extra `sweep`')


def test_times_and_budgets():
  for text, seconds in {'90': 90, '1.5m': 90, '2h': 7200, '1D': 86400, '30s': 30}.items():
    assert budget.seconds('--timeout', text) == seconds
  assert budget.Budget.parse('10h') == budget.Budget(36000, 'h')
  assert budget.Budget.parse('1e18flops') == budget.Budget.parse('1E18 FLOPs'.replace(' ', '')) == (1e18, 'flops')
  assert budget.Budget(7200, 'h').show(3600) == '1 of 2 hours'
  assert budget.Budget(1e18, 'flops').show(2.5e17) == '2.5e+17 of 1e+18 FLOPs'
  for text in ('', '0', '-1h', '1e999h', 'h', '2 weeks'):
    with pytest.raises(InputError, match='--timeout: got'):
      budget.seconds('--timeout', text)
  for text in ('10', '10m', '0h', '1e999flops', 'flops'):
    with pytest.raises(InputError, match='--budget: got'):
      budget.Budget.parse(text)
  with pytest.raises(InputError, match='give --trials=20'):
    budget.Budget.parse('20trials')


def test_hours_of_runs_bound_a_sweep_over_its_sessions(place, capsys):
  place.child(steps=90, seconds=0)  # which records 9 seconds
  more = ('--sampler=random', '--poll=0.05')
  assert place.run(SPACE, f'--budget={20 / 3600}h', *more) == 0
  assert states(place) == ['done'] * 3  # at 18 seconds one more begins
  out = capsys.readouterr().out
  assert re.search(r'3 trials, 0\.007\d* of 0\.00555556 hours; best', out) and 'budget: 0.007' in out
  begun = [place.begun(number) for number in range(3)]
  assert place.run(SPACE, f'--budget={20 / 3600}h', *more) == 0  # it is spent
  assert [place.begun(number) for number in range(3)] == begun and len(place.study().trials) == 3
  assert place.run(SPACE, f'--budget={29 / 3600}h', '--trials=6', *more) == 0
  assert states(place) == ['done'] * 4 + ['waiting'] * 2
  assert place.run(SPACE, '--budget=1h', '--trials=5', *more) == 0  # the number of trials ends it first
  assert [trial.state.name for trial in place.study().trials] == ['COMPLETE'] * 5 + ['WAITING']


def test_flops_bound_a_sweep(place, monkeypatch, capsys):
  counted = []
  monkeypatch.setattr(budget, 'count_flops', lambda workdirs: counted.append(workdirs[0].name) or 1e15)
  place.child(steps=2, seconds=0)
  assert place.run(GRID, '--trials=2') == 0 and not counted
  assert place.run(GRID, '--budget=3.5e15flops') == 0  # of all points; the first two are counted now
  assert states(place) == ['done'] * 4 + ['waiting'] * 5 and sorted(counted) == ['0000', '0001', '0002', '0003']
  assert 'budget: 4e+15 of 3.5e+15 FLOPs' in capsys.readouterr().out
  assert place.study().trials[3].user_attrs['flops'] == 1e15


@pytest.mark.slow
def test_flops_of_a_run_are_those_of_describe(tmp_path, root):
  from lmx.cli import main
  from lmx.config import resolve

  run, other, output = tmp_path / 'run', tmp_path / 'other', tmp_path / 'counts.json'
  overrides = ['model.V=300', 'train.steps=0', 'train.epochs=1']
  config = resolve.load(f'{root}/experiments/gpt2/quickstart.py:tiny', overrides)
  for folder, steps in ((run, 7), (other, 3)):
    folder.mkdir()
    (folder / 'config.json').write_text(json.dumps(resolve.flatten(config) and config.to_dict()))
    (folder / 'metrics.jsonl').write_text(json.dumps({'step': steps, 'split': 'train', 'loss': 1.0}) + '\n')
  assert main.main(['describe', f'--workdir={run}', f'--output={output}']) == 0
  counts = json.loads(output.read_text())
  assert counts['updates'] == 7  # so far, where epochs do not fix the number
  assert budget.count_flops([run, other]) == pytest.approx(counts['training_flops'] * 10 / 7)
  assert budget.count_flops([tmp_path / 'none']) == 0


def test_failing_trials_end_a_sweep_without_a_number_of_trials(place, capsys):
  assert place.run(SPACE, '--budget=1h', '--program=false', '--sampler=random') == 1
  assert states(place) == ['failed'] * 10
  assert '10 trials in a row failed' in capsys.readouterr().out


def test_timeout_lets_runs_save_and_stop(place, capsys):
  place.child(steps=50, seconds=0.05)
  assert place.run(GRID, '--trials=2', '--timeout=0.5') == 75
  out = capsys.readouterr().out
  assert 'time of --timeout is over' in out and 'continues' in out
  first, second = place.study().trials
  assert (first.state.name, second.state.name) == ('RUNNING', 'WAITING')
  assert first.user_attrs['busy'] > 0.3  # which a budget counts
  place.child(steps=50, seconds=0)
  assert place.run(GRID, '--trials=2', '--timeout=1h') == 0
  assert states(place) == ['done'] * 2 and len(place.begun(0)) == 2
  steps = (place.run_of(0) / 'steps.txt').read_text().split()
  assert steps == [str(step) for step in range(1, 51)]


def test_random_start_of_tpe_is_printed_and_settable(place, capsys):
  place.child(steps=2, seconds=0)
  assert place.run(SPACE, '--trials=12', '--dry_run') == 0
  assert 'tpe: 10 of 12 trials are random' in capsys.readouterr().err
  assert place.run(SPACE, '--trials=4') == 0
  assert 'warning: all 4 trials are random' in capsys.readouterr().out
  assert place.run(SPACE, '--trials=4', '--startup_trials=2') == 2
  assert 'startup_trials: 10 there, 2 now' in capsys.readouterr().err
  assert place.run(SPACE, '--trials=4', '--sampler=random', '--startup_trials=2') == 2
  assert '--startup_trials: got it with --sampler=random' in capsys.readouterr().err


def test_startup_trials_are_those_of_the_sampler():
  from launch.sweep import study

  for count in (2, 30):
    store = study.Store('', 'x', 'minimize', 'tpe', 0, study.Identity('here', 'me'), 1, count)
    assert store._sampler(5)._n_startup_trials == count
