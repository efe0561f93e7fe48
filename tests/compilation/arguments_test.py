"""Arguments of the programs in benchmarks/: help, and words that name nothing."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from benchmarks import maxtext, slices

ROOT = pathlib.Path(slices.ROOT)


@pytest.mark.parametrize('module', [maxtext, slices])
def test_unknown_words_are_answered_with_the_usage(module, capsys):
  before = module.RECORD.read_bytes()
  with pytest.raises(SystemExit, match=rf'(?s)has "nothing-has-this"\n\n.*python -m {module.__name__}'):
    module.main(['nothing-has-this'])
  module.main(['--help'])
  assert f'python -m {module.__name__}' in capsys.readouterr().out
  assert module.RECORD.read_bytes() == before


def test_gpu_script_refuses_unknown_parts_and_prints_its_usage(tmp_path):
  run = lambda *words: subprocess.run(['bash', ROOT / 'benchmarks/gpu.sh', *words], capture_output=True, text=True)
  usage, absent, wrong = run('--help'), run(), run(str(tmp_path), 'nopart')
  assert usage.returncode == 0 and 'benchmarks/gpu.sh DIR [PART...]' in usage.stdout
  assert absent.returncode == 2 and absent.stdout == usage.stdout
  assert wrong.returncode == 2 and 'got part "nopart"; expected one of: parity step switches' in wrong.stderr
