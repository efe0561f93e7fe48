"""The sweep: what it draws, what it stops, what it remembers when it is killed, and what it leaves behind.

A small program, sweep_child.py, stands for lmx; the last test is with lmx itself.
"""

from __future__ import annotations

import csv
import json
import math
import os
import pathlib
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from experiments import spaces
from launch import figures, jobs, study, sweep
from lmx.errors import InputError

optuna = pytest.importorskip('optuna', reason='needs the extra `sweep`')
CHILD = [sys.executable, str(pathlib.Path(__file__).with_name('sweep_child.py'))]
HEAD = 'from experiments import config, spaces\n\n\ndef get_config(arg=""):\n  return {}\n\n\ndef sweep():\n'
SPACE = (
  HEAD + '  dropout = spaces.linear_range(0, 0.5)\n'
  '  return spaces.space(optim__lr=spaces.log_range(1e-4, 1.0), model__dropout=dropout)\n'
)
GRID = HEAD + '  yield from config.grid(optim__lr=[0.1, 0.01, 0.001], model__kind=["a", "3", (1, 2)])\n'
SEEDS = HEAD + '  yield from config.grid(optim__lr=[0.1, 0.01], seed=[0, 1])\n'


class Place:
  """A directory with an experiment, and sweeps in it."""

  def __init__(self, folder: pathlib.Path, monkeypatch):
    self.folder, self.monkeypatch = folder, monkeypatch
    self.dir = folder / 'sweep'
    self.child()

  def child(self, **options):
    self.monkeypatch.setenv('CHILD', json.dumps(options))

  def argv(self, text=SPACE, *more):
    (self.folder / 'bar.py').write_text(text)
    return [
      f'--config={self.folder / "bar.py"}',
      f'--workdir={self.dir}',
      '--poll=0.01',
      f'--program={shlex.join(CHILD)}',
      *more,
    ]

  def run(self, text=SPACE, *more):
    return sweep.main(self.argv(text, *more))

  def table(self):
    with (self.dir / 'trials.csv').open() as file:
      return list(csv.DictReader(file))

  def run_of(self, number, seed=None):
    return self.dir / 'trials' / f'{number:04d}' / ('' if seed is None else f'seed_{seed}')

  def begun(self, number, seed=None):
    return (self.run_of(number, seed) / 'begun.txt').read_text().splitlines()

  def study(self, url=''):
    kept = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(self.dir / 'study.journal')))
    return optuna.load_study(study_name='sweep', storage=url or kept)


@pytest.fixture
def place(tmp_path, monkeypatch):
  monkeypatch.delenv('LMX_SWEEP_STORAGE', raising=False)
  return Place(tmp_path, monkeypatch)


def states(place):
  return [row['state'] for row in sorted(place.table(), key=lambda row: row['trial'])]


# What is searched


def test_values_are_written_as_the_command_line_reads_them():
  from lmx.config import cast

  for value in ('adam', 'a b', '10', 'true', 'None', '(1, 2)', '', 1e-4, 3, True, None, (1, 'x'), [0.5]):
    assert cast.parse(study.text(value)) == value and type(cast.parse(study.text(value))) is type(value)
  assert study.text('adam') == 'adam' and study.text(3e-4) == '0.0003'


def test_a_grid_runs_every_point_once_in_its_order(place, capsys):
  assert place.run(GRID, '--jobs=3') == 0
  rows = sorted(place.table(), key=lambda row: row['trial'])
  wanted = [(lr, kind) for lr in ('0.1', '0.01', '0.001') for kind in ('a', "'3'", '(1, 2)')]
  assert [(row['optim.lr'], row['model.kind']) for row in rows] == wanted
  command = json.loads((place.run_of(4) / 'config.json').read_text())['settings']
  assert command == {'optim.lr': '0.01', 'model.kind': "'3'"}
  assert [row['rank'] for row in place.table()] == [str(rank) for rank in range(1, 10)]
  assert {row['optim.lr'] for row in place.table()[:3]} == {'0.01'}
  assert float(place.table()[0]['loss']) == pytest.approx(1 + 1 / 9) and place.table()[0]['step'] == '9'
  assert json.loads((place.dir / 'best.json').read_text())['settings']['optim.lr'] == '0.01'
  assert '9/9 trials; best 1.11111' in capsys.readouterr().out
  # The same command once more finds nothing to do.
  before = [place.begun(number) for number in range(9)]
  assert place.run(GRID, '--jobs=3') == 0
  assert [place.begun(number) for number in range(9)] == before and len(place.study().trials) == 9


