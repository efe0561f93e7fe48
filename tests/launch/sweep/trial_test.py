"""A trial: pruned, of several seeds, failed, preempted."""

from __future__ import annotations

import json
import math
import shutil

import pytest

from tests.launch.sweep.place import GRID, HEAD, SEEDS, SPACE, states

pytest.importorskip('optuna', reason='needs the extra `sweep`')


@pytest.mark.parametrize('pruner', ['asha', 'hyperband', 'median'])
def test_pruned_trial_saves_and_stops(place, pruner):
  place.child(steps=12, seconds=0.01, linger=4)
  assert place.run(SPACE, '--trials=12', '--jobs=2', f'--pruner={pruner}', '--reduction=2', '--sampler=random') == 0
  by_state = {state: [row for row in place.table() if row['state'] == state] for state in ('done', 'pruned')}
  assert len(by_state['done']) + len(by_state['pruned']) == 12 and min(map(len, by_state.values())) >= 2
  for row in by_state['pruned']:
    run = place.run_of(int(row['trial']))
    taken = (run / 'steps.txt').read_text().count('\n')
    assert int(row['step']) <= taken
    lingers = (math.log10(float(row['optim.lr'])) + 2) ** 2 > 0.5  # for the signal; others may be too fast for it
    assert not (lingers and (run / 'results.json').exists())
    assert float(row['loss']) > float(by_state['done'][0]['loss']) and not row['rank']


def test_nothing_is_pruned_before_min_steps(place):
  place.child(steps=12, seconds=0.01)
  more = ('--trials=8', '--jobs=2', '--pruner=asha', '--reduction=2', '--min_steps=6', '--sampler=random')
  assert place.run(SPACE, *more) == 0
  pruned = [int(row['step']) for row in place.table() if row['state'] == 'pruned']
  assert pruned and min(pruned) >= 6


def test_rising_metric_is_followed(place):
  place.child(seconds=0)
  assert place.run(GRID, '--metric=accuracy', '--trials=4') == 0
  assert place.table()[0]['optim.lr'] == '0.01' and float(place.table()[0]['accuracy']) == pytest.approx(0.9)
  shutil.rmtree(place.dir)
  assert place.run(GRID, '--metric=results.bleu', '--trials=4') == 0
  assert place.table()[0]['optim.lr'] == '0.01' and float(place.table()[0]['bleu']) == pytest.approx(9)


def test_seeds_are_averaged_and_their_spread_is_kept(place):
  assert place.run(SEEDS, '--seeds=3', '--jobs=2') == 0  # the seeds of sweep() give way
  first, second = place.table()
  assert (first['optim.lr'], second['optim.lr']) == ('0.01', '0.1')
  assert float(first['loss']) == pytest.approx(1 + 1 / 9 + 0.1) and float(first['spread']) == pytest.approx(0.1)
  configs = [json.loads((place.run_of(1, seed) / 'config.json').read_text()) for seed in range(3)]
  assert [config['settings']['seed'] for config in configs] == ['0', '1', '2']
  assert float(first['seconds']) == pytest.approx(2.7)
  assert place.study().trials[1].user_attrs['values'] == pytest.approx([1 + 1 / 9 + x for x in (0, 0.1, 0.2)])


def test_seeds_of_other_data_are_not_averaged(place):
  place.child(data=True)
  place.run(SEEDS, '--seeds=2', '--jobs=2')
  assert {trial.state.name for trial in place.study().trials} == {'FAIL'}
  assert 'got other data (0, 1)' in place.study().trials[0].user_attrs['error']


def test_failed_trial_keeps_its_error_and_the_others_continue(place, capsys):
  place.child(fail='--config.optim.lr=0.01')
  assert place.run(GRID, '--jobs=2') == 0
  assert states(place) == ['done'] * 3 + ['failed'] * 3 + ['done'] * 3
  attrs = place.study().trials[3].user_attrs
  assert attrs['exit_code'] == 1 and attrs['error'].endswith('ValueError: this setting cannot be trained')
  assert 'about to fail' in attrs['error'] and attrs['steps'] == 2
  assert 'trial 0003: failed (exit code 1: ValueError: this setting' in capsys.readouterr().out
  assert '* 0003: exit code 1' in (place.dir / 'table.md').read_text()
  before = place.begun(3)
  assert place.run(GRID) == 0 and place.begun(3) == before


