"""`python -m launch.sweep`: its options and messages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from launch import jobs
from launch.sweep import __main__ as sweep
from tests.launch.sweep.place import GRID, HEAD, SPACE

pytest.importorskip('optuna', reason='needs the extra `sweep`')


BAD = [
  (['--sampler=grid'], 'got ranges for optim.lr, model.dropout'),
  ([], 'give --trials=N'),
  (['--trials=2', '--metric=reward'], 'reward:min or :max'),
  (['--trials=2', '--metric=results.loss', '--pruner=asha'], 'is measured only at the end'),
  (['--trials=2', '--storage=somewhere'], 'expected journal, sqlite or a URL'),
  (['--trials=2', '--config.optim.lr=1', '--config.model.dropout=0'], 'every key is fixed'),
]


@pytest.mark.parametrize(('more', 'message'), BAD)
def test_invalid_input_is_reported_before_anything_runs(place, capsys, monkeypatch, more, message):
  monkeypatch.setattr(shutil, 'which', lambda name: None)
  assert place.run(SPACE, *more) == 2
  assert message in capsys.readouterr().err and not (place.dir / 'trials').exists()


@pytest.mark.parametrize('more', [['--jobs=0'], ['--pruner=best'], ['--env=GPU']])
def test_bad_arguments_exit_with_2(place, capsys, more):
  with pytest.raises(SystemExit) as error:
    place.run(SPACE, '--trials=1', *more)
  assert error.value.code == 2 and 'usage' in capsys.readouterr().err


def test_tilde_is_the_home_directory_of_this_machine(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  args = sweep.parse(['--config=a.py', '--workdir=~/sweep', '--runs=~/runs', '--where=slurm'])
  assert (args.workdir, args.runs) == (f'{tmp_path}/sweep', f'{tmp_path}/runs')


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    (['--workdir=~no_such_user/x'], '--workdir: got ~no_such_user/x; expected a user'),
    (['--workdir=a\0b'], '--workdir: got a zero byte'),
    (['--workdir=gs://bucket/x'], '--workdir: got gs://bucket/x; expected a folder on a disk'),
    (['--workdir=x', '--where=gke', '--runs=~/runs'], '--runs: got ~/runs with --where=gke; expected no ~'),
    (['--workdir=x', '--where=gke', '--runs=runs'], '--runs: got runs; expected gs://BUCKET/PATH'),
    (['--workdir=x', '--where=gke'], '--runs: got none with --where=gke, whose machines keep no files'),
    (['--workdir=x', '--runs=s3://b/x'], '--runs: got s3://b/x; expected a local path or gs://BUCKET/PATH'),
    (['--workdir=x', '--config=/'], '--config: got /, a folder; expected a file'),
  ],
)
def test_paths_that_cannot_be_used_are_reported(capsys, words, message):
  assert sweep.main(['--config=experiments/rnn_lm/quickstart.py', *words]) == 2
  assert message in capsys.readouterr().err


def test_no_such_file_no_sweep_and_too_many_points(place, capsys):
  assert sweep.main([f'--config={place.folder}/no.py', f'--workdir={place.dir}']) == 2
  assert '--config: got' in capsys.readouterr().err
  assert place.run(HEAD.partition('\n\n\ndef sweep')[0] + '\n') == 2
  assert 'no function sweep()' in capsys.readouterr().err
  assert place.run(GRID, '--trials=10') == 2
  assert 'has 9 points' in capsys.readouterr().err


def test_invalid_lmx_options_are_rejected_early(place, capsys):
  argv = ['--config=experiments/rnn_lm/quickstart.py:tiny', f'--workdir={place.dir}', '--trials=3']
  assert sweep.main([*argv, '--config.optim.lrr=1']) == 2
  assert (
    'optim.lrr: got a key that the config does not have; did you mean "lr"' in capsys.readouterr().err
    and not place.dir.exists()
  )


def test_data_are_read_before_the_first_trial(place, capfd):
  argv = ['--config=experiments/rnn_lm/quickstart.py:tiny', f'--workdir={place.dir}', '--trials=3']
  argv += ['--config.data.dataset=text_files', f'--config.data.manual_dir={place.folder}/none']
  assert sweep.main([*argv, '--space', 'optim.lr=1e-4..1e-2']) == 2
  assert f'{place.folder}/none: got no text file' in capfd.readouterr().err and not place.dir.exists()


def test_another_sweep_in_the_same_directory_is_rejected(place, capsys):
  place.child(steps=2, seconds=0)
  assert place.run(GRID, '--trials=1') == 0
  held = jobs.lock(next(place.dir.glob('.sweep-*')))
  assert place.run(GRID, '--trials=2') == 2
  os.close(held)
  assert 'another sweep on this machine uses it' in capsys.readouterr().err
  assert place.run(GRID, '--trials=2', '--config.train.steps=3') == 2
  assert "overrides: [] there, ['train.steps=3'] now" in capsys.readouterr().err


def test_without_optuna_the_extra_is_reported(place, capsys, monkeypatch):
  monkeypatch.setitem(sys.modules, 'optuna', None)
  assert place.run(GRID) == 2
  assert 'install the extra, pip install "lmx[sweep]"' in capsys.readouterr().err


def test_dry_run_prints_commands_and_makes_nothing(place, capsys):
  assert place.run(GRID, '--dry_run', '--config.train.steps=5', '--seeds=2') == 0
  lines = capsys.readouterr().out.splitlines()
  end = (
    f'train --config={place.folder}/bar.py --workdir={place.dir}/trials/0001/seed_1 --config.train.steps=5 '
    f"--config.optim.lr=0.1 '--config.model.kind='\"'\"'3'\"'\"'' --config.seed=1"
  )
  assert len(lines) == 6 and lines[3].endswith(end) and not place.dir.exists()


def test_password_is_hidden_in_errors_and_kept_from_runs(place, capsys, monkeypatch):
  url = 'postgresql://me:s3cret%2Fword@127.0.0.1:1/db'
  assert place.run(GRID, f'--storage={url}') == 2
  said = capsys.readouterr().err
  assert 'postgresql://me:***@127.0.0.1:1/db cannot be used' in said and 's3cret' not in said
  monkeypatch.setenv('PGPASSWORD', 's3cret')
  place.child(steps=2, seconds=0)
  assert place.run(GRID, '--trials=1') == 0
  assert place.begun(0)[0].split()[-1] == 'False'


def test_sweep_whose_output_is_gone_is_completed(place, unread, root):
  place.child(steps=2, seconds=0)
  grid = HEAD + '  yield from config.grid(optim__lr=[0.1, 0.01])\n'
  code = (
    'import sys; from launch.sweep import report, __main__; report.draw = lambda *_: None; sys.exit(__main__.main())'
  )
  words = [sys.executable, '-c', code, *place.argv(grid)]
  assert subprocess.run(words, cwd=root, stdout=unread, stderr=unread).returncode == 0
  assert '2/2 trials' in (place.dir / 'output.log').read_text() and (place.dir / 'table.md').exists()