def test_a_grid_may_grow_and_its_settings_may_be_given(place):
  assert place.run(GRID, '--trials=2') == 0 and states(place) == ['done'] * 2
  assert place.run(GRID, '--trials=3') == 0 and states(place) == ['done'] * 3
  assert [len(place.begun(number)) for number in range(3)] == [1, 1, 1]
  shutil.rmtree(place.dir)
  assert place.run(GRID, '--config.model.kind=c', '--dry_run') == 0
  search = sweep.read_search(str(place.folder / 'bar.py'), ['model.kind'])
  assert search.points == ({'optim.lr': '0.1'}, {'optim.lr': '0.01'}, {'optim.lr': '0.001'})


def drawn(place, *more):
  shutil.rmtree(place.dir, ignore_errors=True)
  place.child(steps=2, seconds=0)
  assert place.run(SPACE, '--trials=4', *more) == 0
  return [(row['optim.lr'], row['model.dropout']) for row in sorted(place.table(), key=lambda row: row['trial'])]


def test_random_draws_depend_on_the_seed_and_not_on_the_jobs(place):
  one = drawn(place, '--sampler=random')
  assert drawn(place, '--sampler=random', '--jobs=3') == one
  assert drawn(place, '--sampler=random', '--sampler_seed=1') != one
  assert len(set(one)) == 4
  assert all(1e-4 <= float(lr) <= 1 and 0 <= float(dropout) <= 0.5 for lr, dropout in one)


def test_tpe_draws_where_it_was_good(place):
  place.child(steps=2, seconds=0)
  assert place.run(SPACE, '--trials=30', '--jobs=3', '--sampler=tpe') == 0
  rows = sorted(place.table(), key=lambda row: row['trial'])
  early, late = ([float(row['loss']) for row in part] for part in (rows[:10], rows[20:]))
  assert sum(late) / len(late) < sum(early) / len(early) - 0.5
  assert (place.dir / 'importance.png').stat().st_size > 1000 and (place.dir / 'parallel.png').stat().st_size > 1000


def test_points_are_categories_for_a_sampler_that_draws(place):
  place.child(steps=2, seconds=0)
  assert place.run(GRID, '--sampler=random', '--trials=5') == 0
  assert {row['model.kind'] for row in place.table()} <= {'a', "'3'", '(1, 2)'} and len(place.table()) == 5


def test_whole_ranges_and_corners():
  space = spaces.space(model__N=spaces.log_range(2, 64), optim__b2=[0.9, 0.99], optim__lr=spaces.linear_range(0.0, 1.0))
  assert len(spaces.points(space)) == 8 and spaces.points(space)[0] == {'model.N': 2, 'optim.b2': 0.9, 'optim.lr': 0.0}
  store = study.Store('', 'x', 'minimize', 'random', 0, study.Here('here', 'me'), 1)
  search = study.Search.of(space)
  store.fill(20, search)
  seen = [store.parameters(store.claim(20, set()), search) for _ in range(20)]
  whole = [int(point['model.N']) for point in seen]
  assert len(set(whole)) > 5 and 2 <= min(whole) and max(whole) <= 64
  assert {point['optim.b2'] for point in seen} == {'0.9', '0.99'}
  with pytest.raises(ValueError, match='above 0'):
    spaces.log_range(0, 1)


# What is measured and stopped


def test_a_metric_says_which_way_is_better():
  assert figures.Metric.of('perplexity_per_word') == figures.Metric('perplexity_per_word', 'minimize')
  assert figures.Metric.of('accuracy') == figures.Metric('accuracy', 'maximize')
  assert figures.Metric.of('results.bleu') == figures.Metric('bleu', 'maximize', True)
  assert figures.Metric.of('reward:max') == figures.Metric('reward', 'maximize')
  for text in ('reward', 'loss:up', ':min'):
    with pytest.raises(InputError, match=':min or :max'):
      figures.Metric.of(text)


def test_the_figure_is_that_of_the_parameters_that_a_run_measures(tmp_path):
  looks = [(2, 3.0, 0.5), (4, 'NaN', 0.9), (6, 2.0, 0.6), (8, 2.5, 0.7)]
  lines = [{'step': s, 'split': 'valid', 'loss': loss, 'accuracy': a, 'seconds': 10.0 * s} for s, loss, a in looks]
  lines.append({'step': 9, 'split': 'train', 'loss': 0.1, 'seconds': 91.0})
  (tmp_path / 'metrics.jsonl').write_text('\n'.join(map(json.dumps, lines)) + '\n{"step": 10, "spl')
  accuracy = figures.Metric.of('accuracy')
  assert figures.figure(tmp_path, figures.Metric.of('loss')) == figures.Reached(2.0, 6, 9, 91.0)
  assert figures.figure(tmp_path, accuracy).value == 0.6
  (tmp_path / 'config.json').write_text('{"evaluation": {"which": "last"}}')
  assert figures.figure(tmp_path, accuracy).value == 0.7
  with pytest.raises(InputError, match='no figure "bleu".*accuracy, loss'):
    figures.figure(tmp_path, figures.Metric.of('bleu'))
  (tmp_path / 'results.json').write_text('{"bleu": 17.5}')
  assert figures.figure(tmp_path, figures.Metric.of('results.bleu')).value == 17.5


