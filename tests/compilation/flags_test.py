"""Presets of compiler flags: their form, their sources, and the accelerators that they suit."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from launch import accelerators
from launch.gke import __main__ as gke
from lmx.compilation import cards, flags, slices
from lmx.errors import InputError


def test_presets_name_accelerators_flags_and_sources():
  for name, preset in flags.PRESETS.items():
    assert preset.accelerators and {*preset.accelerators} <= {*slices.CHIPS, *cards.CARDS}, name
    assert len({*preset.accelerators} & {*slices.CHIPS}) in (0, len(preset.accelerators)), name
    assert all(re.fullmatch(r'--xla_\w+=[\w,]*', flag) for flag in preset.flags), name
    assert len({flag.partition('=')[0] for flag in preset.flags}) == len(preset.flags), name
    assert re.match(r'github\.com/\S+ at [0-9a-f]{8}, \S', preset.source), name


def test_flags_go_to_the_variable_of_the_accelerator():
  v6e, a3 = (' '.join(flags.PRESETS[name].flags) for name in ('v6e', 'a3'))
  assert flags.resolve('v6e', 'v6e', 'tpu') == flags.resolve('v6e') == {'LIBTPU_INIT_ARGS': v6e}
  assert flags.resolve('a3', 'h100') == {'XLA_FLAGS': a3}
  assert flags.resolve('--a=1  --b', 'v4', 'tpu') == {'LIBTPU_INIT_ARGS': '--a=1 --b'}
  assert flags.resolve('--a', 'l4') == {'XLA_FLAGS': '--a'}
  assert flags.joined({'XLA_FLAGS': '--a=1'}, {'XLA_FLAGS': '--a=2'}) == {'XLA_FLAGS': '--a=1 --a=2'}  # the last wins


@pytest.mark.parametrize(
  ('text', 'accelerator', 'message'),
  [
    ('v6', '', 'got "v6"; expected flags, which begin with --, or one of v5e.*did you mean "v6e"'),
    ('v6e', 'v5p', 'got v6e, which is for v6e; expected v5p, sparsecore, flags that begin with -- for v5p'),
    ('a3', 'v4', 'got a3, which is for h100; expected flags that begin with -- for v4'),
  ],
)
def test_unsuitable_presets_are_reported(text, accelerator, message):
  with pytest.raises(InputError, match=message):
    flags.resolve(text, accelerator)


def test_launchers_set_the_flags_of_the_slice(capsys):
  argv = ['--name=a', '--image=i', '--dry_run', '--', 'train', '--config=a.py', '--workdir=gs://b/a']
  assert gke.main(['--accelerator=v6e-16', '--flags=v6e', '--env=LIBTPU_INIT_ARGS=--xla_x=1', *argv]) == 0
  value = ' '.join((*flags.PRESETS['v6e'].flags, '--xla_x=1'))
  assert f"export LIBTPU_INIT_ARGS='{value}'" in capsys.readouterr().out
  assert gke.main(['--accelerator=h100-80gb-8', '--flags=a3', *argv]) == 0
  assert "export XLA_FLAGS='--xla_gpu" in capsys.readouterr().out
  assert gke.main(['--accelerator=v5p-8', '--flags=v6e', *argv]) == 2
  assert '--flags: got v6e, which is for v6e' in capsys.readouterr().err


def test_names_of_accelerators_are_those_of_the_compiler():
  found = {accelerators.find(name, 'gke').compiled for name in accelerators.names() if name[:2] not in ('v2', 'v3')}
  assert found == {'', *slices.CHIPS, *cards.CARDS}


GPUS = [name for name, preset in flags.PRESETS.items() if preset.accelerators[0] in cards.CARDS]


@pytest.mark.parametrize('name', GPUS)
def test_installed_xla_knows_the_flags(name):
  """XLA ends the process on an unknown flag."""
  env = {**os.environ, 'XLA_FLAGS': flags.resolve(name)['XLA_FLAGS'], 'JAX_PLATFORMS': 'cpu'}
  code = 'import jaxlib.xla_client as x; x.make_cpu_client()'
  subprocess.run([sys.executable, '-c', code], env=env, check=True, capture_output=True)
