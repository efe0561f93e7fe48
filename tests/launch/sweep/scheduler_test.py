"""A sweep as a whole: every trial once, whatever stops, kills or shares it."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from experiments import spaces
from launch import jobs
from launch.sweep import __main__ as sweep
from launch.sweep import scheduler, study
from tests.launch.sweep.place import GRID, HEAD, SPACE, count, start, states, wait_for

pytest.importorskip('optuna', reason='needs the extra `sweep`')


def test_grid_runs_every_point_once_in_its_order(place, capsys, monkeypatch):
  monkeypatch.setattr(scheduler, 'SHOWN', 0.0)
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
  printed = capsys.readouterr().out
  assert '9/9 trials; best 1.11111' in printed
  assert re.search(r'trial 0000: (begins|step \d)', printed)
  # The same command once more finds nothing to do.
  before = [place.begun(number) for number in range(9)]
  assert place.run(GRID, '--jobs=3') == 0
  assert [place.begun(number) for number in range(9)] == before and len(place.study().trials) == 9


def test_grid_may_grow_and_its_settings_may_be_given(place):
  assert place.run(GRID, '--trials=2') == 0 and states(place) == ['done'] * 2
  assert place.run(GRID, '--trials=3') == 0 and states(place) == ['done'] * 3
  assert [len(place.begun(number)) for number in range(3)] == [1, 1, 1]
  shutil.rmtree(place.dir)
  assert place.run(GRID, '--config.model.kind=c', '--dry_run') == 0
  search = sweep.read_search(str(place.folder / 'bar.py'), ['model.kind'])
  assert search.points == ({'optim.lr': '0.1'}, {'optim.lr': '0.01'}, {'optim.lr': '0.001'})


def test_sweep_with_fewer_trials_keeps_the_finished_ones_in_its_report(place):
  assert place.run(GRID, '--trials=4') == 0  # trial 3 is the best
  best = (place.dir / 'best.json').read_text()
  assert place.run(GRID, '--trials=2') == 0
  assert states(place) == ['done'] * 4 and (place.dir / 'best.json').read_text() == best


def test_two_trials_with_the_same_input_error_end_the_sweep(place, capsys):
  program = place.folder / 'refuse.sh'
  program.write_text('#!/bin/sh\necho "lmx: data.manual_dir: got no text file" >&2\nexit 2\n')
  program.chmod(0o755)
  assert place.run(GRID, f'--program={program}') == 2
  assert states(place) == ['failed'] * 2 + ['waiting'] * 7
  out = capsys.readouterr().out
  assert 'trials 0000 and 0001 ended with the same input error' in out
  assert 'no further trial is begun: lmx: data.manual_dir: got no text file' in out
  assert 'trial 0001: failed (exit code 2)' in out  # its message is that of trial 0000
  assert place.run(GRID, f'--program={program}') == 2  # once more, as in the earlier session
  assert states(place) == ['failed'] * 3 + ['waiting'] * 6
  assert 'trials 0000 and 0002 ended with the same input error' in capsys.readouterr().out
  # Errors that differ between trials may come from their values, so the others run.
  program.write_text('#!/bin/sh\necho "lmx: optim.lr: $*" >&2\nexit 2\n')
  assert place.run(GRID, f'--program={program}') == 1
  assert states(place) == ['failed'] * 9


def test_jobs_run_side_by_side_each_with_its_own_environment(place):
  assert place.run(GRID, '--jobs=3', '--trials=6', '--env=SLOT=gpu{job}') == 0
  slots = [place.begun(number)[0].split()[1] for number in range(6)]
  assert set(slots) == {'gpu0', 'gpu1', 'gpu2'} and len(set(slots[:3])) == 3


def test_interrupted_trial_returns_to_its_worker(place):
  place.child(steps=2, seconds=0)
  place.dir.mkdir()
  here, argv = study.Identity.create(place.dir), (GRID, '--trials=2', '--jobs=2', '--env=SLOT={job}')
  store = study.Store(f'journal:{place.dir}/study.journal', 'sweep', 'minimize', 'grid', 0, here, 1)
  search = sweep.read_search(place.argv(GRID)[0].partition('=')[2], [])
  store.enqueue(2, search)
  mine: set[int] = set()
  for slot in (1, 0):
    trial = store.claim(2, mine)
    trial.set_user_attr('slot', slot)
    mine.add(trial.number)
  assert place.run(*argv) == 0
  assert [place.begun(number)[0].split()[1] for number in range(2)] == ['1', '0']


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGHUP])
def test_stopped_sweep_lets_runs_save(place, number):
  place.child(steps=20, seconds=0.1)
  process = start(place, '--jobs=2', '--trials=2', text=GRID)
  wait_for(lambda: count(place, 'metrics.jsonl') == 2, process)
  process.send_signal(number)
  said, _ = process.communicate(timeout=30)
  assert process.returncode == 75 and re.search('stopped; `python -m launch.sweep .*` continues', said)
  assert not any(jobs.Local().find(place.run_of(number)) for number in range(2))
  assert [trial.state.name for trial in place.study().trials] == ['RUNNING'] * 2
  place.child(steps=20, seconds=0)
  assert place.run(GRID, '--jobs=2', '--trials=2') == 0
  for number in range(2):
    assert (place.run_of(number) / 'steps.txt').read_text().split() == [str(step) for step in range(1, 21)]


def killed(place, url, *more, trials=20, moments=(3, 9, 15)):
  """Trials two at a time, with pruning; SIGKILL to the sweep at each moment, at the second to its runs as well."""
  place.child(steps=9, seconds=0.03)
  argv, struck, known = (f'--trials={trials}', '--jobs=2', '--pruner=asha', *more), set(), {}
  for turn, begun in enumerate(moments):
    process = start(place, *argv)
    wait_for(lambda begun=begun: count(place, 'metrics.jsonl') >= begun, process)
    process.kill()
    process.communicate()
    for number in range(trials):
      found = jobs.Local().find(place.run_of(number)) if turn == 1 and place.run_of(number).exists() else None
      if found:
        found.kill()
        struck.add(number)
    known |= {trial.number: trial.params for trial in place.study(url).trials if len(trial.params) == 2}
  process = start(place, *argv)
  said, _ = process.communicate(timeout=300)
  assert process.returncode == 0, said
  found = place.study(url).trials
  assert [trial.number for trial in found] == list(range(trials))
  assert {trial.state.name for trial in found} == {'COMPLETE', 'PRUNED'}, said
  assert sorted(path.name for path in (place.dir / 'trials').iterdir()) == [f'{number:04d}' for number in range(trials)]
  assert struck and len(known) >= moments[-1]
  assert all(found[number].params == params for number, params in known.items())
  for trial in found:
    steps = [int(step) for step in (place.run_of(trial.number) / 'steps.txt').read_text().split()]
    assert steps == list(range(1, len(steps) + 1)), f'trial {trial.number} was trained twice: {steps}'
    # Again only if its run was killed too, and not even then if it had been pruned.
    assert len(place.begun(trial.number)) <= 1 + (trial.number in struck), f'trial {trial.number} was begun again'
    assert trial.state.name == 'PRUNED' or len(steps) == 9
    seen = place.run_of(trial.number) / 'config.json'
    assert json.loads(seen.read_text())['settings'] == {key: repr(value) for key, value in trial.params.items()}
  assert len(place.table()) == trials and f'{trials}/{trials} trials' in said
  return said


def test_killed_twice_it_ends_with_all_trials_none_run_twice(place):
  killed(place, '', trials=8, moments=(2, 5))


@pytest.mark.slow
def test_killed_three_times_it_ends_with_20_trials_none_run_twice(place):
  killed(place, '')


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(3))
def test_sweep_by_space_killed_twice_at_random_moments_has_exactly_its_trials(place, seed):
  place.child(steps=9, seconds=0.03)
  rng, text = random.Random(seed), HEAD.partition('\n\n\ndef sweep')[0] + '\n'
  argv = ('--space', 'optim.lr=log:1e-4..1.0', '--space', 'model.dropout=0.1,0.2,0.5', '--trials=12', '--jobs=2')
  ended = {}
  for _ in range(2):
    process = start(place, *argv, text=text)
    wait_for(lambda: (place.dir / 'study.journal').exists(), process)
    time.sleep(rng.uniform(0.0, 2.5))
    process.kill()  # SIGKILL, whatever it was doing
    process.communicate()
    ended |= {t.number: (t.params, t.value) for t in place.study().trials if t.state.is_finished()}
  process = start(place, *argv, text=text)
  said, _ = process.communicate(timeout=300)
  assert process.returncode == 0, said
  trials = place.study().trials
  assert [trial.number for trial in trials] == list(range(12))
  assert {trial.state.name for trial in trials} == {'COMPLETE'} and '12/12 trials' in said
  assert all((trials[number].params, trials[number].value) == found for number, found in ended.items())
  assert sorted(path.name for path in (place.dir / 'trials').iterdir()) == [f'{number:04d}' for number in range(12)]
  for trial in trials:
    steps = (place.run_of(trial.number) / 'steps.txt').read_text().split()
    assert steps == [str(step) for step in range(1, 10)] and len(place.begun(trial.number)) == 1
  assert len(place.table()) == 12


@pytest.mark.slow
def test_killed_sweep_resumes_with_sqlite(place):
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


def test_trial_pruned_before_a_kill_stays_pruned(place):
  place.child(steps=2, seconds=0)
  assert place.run(SPACE, '--trials=1') == 0
  here = study.Identity.create(place.dir)
  store = study.Store(f'journal:{place.dir}/study.journal', 'sweep', 'minimize', 'tpe', 0, here, 1)
  store.enqueue(2, study.Search.create(spaces.space(optim__lr=[0.1])))
  store.claim(2, set()).set_user_attr('pruned_at', 2)
  assert place.run(SPACE, '--trials=2') == 0
  assert states(place) == ['done', 'pruned'] and not place.run_of(1).exists()


@pytest.mark.slow
def test_killed_three_times_with_postgresql_and_its_password_stays_hidden(place, postgres, monkeypatch):
  said = killed(place, postgres, f'--storage={postgres}')
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


@pytest.mark.slow
@pytest.mark.parametrize('pruner', ['median', 'hyperband'])
def test_pruner_stops_trials_of_lmx(tmp_path, root, capsys, monkeypatch, pruner):
  monkeypatch.chdir(root)
  folder = tmp_path / 'sweep'
  argv = ['--config=experiments/rnn_lm/quickstart.py:tiny', f'--workdir={folder}', '--trials=8', '--jobs=2']
  argv += ['--poll=0.1', '--sampler=random', f'--pruner={pruner}', '--config.samples.count=0']
  argv += ['--config.train.steps=20', '--config.train.eval_every=5', '--space', 'optim.lr=log:1e-4..1e-2']
  assert sweep.main(argv) == 0, capsys.readouterr()
  with (folder / 'trials.csv').open() as file:
    rows = list(csv.DictReader(file))
  done, pruned = ([row for row in rows if row['state'] == state] for state in ('done', 'pruned'))
  assert len(done) + len(pruned) == 8 and done and pruned
  for row in pruned:
    run = folder / 'trials' / row['trial']
    assert int(row['step']) < 20 and not (run / 'results.json').exists() and list((run / 'checkpoints').iterdir())
    assert float(row['loss']) > float(done[0]['loss'])


@pytest.mark.slow
def test_sweep_of_lmx_and_a_run_from_its_best_config(tmp_path, root, capsys, monkeypatch):
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