@pytest.mark.parametrize('pruner', ['asha', 'hyperband', 'median'])
def test_what_falls_behind_is_told_to_save_and_stop(place, pruner):
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


def test_a_metric_that_rises(place):
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


# What goes wrong


def test_seeds_of_other_data_are_not_averaged(place):
  place.child(data=True)
  place.run(SEEDS, '--seeds=2', '--jobs=2')
  assert {trial.state.name for trial in place.study().trials} == {'FAIL'}
  assert 'got other data (0, 1)' in place.study().trials[0].user_attrs['error']


def test_a_failed_trial_keeps_its_error_and_the_others_go_on(place, capsys):
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


def test_a_preempted_run_is_resumed(place):
  place.child(preempt=4)
  assert place.run(GRID, '--trials=1') == 0
  assert states(place) == ['done'] and len(place.begun(0)) == 2
  assert (place.run_of(0) / 'steps.txt').read_text().split() == [str(step) for step in range(1, 10)]
  assert place.study().trials[0].user_attrs['restarts'] == 1


def test_a_run_that_never_gets_on_fails(place):
  program = place.folder / 'never.sh'
  program.write_text('#!/bin/sh\nexit 75\n')
  program.chmod(0o755)
  assert place.run(GRID, '--trials=1', f'--program={program}') == 0
  assert states(place) == ['failed']
  assert place.study().trials[0].user_attrs['error'] == 'exit code 75, 5 times without getting on'


def test_one_that_ends_without_results_fails(place):
  assert place.run(GRID, '--trials=1', '--program=true') == 0
  assert place.study().trials[0].user_attrs['error'] == 'exit code 0, without results.json'


def test_a_run_that_ignores_sigterm_is_killed(place):
  place.child(deaf=True, linger=15)
  text = HEAD + '  yield from config.grid(optim__lr=[0.01, 1.0])\n'
  assert place.run(text, '--pruner=asha', '--reduction=2', '--grace=0.3') == 0
  assert states(place) == ['done', 'pruned'] and not (place.run_of(1) / 'results.json').exists()


def test_jobs_run_side_by_side_each_with_its_own_environment(place):
  assert place.run(GRID, '--jobs=3', '--trials=6', '--env=SLOT=gpu{job}') == 0
  slots = [place.begun(number)[0].split()[1] for number in range(6)]
  assert set(slots) == {'gpu0', 'gpu1', 'gpu2'} and len(set(slots[:3])) == 3


BAD = [
  (['--sampler=grid'], 'optim.lr, model.dropout may be anything'),
  ([], 'say how many --trials=N'),
  (['--trials=2', '--metric=reward'], 'reward:min or :max'),
  (['--trials=2', '--metric=results.loss', '--pruner=asha'], 'cannot be pruned by'),
  (['--trials=2', '--storage=somewhere'], 'it must be journal, sqlite or a URL'),
  (['--trials=2', '--config.optim.lr=1', '--config.model.dropout=0'], 'nothing is left to search'),
]


@pytest.mark.parametrize(('more', 'message'), BAD)
def test_bad_input_is_said_before_anything_runs(place, capsys, monkeypatch, more, message):
  monkeypatch.setattr(shutil, 'which', lambda name: None)
  assert place.run(SPACE, *more) == 2
  assert message in capsys.readouterr().err and not (place.dir / 'trials').exists()


@pytest.mark.parametrize('more', [['--jobs=0'], ['--pruner=best'], ['--env=GPU'], ['--workdir=gs://bucket/x']])
def test_bad_arguments_exit_with_2(place, capsys, more):
  with pytest.raises(SystemExit) as error:
    place.run(SPACE, '--trials=1', *more)
  assert error.value.code == 2 and 'usage' in capsys.readouterr().err


def test_no_such_file_no_sweep_and_too_many_points(place, capsys):
  assert sweep.main([f'--config={place.folder}/no.py', f'--workdir={place.dir}']) == 2
  assert 'there is no config file' in capsys.readouterr().err
  assert place.run(HEAD.partition('\n\n\ndef sweep')[0] + '\n') == 2
  assert 'no function sweep()' in capsys.readouterr().err
  assert place.run(GRID, '--trials=10') == 2
  assert 'has 9 points' in capsys.readouterr().err


