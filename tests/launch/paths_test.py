"""Every option of a launcher that is a path refuses what can be none, and makes nothing."""

from __future__ import annotations

import os
import pathlib
import re

import pytest

from launch.gce import __main__ as gce
from launch.gke import __main__ as gke
from launch.slurm import __main__ as slurm
from launch.sweep import __main__ as sweep
from launch.tables import __main__ as tables
from launch.tpu_vm import __main__ as tpu_vm
from launch.wait import open_record
from lmx.errors import InputError
from tests import bad_paths

TRAIN = ('--', 'train', '--config=a.py')
TABLE = ('rnn_lm_ptb', '--dry_run')
SEARCH = ('--config=experiments/rnn_lm/quickstart.py', '--trials=1', '--dry_run')
OPTIONS = [  # launcher, option, other words, the wrong kind
  (tables, '--runs', TABLE, 'file'),
  (tables, '--data', TABLE, 'file'),
  (tables, '--data=ptb', TABLE, ''),
  (tables, '--output', ('rnn_lm_ptb', '--runs=folder', '--collect'), 'file'),
  (tables, '--pages', (), 'file'),
  (sweep, '--workdir', SEARCH, 'file'),
  (sweep, '--runs', (*SEARCH, '--workdir=w', '--where=slurm'), 'file'),
  (slurm, '--commands', (), 'folder'),
  (slurm, '--logs', ('--dry_run', *TRAIN), 'file'),
  (slurm, '--directory', ('--dry_run', *TRAIN), 'file'),
  (slurm, '--python', ('--dry_run', *TRAIN), ''),
  (slurm, '--wait', ('--dry_run', *TRAIN), 'folder'),
  (gke, '--wait', ('--name=a', '--image=i', '--accelerator=v6e-4', *TRAIN), 'folder'),
  (
    gce,
    '--logs',
    ('--dry_run', '--name=a', '--zone=us-central1-a', '--project=p', '--accelerator=v6e-4', *TRAIN),
    'file',
  ),
  (tpu_vm, '--wait', ('--dry_run', '--name=a', '--zone=z', '--accelerator=v6e-4', *TRAIN), 'folder'),
]


@pytest.mark.parametrize(
  ('launcher', 'option', 'words', 'wrong'),
  OPTIONS,
  ids=[f'{one[0].__name__.split(".")[1]} {one[1]}' for one in OPTIONS],
)
def test_option_rejects_invalid_paths(launcher, option, words, wrong, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  bad_paths.make(tmp_path)
  for title, value in {**bad_paths.BAD, **({'other kind': wrong} if wrong else {})}.items():
    if title == 'published weights' and option == '--data=ptb':
      continue  # `--data=bert_base=hub:NAME` is right
    if title == bad_paths.LATIN and option in ('--data=ptb', '--python', '--wait', '--commands'):
      continue  # a file of this machine can have such a name
    assert launcher.main([f'{option}={value}', *words]) == 2, title
    message = capsys.readouterr().err
    assert f'{option}: ' in message and message.count('\n') == 1, (title, message)
  assert bad_paths.is_untouched(tmp_path)


OWN_FILES = {  # options of launchers whose machines do not see this one's files
  gke: ('--name=a', '--image=i', '--accelerator=v6e-4'),
  gce: ('--name=a', '--zone=us-central1-a', '--project=p', '--accelerator=v6e-4'),
  tpu_vm: ('--name=a', '--zone=z', '--accelerator=v6e-4'),
}


@pytest.mark.parametrize('launcher', OWN_FILES)
def test_outputs_that_end_with_the_machines_are_refused(launcher, monkeypatch, capsys):
  monkeypatch.setenv('PATH', '/nowhere')
  for words in (
    ['train', '--workdir=runs/x'],
    ['train', '--config=a.py', '--workdir', 'runs/x'],
    ['train', '--workdir=~/x'],
    ['evaluate', '--workdir=gs://b/x', '--output=x.json'],
  ):
    option, value = re.search(r'(--workdir|--output)[ =]([^g]\S*)', ' '.join(words)).groups()
    for own in (OWN_FILES[launcher], (*OWN_FILES[launcher], '--dry_run')):
      assert launcher.main([*own, '--', *words]) == 2
      message = capsys.readouterr()
      assert f'{option}: got {value}; expected gs://BUCKET/PATH' in message.err and not message.out, words


def test_outputs_that_outlive_the_machines_are_accepted(monkeypatch, capsys):
  monkeypatch.setenv('PATH', '/nowhere')
  for word in ('--workdir=gs://b/x', '--workdir=/data/x', '--output=-', '--config.data.manual_dir=text'):
    assert gke.main([*OWN_FILES[gke], '--dry_run', '--', 'train', word]) == 0
    assert word in capsys.readouterr().out


def test_device_is_rejected_as_a_record():
  with pytest.raises(InputError, match='^/dev/zero: got a device'):
    open_record(pathlib.Path('/dev/zero'), {}).__enter__()
  assert not os.path.exists('/dev/zero.lock')
