"""`python -m launch.slurm`: its options, secrets and messages."""

from __future__ import annotations

import pytest

from launch.slurm.__main__ import main


def test_secrets_are_passed_by_name_and_required(monkeypatch, capsys):
  monkeypatch.setenv('WANDB_API_KEY', 'hidden-value')
  assert main(['--secret=WANDB_API_KEY', '--dry_run', '--', 'list']) == 0
  text = capsys.readouterr().out
  assert 'hidden-value' not in text and ',WANDB_API_KEY\n' in text
  monkeypatch.delenv('WANDB_API_KEY')
  assert main(['--secret=WANDB_API_KEY', '--', 'list']) == 2
  assert 'export it first' in capsys.readouterr().err
  assert main(['--secret=WANDB_API_KEY=hidden-value', '--', 'list']) == 2
  assert 'hidden-value' not in capsys.readouterr().err
  assert main(['--env=WANDB_API_KEY=hidden-value', '--', 'list']) == 2
  error = capsys.readouterr().err
  assert '--secret=WANDB_API_KEY' in error and 'hidden-value' not in error
  for url in (
    'postgresql://me:hidden-value@host/db',
    'redis://:hidden-value@host',
    'x=http://a:hidden-value@b:1/c d',
    'https://me@b.org:hidden-value@host/',
    'https://hidden-value@host/',
    'mysql://me:hidden-/value@host',
    'postgresql://host/db?user=me&password=hidden-value',
    'https://host/?access_token=hidden-value',
  ):
    assert main([f'--env=STORAGE={url}', '--dry_run', '--', 'list']) == 2
    error = capsys.readouterr().err
    assert '--env=STORAGE: got a URL with a password' in error and '--secret=STORAGE' in error
    assert 'hidden-value' not in error
  for url in ('postgresql://me@host:5432/db', 'gs://bucket/a:b@c', 'http://host:80/a@b?keys=c'):
    assert main([f'--env=STORAGE={url}', '--dry_run', '--', 'list']) == 0


@pytest.mark.parametrize(
  'argv, message',
  [
    ([], 'give either one lmx command'),
    (['--per_gpu', '--', 'list'], '--per_gpu needs --gpus'),
    (['--env=A', '--', 'list'], 'got no value'),
    (['--env=A B=c', '--', 'list'], 'expected the name of a variable'),
    (['--commands=no/such/file'], '--commands'),
    (['--commands=/'], '--commands: got /, a folder; expected a file'),
    (['--directory=/dev/null', '--', 'list'], '--directory: got /dev/null, a file; expected a folder'),
    (['--logs=~no_such_user/x', '--', 'list'], '--logs: got ~no_such_user/x; expected a user'),
    (['--commands=commands', '--wait=file'], '--wait: got --commands'),
    (['--', 'list'], 'there is no `sbatch` here: run this on a login node'),
  ],
)
def test_invalid_input_is_reported(argv, message, capsys, monkeypatch):
  monkeypatch.setenv('PATH', '/nowhere')
  assert main(argv) == 2
  assert message in capsys.readouterr().err


@pytest.mark.parametrize(
  'argv, message',
  [
    (['--container=i', '--through=submitit'], '--container: got --through=submitit; expected --through=sbatch'),
    (['--setup=a', '--sbatch=b', '--through=submitit'], '--setup and --sbatch: got --through=submitit'),
    (['--gpus=8', '--flags=v5e'], '--flags: got v5e, which is for v5e; expected a3, a4, flags'),
    (['--runtime=apptainer'], '--runtime=apptainer: got no --container'),
    (['--time=forever'], '--time: got "forever"; expected minutes'),
    (['--sbatch=time=1d'], '--sbatch=time: got "1d"; expected minutes'),
    (['--sbatch=--time'], '--sbatch=time: got ""; expected minutes'),
  ],
)
def test_dry_run_refuses_the_same_options(argv, message, capsys):
  for dry in ([], ['--dry_run']):
    assert main([*argv, *dry, '--', 'list']) == 2
    assert message in capsys.readouterr().err


def test_tilde_is_expanded_locally_in_options_only(tmp_path, monkeypatch, capsys):
  monkeypatch.setenv('HOME', str(tmp_path))
  (tmp_path / 'commands').write_text('train --config=a.py --workdir=~/run\n')
  for words in (['--', 'train', '--config=a.py', '--workdir=~/run'], ['--commands=~/commands']):
    assert main(['--logs=~/logs', '--python=~/bin/python', '--dry_run', *words]) == 0
    text = capsys.readouterr().out
    assert f'--output={tmp_path}/logs/' in text and f'{tmp_path}/bin/python -m' in text and "'--workdir=~/run'" in text