def test_what_lmx_would_refuse_is_refused_at_once(place, capsys):
  argv = ['--config=experiments/rnn_lm/quickstart.py:tiny', f'--workdir={place.dir}', '--trials=3']
  assert sweep.main([*argv, '--config.optim.lrr=1']) == 2
  assert 'unknown config key "optim.lrr"; did you mean "lr"' in capsys.readouterr().err and not place.dir.exists()


def test_another_sweep_in_the_same_directory_is_refused(place, capsys):
  place.child(steps=2, seconds=0)
  assert place.run(GRID, '--trials=1') == 0
  held = jobs.lock(next(place.dir.glob('.sweep-*')))
  assert place.run(GRID, '--trials=2') == 2
  os.close(held)
  assert 'another sweep works in' in capsys.readouterr().err
  assert place.run(GRID, '--trials=2', '--config.train.steps=3') == 2
  assert "overrides: [] there, ['train.steps=3'] now" in capsys.readouterr().err


def test_without_optuna_the_extra_is_named(place, capsys, monkeypatch):
  monkeypatch.setitem(sys.modules, 'optuna', None)
  assert place.run(GRID) == 2
  assert 'install the extra, pip install "lmx[sweep]"' in capsys.readouterr().err


def test_starts_without_jax_and_optuna(root):
  code = (
    'import sys, launch.sweep, launch.sweep_report\n'
    'sys.exit(bool({"jax", "optuna", "numpy", "matplotlib"} & set(sys.modules)))'
  )
  assert subprocess.run([sys.executable, '-c', code], cwd=root, check=False).returncode == 0


def test_dry_run_prints_commands_and_makes_nothing(place, capsys):
  assert place.run(GRID, '--dry_run', '--config.train.steps=5', '--seeds=2') == 0
  lines = capsys.readouterr().out.splitlines()
  end = (
    f'train --config={place.folder}/bar.py --workdir={place.dir}/trials/0001/seed_1 --config.train.steps=5 '
    f"--config.optim.lr=0.1 '--config.model.kind='\"'\"'3'\"'\"'' --config.seed=1"
  )
  assert len(lines) == 6 and lines[3].endswith(end) and not place.dir.exists()


# Stopped, killed, and shared


