"""Every numeric option of every command has a range."""

from __future__ import annotations

import argparse
import ast
import pathlib

import pytest

from launch.slurm import __main__ as slurm
from lmx import ranges
from lmx.cli import main

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize(
  'read, given, value',
  [
    (ranges.integer(1, 10), '10', 10),
    (ranges.integer(-3), '-3', -3),
    (ranges.number(0), '1e-3', 1e-3),
    (ranges.number(0, 1, above=True), '1', 1.0),
    (ranges.seed, '4294967295', 2**32 - 1),
  ],
)
def test_values_in_range_are_accepted(read, given, value):
  assert read(given) == value


@pytest.mark.parametrize(
  'read, given',
  [
    *((ranges.integer(0), text) for text in ('-1', '1.5', 'x', '', '1' + 20 * '0', '9' * 5000, 'nan')),
    *((ranges.number(0), text) for text in ('-1e-9', 'nan', 'inf', '1e999', 'x', '')),
    (ranges.number(0, 1), '1.01'),
    (ranges.number(0, 1, above=True), '0'),
    (ranges.seed, '4294967296'),
  ],
)
def test_values_out_of_range_are_rejected(read, given):
  with pytest.raises(argparse.ArgumentTypeError, match='got .*; expected an? (integer|number) '):
    read(given)


@pytest.mark.parametrize(
  'words',
  [
    ['generate', '--workdir=x', '--seed=100000000000000000000'],
    ['generate', '--workdir=x', '--samples=100000000000000000000'],
    ['generate', '--workdir=x', '--tokens=100000000000000000000'],
    ['generate', '--workdir=x', '--temperature=nan'],
    ['translate', '--workdir=x', '--beam=0'],
    ['bench', 'gpt2', '--steps=0'],
    ['embed', '--workdir=x', '--batch=0'],
    ['context', '--workdirs=x', '--lengths=1:2:1', '--stride=0'],
  ],
)
def test_command_names_the_option_and_exits_with_2(words, capsys):
  assert main.main(words) == 2
  option = words[-1].split('=')[0]
  assert f'lmx: {option}: got ' in capsys.readouterr().err


@pytest.mark.parametrize('option', ['--nodes=0', '--restarts=-1', '--poll=nan', '--gpus=' + '9' * 20])
def test_launcher_names_the_option_and_exits_with_2(option, capsys):
  with pytest.raises(SystemExit) as end:
    slurm.main([option, '--', 'list'])
  assert end.value.code == 2 and f'argument {option.split("=")[0]}: got ' in capsys.readouterr().err


def test_no_option_is_read_without_a_range():
  for path in [*(ROOT / 'lmx').rglob('*.py'), *(ROOT / 'launch').rglob('*.py')]:
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.keyword) and node.arg == 'type' and isinstance(node.value, ast.Name):
        assert node.value.id not in ('int', 'float'), f'{path}, line {node.value.lineno}: use lmx.ranges'
