"""Compilation before anything is rented: the command, what it cannot do, and that a step that does not fit ends all."""

from __future__ import annotations

import sys

import pytest

from launch import accelerators, compile_first
from launch.tpu_vm import __main__ as tpu_vm
from lmx.compilation import cards
from lmx.compilation.slices import GENERATIONS, parse
from lmx.errors import InputError

TRAIN = ['train', '--config=experiments/gpt2/webtext.py:124m', '--workdir=gs://b/a', '--config.model.remat=full']


@pytest.mark.parametrize(
  'name, topology',
  [('v5litepod-16', 'v5e:4x4'), ('v5p-128', 'v5p:4x4x4'), ('v6e-4', 'v6e:2x2'), ('v4-8', 'v4:2x2x1')],
)
def test_command_names_the_slice_and_keeps_the_options(name, topology):
  command = compile_first.compile_command(TRAIN, accelerators.find(name, 'tpu_vm'))
  assert command == ['compile', f'--topology={topology}', TRAIN[1], TRAIN[3]]
  apart = ['train', '--workdir', 'gs://b/a', '--config', 'FILE']
  assert compile_first.compile_command(apart, accelerators.find(name, 'tpu_vm'))[2:] == ['--config', 'FILE']
  two = compile_first.compile_command(TRAIN, accelerators.find(name, 'tpu_vm'), 2)
  assert two[1] == f'--topology=2x{topology}' and str(parse(two[1].split('=')[1])).startswith('2 x ')


def test_names_of_launch_and_compile_agree():
  compiled = 0
  for name in accelerators.names():
    kind = name.rpartition('-')[0]
    if kind in GENERATIONS or kind in cards.GOOGLE:
      pool = kind in cards.GOOGLE or not accelerators.GENERATIONS[kind].runtime
      machine = accelerators.find(name, 'gke' if pool else 'tpu_vm')
      parsed = parse(compile_first.compile_command(TRAIN, machine)[1].split('=')[1])
      assert parsed.devices == machine.hosts * machine.devices, name
      assert parse(name) == parsed if isinstance(parsed, cards.Server) else parsed.google == name, name
      compiled += 1
  kinds = {name.rpartition('-')[0] for name in accelerators.names()}
  assert compiled and {*GENERATIONS, *cards.GOOGLE} <= kinds


@pytest.mark.parametrize(
  'words, name, number, message',
  [
    (['evaluate', '--workdir=a'], 'v5litepod-16', 1, 'expected `lmx train`'),
    (TRAIN, 'v3-8', 1, 'expected a TPU of v4, v5litepod, v5p, v6e, tpu7x or one machine of h100-80gb'),
    (TRAIN, 'h100-80gb-8', 2, 'got 2 of h100-80gb-8; expected a TPU .* or one machine'),
    (TRAIN, 'l4-8', 1, 'got l4-8'),
  ],
)
def test_uncompilable_models_are_reported(words, name, number, message):
  with pytest.raises(InputError, match=message):
    compile_first.compile_command(words, accelerators.find(name, 'tpu_vm' if name.startswith('v') else 'gke'), number)


@pytest.mark.parametrize('code', [0, 2])
def test_step_that_does_not_fit_starts_nothing(code, tmp_path, monkeypatch, capsys):
  """The stand-in for Python ends with `code`, gcloud notes that it was called."""
  for name, text in (('python', f'exit {code}'), ('gcloud', f'touch {tmp_path}/rented; exit 1')):
    (tmp_path / name).write_text(f'#!/bin/sh\n{text}\n')
    (tmp_path / name).chmod(0o755)
  monkeypatch.setattr(sys, 'executable', str(tmp_path / 'python'))
  monkeypatch.setenv('PATH', str(tmp_path), prepend=':')
  argv = ['--name=a', '--zone=z', '--accelerator=v5litepod-16', '--commit=HEAD', '--compile_first', '--', *TRAIN]
  assert tpu_vm.main(argv) != 0
  assert (tmp_path / 'rented').exists() == (code == 0)
  assert ('nothing was rented' in capsys.readouterr().err) == (code == 2)