def start(place, *more, text=SPACE):
  return subprocess.Popen(
    [sys.executable, '-m', 'launch.sweep', *place.argv(text, *more)],
    cwd=pathlib.Path(sweep.__file__).parents[1],
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def wait_for(condition, process, seconds=120):
  deadline = time.monotonic() + seconds
  while not condition():
    assert process.poll() is None and time.monotonic() < deadline, process.communicate()
    time.sleep(0.005)


def count(place, name):
  return len(list(place.dir.glob(f'trials/*/{name}')))


def test_a_sweep_that_is_told_to_stop_lets_its_runs_save(place):
  place.child(steps=20, seconds=0.1)
  process = start(place, '--jobs=2', '--trials=2', text=GRID)
  wait_for(lambda: count(place, 'metrics.jsonl') == 2, process)
  process.send_signal(signal.SIGTERM)
  said, _ = process.communicate(timeout=30)
  assert process.returncode == 75 and re.search('stopped; `python -m launch.sweep .*` continues', said)
  assert not any(jobs.Local().find(place.run_of(number)) for number in range(2))
  assert [trial.state.name for trial in place.study().trials] == ['RUNNING'] * 2
  place.child(steps=20, seconds=0)
  assert place.run(GRID, '--jobs=2', '--trials=2') == 0
  for number in range(2):
    assert (place.run_of(number) / 'steps.txt').read_text().split() == [str(step) for step in range(1, 21)]


def killed_three_times(place, url, *more):
  """20 trials, two at a time, with pruning; SIGKILL to the sweep three times, once to its runs as well."""
  place.child(steps=9, seconds=0.03)
  argv, struck, known = ('--trials=20', '--jobs=2', '--pruner=asha', *more), set(), {}
  for turn, begun in enumerate((3, 9, 15)):
    process = start(place, *argv)
    wait_for(lambda begun=begun: count(place, 'metrics.jsonl') >= begun, process)
    process.kill()
    process.communicate()
    for number in range(20):
      found = jobs.Local().find(place.run_of(number)) if turn == 1 and place.run_of(number).exists() else None
      if found:
        found.kill()
        struck.add(number)
    known |= {trial.number: trial.params for trial in place.study(url).trials if len(trial.params) == 2}
  process = start(place, *argv)
  said, _ = process.communicate(timeout=300)
  assert process.returncode == 0, said
  found = place.study(url).trials
  assert [trial.number for trial in found] == list(range(20))
  assert {trial.state.name for trial in found} == {'COMPLETE', 'PRUNED'}, said
  assert sorted(path.name for path in (place.dir / 'trials').iterdir()) == [f'{number:04d}' for number in range(20)]
  assert struck and len(known) >= 15 and all(found[number].params == params for number, params in known.items())
  for trial in found:
    steps = [int(step) for step in (place.run_of(trial.number) / 'steps.txt').read_text().split()]
    assert steps == list(range(1, len(steps) + 1)), f'trial {trial.number} was trained twice: {steps}'
    # Again only if its run was killed too, and not even then if it had been pruned.
    assert len(place.begun(trial.number)) <= 1 + (trial.number in struck), f'trial {trial.number} was begun again'
    assert trial.state.name == 'PRUNED' or len(steps) == 9
    seen = place.run_of(trial.number) / 'config.json'
    assert json.loads(seen.read_text())['settings'] == {key: repr(value) for key, value in trial.params.items()}
  assert len(place.table()) == 20 and '20/20 trials' in said
  return said


def test_killed_three_times_it_ends_with_20_trials_none_run_twice(place):
  killed_three_times(place, '')


def test_the_same_with_sqlite(place):
  place.child(steps=9, seconds=0.03)
  process = start(place, '--trials=6', '--jobs=2', '--storage=sqlite')
  wait_for(lambda: count(place, 'metrics.jsonl') >= 3, process)
  process.kill()
  process.communicate()
  assert place.run(SPACE, '--trials=6', '--jobs=2', '--storage=sqlite') == 0
  assert states(place) == ['done'] * 6 and [len(place.begun(number)) for number in range(6)] == [1] * 6
  assert len(place.study(f'sqlite:///{place.dir}/study.db').trials) == 6


def test_it_waits_for_a_run_that_a_killed_sweep_was_just_starting(place):
  place.child(steps=2, seconds=0)
  assert place.run(GRID, '--trials=1') == 0
  held = jobs.lock(next(place.dir.glob('.sweep-*')))  # as between fork and exec
  threading.Timer(0.5, os.close, [held]).start()
  assert place.run(GRID, '--trials=2') == 0


def test_a_trial_pruned_before_a_kill_stays_pruned(place):
  place.child(steps=2, seconds=0)
  assert place.run(SPACE, '--trials=1') == 0
  here = study.Here.of(place.dir)
  store = study.Store(f'journal:{place.dir}/study.journal', 'sweep', 'minimize', 'tpe', 0, here, 1)
  store.fill(2, study.Search.of(spaces.space(optim__lr=[0.1])))
  store.claim(2, set()).set_user_attr('pruned_at', 2)
  assert place.run(SPACE, '--trials=2') == 0
  assert states(place) == ['done', 'pruned'] and not place.run_of(1).exists()


def test_a_worker_elsewhere_is_gone_when_its_pulse_stops(tmp_path):
  url, search = f'sqlite:///{tmp_path}/x.db', study.Search.of(spaces.space(optim__lr=[0.1, 0.2]))
  one = study.Store(url, 'x', 'minimize', 'random', 0, study.Here('one:/a', 's1'), 60)
  two = study.Store(url, 'x', 'minimize', 'random', 0, study.Here('two:/a', 's2'), 0.5)
  one.shared = two.shared = True
  one.fill(2, search)
  two.fill(2, search)
  mine, other = one.claim(2, set()), two.claim(2, set())
  assert (mine.number, other.number) == (0, 1) and len(two.trials()) == 2
  for beat in range(4):
    mine.set_user_attr('pulse', beat)
    assert two.claim(2, {1}) is None
    time.sleep(0.1)
    assert two.claim(2, {1}) is None
    time.sleep(0.1)
  time.sleep(0.5)
  taken = two.claim(2, {1})
  assert taken.number == 0 and one.parameters(mine, search) == two.parameters(taken, search)
  assert one.claim(2, set()) is None  # nor does the first take it back
  again = study.Store(url, 'x', 'minimize', 'random', 0, study.Here('two:/a', 's3'), 60)
  assert again.claim(2, set()).number == 0  # of the same place, which one sweep holds: at once


def test_of_two_that_take_over_a_trial_the_last_to_say_so_has_it(tmp_path, monkeypatch):
  url, search = f'sqlite:///{tmp_path}/x.db', study.Search.of(spaces.space(optim__lr=[0.1, 0.2]))
  one, two = (study.Store(url, 'x', 'minimize', 'random', 0, study.Here('one:/a', session), 60) for session in 'ab')
  one.shared = two.shared = True
  one.fill(1, search)
  trial = one.claim(1, set())
  another = {'place': 'three:/a', 'session': 'c'}
  monkeypatch.setattr(study.time, 'sleep', lambda seconds: trial.set_user_attr('worker', another))
  assert two.claim(1, set()) is None
  assert two.trials('RUNNING')[0].user_attrs['worker'] == another


@pytest.fixture
def postgres():
  """URL of a PostgreSQL server of its own with a password, on a socket in a directory."""
  pytest.importorskip('psycopg2', reason='needs psycopg2')
  places = [str(path.parent) for path in pathlib.Path('/usr/lib/postgresql').glob('*/bin/initdb')]
  path = os.pathsep.join([os.environ.get('PATH', ''), *places])
  programs = [shutil.which(name, path=path) for name in ('initdb', 'postgres')]
  if None in programs:
    pytest.skip('needs PostgreSQL (apt install postgresql)')
  folder, as_user = pathlib.Path(tempfile.mkdtemp(prefix='lmx-pg-', dir='/tmp')), []
  (folder / 'password').write_text('s3cret/word')
  if os.getuid() == 0:  # which PostgreSQL refuses
    try:
      user = pwd.getpwnam('postgres')
    except KeyError:
      pytest.skip('needs a user postgres')
    as_user = ['setpriv', f'--reuid={user.pw_uid}', f'--regid={user.pw_gid}', '--clear-groups']
    for path in (folder, folder / 'password'):
      os.chown(path, user.pw_uid, user.pw_gid)
  make = [
    *as_user,
    programs[0],
    '-D',
    str(folder / 'data'),
    '-U',
    'lmx',
    '--auth=scram-sha-256',
    f'--pwfile={folder / "password"}',
    '--no-sync',
  ]
  subprocess.run(make, check=True, capture_output=True, cwd='/')
  server = subprocess.Popen(
    [*as_user, programs[1], '-D', str(folder / 'data'), '-k', str(folder), '-c', 'listen_addresses='],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
    cwd='/',
  )
  url = f'postgresql+psycopg2://lmx:s3cret%2Fword@/postgres?host={folder}'
  try:
    pid = folder / 'data/postmaster.pid'
    wait_for(lambda: pid.exists() and 'ready' in pid.read_text(), server)
    yield url
  finally:
    server.send_signal(signal.SIGINT)
    server.wait(timeout=30)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_killed_three_times_with_postgresql_and_its_password_stays_hidden(place, postgres, monkeypatch):
  said = killed_three_times(place, postgres, f'--storage={postgres}')
  written = [path for path in place.dir.rglob('*') if path.is_file()]
  assert len(written) > 100
  for secret in ('s3cret/word', 's3cret%2Fword'):
    assert secret not in said
    assert not any(secret.encode() in path.read_bytes() for path in written)
  assert 'lmx:***@' in (place.dir / 'table.md').read_text()


@pytest.mark.slow
def test_two_machines_share_a_study(place, postgres, monkeypatch):
  """As two machines: two work directories, one study, whose trials each takes its share of."""
  place.child(steps=6, seconds=0.05)
  argv = ('--trials=12', '--study=both', '--pruner=asha')
  monkeypatch.setenv('LMX_SWEEP_STORAGE', postgres)
  one, place.dir = start(place, *argv), place.folder / 'other'
  two = start(place, *argv)
  said = [process.communicate(timeout=120)[0] for process in (one, two)]
  assert (one.returncode, two.returncode) == (0, 0), said
  shares = [{path.name for path in (place.folder / name / 'trials').iterdir()} for name in ('sweep', 'other')]
  assert shares[0] | shares[1] == {f'{number:04d}' for number in range(12)}
  assert not shares[0] & shares[1] and all(shares)
  rows = [(place.folder / name / 'trials.csv').read_text() for name in ('sweep', 'other')]
  assert rows[0] == rows[1] and rows[0].count('\n') == 13


def test_a_password_is_hidden_in_errors_and_kept_from_runs(place, capsys, monkeypatch):
  url = 'postgresql://me:s3cret%2Fword@127.0.0.1:1/db'
  assert place.run(GRID, f'--storage={url}') == 2
  said = capsys.readouterr().err
  assert 'postgresql://me:***@127.0.0.1:1/db cannot be used' in said and 's3cret' not in said
  monkeypatch.setenv('PGPASSWORD', 's3cret')
  place.child(steps=2, seconds=0)
  assert place.run(GRID, '--trials=1') == 0
  assert place.begun(0)[0].split()[-1] == 'False'


# Through a launcher


@pytest.fixture
def cluster(place, tmp_path, monkeypatch, root):
  """A fake cluster of Kubernetes whose containers run the child; no config of lmx is asked for."""
  folder = tmp_path / 'cluster'
  (folder / 'bin').mkdir(parents=True)
  fake = shlex.join([sys.executable, str(root / 'tests/launch/fake_kubectl.py')])
  programs = {'kubectl': f'exec {fake} "$@"', 'bin/python3': f'shift 2\nexec {shlex.join(CHILD)} "$@"'}
  for name, text in programs.items():
    (folder / name).write_text(f'#!/bin/sh\n{text}\n')
    (folder / name).chmod(0o755)
  monkeypatch.setenv('FAKE_CLUSTER', str(folder))
  monkeypatch.setenv('PATH', f'{folder}:{os.environ["PATH"]}')
  monkeypatch.setattr(sweep, 'check_config', lambda *args: None)
  monkeypatch.chdir(root)
  return folder


LAUNCH = '--image=i --accelerator=v6e-4 --name=w{job} --no-preflight --poll=0.1'


def through(place, text, *more, launch=LAUNCH, **child):
  """The arguments of a sweep through launch.gke."""
  argv = [word for word in place.argv(text, *more) if not word.startswith('--program')]
  setting = '--env=CHILD=' + json.dumps({'steps': 12, 'seconds': 0.02, **child})
  return [*argv, '--where=gke', f'--launch={launch}', '--env=SLOT={job}', setting]


def created(cluster):
  return [argv for line in (cluster / 'calls').read_text().splitlines() if (argv := json.loads(line))[0] == 'create']


def test_runs_as_jobsets_of_their_workers(place, cluster, monkeypatch):
  monkeypatch.setenv('PGPASSWORD', 's3cret')
  more = ('--pruner=asha', '--reduction=2', '--sampler=random')
  argv = through(place, SPACE, '--trials=6', '--jobs=2', *more, linger=30)
  assert sweep.main(argv) == 0
  assert set(states(place)) == {'done', 'pruned'} and len(created(cluster)) == 6
  assert {path.name for path in cluster.glob('*.json')} == {'w0.json', 'w1.json'}  # which is their namesakes' too
  assert not list(cluster.glob('*.state')) and not list(place.dir.rglob('.launched'))
  for number in range(6):
    (begun,) = place.begun(number)
    assert begun.split()[1] in '01' and begun.split()[2] == 'False'
  log = (place.run_of(0) / 'log.txt').read_text()
  assert log.startswith('launch.gke: JobSet w0') and 's3cret' not in log


def test_a_pruned_run_whose_launcher_was_killed_is_stopped_all_the_same(place, cluster):
  text = HEAD + '  yield from config.grid(optim__lr=[0.01, 1.0])\n'
  more = ('--pruner=asha', '--reduction=2')
  assert sweep.main(through(place, text, '--trials=1', *more, steps=4, seconds=0.3)) == 0
  argv = through(place, text, *more, steps=4, linger=20)
  process = subprocess.Popen(
    [
      sys.executable,
      '-c',
      f'import sys\nfrom launch import jobs, sweep\n'
      'sweep.check_config = lambda *args: None\n'
      'jobs._Process.stop = lambda self: sys.exit(1)\n'  # as if killed at this moment
      f'sys.exit(sweep.main({argv!r}))',
    ]
  )
  assert process.wait(120) == 1
  os.killpg(int((place.run_of(1) / '.job').read_text()), signal.SIGKILL)
  assert (cluster / 'w0.state').exists()
  assert sweep.main(argv) == 0
  assert states(place) == ['done', 'pruned'] and not list(cluster.glob('*.state'))
  assert len(place.begun(1)) == 1 and not (place.run_of(1) / 'results.json').exists()


@pytest.mark.parametrize(
  ('launch', 'message'),
  [
    (LAUNCH + ' --queue=A!', '--launch: launch.gke: --queue is "A!"'),
    (LAUNCH + ' --quene=a', 'unrecognized arguments: --quene=a'),
    (LAUNCH + ' --secret=PGPASSWORD', '--launch: PGPASSWORD is not for the runs'),
    (LAUNCH + ' --secret PGPASSWORD', '--launch: PGPASSWORD is not for the runs'),
    (LAUNCH + ' -- train', 'only options stand there'),
    (LAUNCH + " 'open", 'No closing quotation'),
  ],
)
def test_options_of_a_launcher_are_tried_first(place, cluster, capsys, launch, message):
  assert sweep.main(through(place, GRID, launch=launch)) == 2
  assert message in capsys.readouterr().err and not (place.dir / 'trials').exists()


@pytest.mark.parametrize(('where', 'program'), [('slurm', 'sbatch'), ('gke', 'kubectl'), ('tpu_vm', 'gcloud')])
def test_a_launcher_without_its_program_is_said(place, capsys, monkeypatch, where, program):
  monkeypatch.setattr(shutil, 'which', lambda name: None)
  argv = [word for word in place.argv(GRID) if not word.startswith('--program')]
  assert sweep.main([*argv, f'--where={where}']) == 2
  assert f'there is no `{program}` here' in capsys.readouterr().err


@pytest.mark.parametrize('more', [['--launch=--name=a'], ['--where=gke', '--program=lmx'], ['--where=xpk']])
def test_options_that_do_not_go_together(place, capsys, more):
  with pytest.raises(SystemExit):
    sweep.main([word for word in place.argv(GRID, *more) if word != f'--program={shlex.join(CHILD)}'])
  assert 'usage' in capsys.readouterr().err


def test_dry_run_prints_the_commands_of_the_launcher(place, capsys):
  assert sweep.main([*through(place, GRID, '--jobs=2', '--trials=2'), '--dry_run', '--runs=gs://bucket/s/']) == 0
  lines = capsys.readouterr().out.splitlines()
  for number, line in enumerate(lines):
    words = shlex.split(line)
    assert words[1:3] == ['-m', 'launch.gke'] and f'--name=w{number}' in words and f'--env=SLOT={number}' in words
    assert f'--wait={place.dir}/trials/{number:04d}/.launched' in words
    at = words.index('--')
    assert words[at + 1 : at + 4] == [
      'train',
      f'--config={place.folder}/bar.py',
      f'--workdir=gs://bucket/s/{number:04d}',
    ]
  assert len(lines) == 2 and not place.dir.exists()


def test_a_trial_goes_back_to_its_worker(place):
  place.child(steps=2, seconds=0)
  place.dir.mkdir()
  here, argv = study.Here.of(place.dir), (GRID, '--trials=2', '--jobs=2', '--env=SLOT={job}')
  store = study.Store(f'journal:{place.dir}/study.journal', 'sweep', 'minimize', 'grid', 0, here, 1)
  search = sweep.read_search(place.argv(GRID)[0].partition('=')[2], [])
  store.fill(2, search)
  mine: set[int] = set()
  for slot in (1, 0):
    trial = store.claim(2, mine)
    trial.set_user_attr('slot', slot)
    mine.add(trial.number)
  assert place.run(*argv) == 0
  assert [place.begun(number)[0].split()[1] for number in range(2)] == ['1', '0']


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


def test_a_run_on_a_bucket_is_followed(bucket):
  assert figures.version(bucket / 'metrics.jsonl') is None and not figures.finished(bucket)
  assert figures.records(bucket) == [] and figures.setting(bucket, 'train', 'steps') is None
  lines = [json.dumps({'step': step, 'split': 'valid', 'loss': 3.0 - step, 'seconds': 1.0}) for step in (1, 2)]
  (bucket / 'metrics.jsonl').write_text(lines[0] + '\n')
  before = figures.version(bucket / 'metrics.jsonl')
  (bucket / 'metrics.jsonl').write_text('\n'.join(lines) + '\n')
  assert before is not None and figures.version(bucket / 'metrics.jsonl') != before
  (bucket / 'config.json').write_text('{"train": {"steps": 2}}')
  (bucket / 'results.json').write_text('{}')
  assert figures.finished(bucket) and figures.setting(bucket, 'train', 'steps') == 2
  assert figures.figure(bucket, figures.Metric.of('loss')) == figures.Reached(1.0, 2, 2, 1.0)


# With lmx


@pytest.mark.slow
def test_a_sweep_of_lmx_and_a_run_from_its_best_config(tmp_path, root, capsys, monkeypatch):
  monkeypatch.chdir(root)
  folder = tmp_path / 'sweep'
  argv = [
    '--config=experiments/rnn_lm/quickstart.py:tiny',
    f'--workdir={folder}',
    '--trials=2',
    '--poll=0.1',
    '--config.train.steps=6',
    '--config.train.eval_every=3',
    '--config.data.batch_size=8',
    '--config.samples.count=0',
    '--pruner=median',
  ]
  assert sweep.main(argv) == 0, capsys.readouterr()
  with (folder / 'trials.csv').open() as file:
    rows = list(csv.DictReader(file))
  assert [row['state'] for row in rows] == ['done', 'done'] and float(rows[0]['loss']) < float(rows[1]['loss'])
  best = folder / 'trials' / rows[0]['trial']
  wanted = json.loads((best / 'config.json').read_text())
  found = [wanted['optim']['lr'], wanted['model']['dropout']]
  assert found == [float(rows[0]['optim.lr']), float(rows[0]['model.dropout'])]
  again = tmp_path / 'again'
  command = [sys.executable, '-m', 'lmx.cli.main', 'train', f'--config={folder / "best.json"}', f'--workdir={again}']
  subprocess.run(command, check=True, capture_output=True)
  one, two = (json.loads((run / 'results.json').read_text()) for run in (best, again))
  assert one['loss'] == two['loss'] and one['config_hash'] == two['config_hash']
