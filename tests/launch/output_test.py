"""Launchers whose output is gone: a dry run ends, work continues, and its lines go to a log beside its record."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from launch import local, preflight
from launch.gce import __main__ as gce
from launch.gke import __main__ as gke
from launch.slurm import __main__ as slurm
from launch.sweep import __main__ as sweep
from launch.tables import __main__ as tables
from launch.tpu_vm import __main__ as tpu_vm
from lmx import console
from tests.launch.sweep.place import GRID
from tests.launch.tables.runs import SMALL

TRAIN = ['--', 'train', '--config=experiments/gpt2/quickstart.py', '--workdir=gone']
SHORT = {
  'tables --list': (tables.main, ['--list', 'quickstart']),
  'tables --help': (tables.main, ['--help']),
  'tables --dry_run': (tables.main, ['rnn_lm_ptb', SMALL, '--dry_run']),
  'local': (local.main, ['--dry_run', *TRAIN]),
  'preflight': (preflight.main, ['--dry_run', *TRAIN]),
  'slurm': (slurm.main, ['--dry_run', *TRAIN]),
  'gke': (gke.main, ['--dry_run', '--name=a', '--image=i', '--accelerator=v6e-4', *TRAIN[:-1], '--workdir=/gone']),
  'tpu_vm': (tpu_vm.main, ['--dry_run', '--name=a', '--zone=z', '--accelerator=v6e-4', '--delete']),
  'gce': (
    gce.main,
    ['--dry_run', '--name=a', '--zone=us-central1-a', '--project=p', '--accelerator=v6e-4', '--delete'],
  ),
  'sweep': (sweep.main, []),
}


@pytest.mark.parametrize('name', SHORT)
def test_lost_output_is_a_failure(name, unread, tmp_path, monkeypatch, capsys):
  main, words = SHORT[name]
  if name == 'sweep':
    pytest.importorskip('optuna', reason='needs the extra `sweep`')
    (tmp_path / 'bar.py').write_text(GRID)
    words = [f'--config={tmp_path}/bar.py', f'--workdir={tmp_path}/sweep', '--program=lmx', '--dry_run']
  with open('/dev/full', 'w') as full:
    for stdout, code in ((unread, console.UNREAD), (full, 2)):
      monkeypatch.setattr(sys, 'stdout', stdout)
      assert main(words) == code
  message = capsys.readouterr().err
  assert (
    message.count('cannot be written') == 1
    and f'launch.{name.split()[0]}: standard output: cannot be written' in message
  )


# Its first line is on the terminal; then the reader is gone, and process 1 writes more than a pipe holds.
CHILD = """
import os, sys, time
print('begun', flush=True)
while not os.path.exists('go'):
  time.sleep(0.01)
if os.environ['LMX_PROCESS_ID'] == '1':
  for number in range(20000):
    print('line', number)
"""
PARENT = 'import sys; from launch import local; local.PROGRAM = (sys.executable, "-c", {}); sys.exit(local.main())'


def test_processes_of_a_local_launcher_are_not_stopped(tmp_path, root):
  words = [sys.executable, '-c', PARENT.format(repr(CHILD)), '--processes=2', '--', 'train', '--workdir', 'run']
  environment = {**os.environ, 'PYTHONPATH': str(root)}
  process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
  lines = {process.stdout.readline() for _ in range(2)}
  assert lines == {b'begun\n', b'[1] begun\n'}
  process.stdout.close()
  (tmp_path / 'go').touch()
  assert process.wait(60) == 0
  log = (tmp_path / 'run/output.log').read_text().splitlines()
  assert 'standard output failed (Broken pipe); it continues here' in log[0] and log[-1] == '[1] line 19999'