def test_preempted_run_is_resumed(place):
  place.child(preempt=4)
  assert place.run(GRID, '--trials=1') == 0
  assert states(place) == ['done'] and len(place.begun(0)) == 2
  assert (place.run_of(0) / 'steps.txt').read_text().split() == [str(step) for step in range(1, 10)]
  assert place.study().trials[0].user_attrs['restarts'] == 1


def test_run_without_progress_fails(place, capsys):
  program = place.folder / 'never.sh'
  program.write_text('#!/bin/sh\nexit 75\n')
  program.chmod(0o755)
  assert place.run(GRID, '--trials=1', f'--program={program}') == 1  # no trial is done
  assert states(place) == ['failed'] and 'no trial is done; ' in capsys.readouterr().out
  assert place.study().trials[0].user_attrs['error'] == 'exit code 75, 5 times without progress'


def test_command_without_results_fails(place):
  assert place.run(GRID, '--trials=1', '--program=true') == 1
  assert place.study().trials[0].user_attrs['error'] == 'exit code 0, without results.json'


def test_run_that_ignores_sigterm_is_killed(place):
  place.child(deaf=True, linger=15)
  text = HEAD + '  yield from config.grid(optim__lr=[0.01, 1.0])\n'
  assert place.run(text, '--pruner=asha', '--reduction=2', '--grace=0.3') == 0
  assert states(place) == ['done', 'pruned'] and not (place.run_of(1) / 'results.json').exists()


def test_work_directories_may_be_elsewhere(place):
  elsewhere = place.folder / 'elsewhere'
  assert place.run(GRID, '--trials=2', '--seeds=2', '--pruner=median', f'--runs={elsewhere}') == 0
  assert states(place) == ['done'] * 2
  assert sorted(path.parent.name + path.name for path in elsewhere.glob('*/seed_*')) == [
    '0000seed_0',
    '0000seed_1',
    '0001seed_0',
    '0001seed_1',
  ]
  assert (place.run_of(0, 0) / 'log.txt').exists() and not (place.run_of(0, 0) / 'results.json').exists()
  assert json.loads((place.dir / 'best.json').read_text())['settings']['seed'] == '0'


def test_runs_of_a_sweep_are_a_group_of_the_trackers(place, capsys, monkeypatch):
  monkeypatch.delenv('MLFLOW_TRACKING_URI', raising=False)
  options = ['--trials=1', '--seeds=2', '--dry_run']

  def commands(*more):
    assert place.run(GRID, *options, *more) == 0
    return capsys.readouterr().out.splitlines()

  assert not any('log.' in line for line in commands())
  first, second = commands("--config.log.to=('wandb','mlflow')")
  for line, name in ((first, '0000/seed_0'), (second, '0000/seed_1')):
    assert f' --config.log.run={name} ' in line and ' --config.log.group=sweep ' in line
    assert f'--config.log.mlflow_uri={place.dir / "mlruns"}' in line
  assert 'mlflow_uri' not in commands('--config.log.to=wandb')[0]
  line = commands('--config.log.to=mlflow', '--config.log.group=mine', '--config.log.mlflow_uri=http://host')[0]
  assert line.count('log.group=') == line.count('mlflow_uri=') == 1
  monkeypatch.setenv('MLFLOW_TRACKING_URI', 'http://host')
  assert 'mlflow_uri' not in commands('--config.log.to=mlflow')[0]


def test_retrained_best_run_is_not_in_the_sweep(place):
  assert place.run(GRID, '--trials=1') == 0
  log = {'to': ['wandb'], 'project': 'mine', 'run': '0000', 'group': 'sweep'}
  path = place.run_of(0) / 'config.json'
  path.write_text(json.dumps(json.loads(path.read_text()) | {'log': log}))
  assert place.run(GRID, '--trials=1') == 0
  assert json.loads((place.dir / 'best.json').read_text())['log'] == log | {'run': '', 'group': ''}
