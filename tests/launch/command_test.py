"""Commands of a file."""

from __future__ import annotations

import subprocess
import sys

import pytest

from launch import command
from lmx.errors import InputError


def test_commands_of_a_file():
  lines = ['# a comment', '', 'lmx train --a="x y"', "train '--b=$(z)'  # why"]
  assert command.parse_commands(lines) == [('train', '--a=x y'), ('train', '--b=$(z)')]
  with pytest.raises(InputError, match='line 1'):
    command.parse_commands(["train 'open"])


# module of a launcher -> libraries that it does without, beside JAX and NumPy
STARTED = {
  'local': (),
  'preflight': (),
  'submitted': (),
  'slurm.__main__': (),
  'gke.__main__': ('yaml',),
  'tpu_vm.__main__': ('yaml',),
  'gce.__main__': ('yaml',),
  'sweep.__main__': ('optuna', 'matplotlib'),
  'sweep.report': ('optuna', 'matplotlib'),
}


@pytest.mark.parametrize('name', STARTED)
def test_launchers_start_without_jax(name, root):
  heavy = {'jax', 'numpy', *STARTED[name]}
  code = f'import sys, launch.{name}; sys.exit(bool({heavy} & sys.modules.keys()))'
  assert subprocess.run([sys.executable, '-c', code], cwd=root, check=False).returncode == 0
