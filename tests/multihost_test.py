"""Two processes with four devices each, over gloo, do what one process with one device does."""

from __future__ import annotations

import pathlib
import sys

import numpy as np

from launch import local
from tests import engine_cases

# The last divides parameters over devices of both processes.
CASES = (
  'gpt2:{}',
  'bert:{}',
  'rnn_lm:{}',
  'rnn_lm:{"mode": "pmap"}',
  'gpt2:{"data": 1, "fsdp": 4, "tensor": 2}',
)


def environment(process: int, port: int) -> dict[str, str]:
  """Settings of one of the two processes."""
  added = local.environment(process, 2, 4, port)
  # These programs run for ten steps: compiling them fast is worth more than running them fast.
  flags = added['XLA_FLAGS'] + ' --xla_backend_optimization_level=0'
  return added | {'XLA_FLAGS': flags, 'PYTHONPATH': str(pathlib.Path(__file__).parents[1])}


def test_two_processes_are_one(tmp_path):
  # One test for all cases, so that test workers do not start a pair of processes each.
  out, first = str(tmp_path / 'results.npz'), str(tmp_path / 'start.npz')
  engine_cases.save_start(first, {case.partition(':')[0] for case in CASES})
  command = [sys.executable, engine_cases.__file__, out, first, *CASES]
  port = local.free_port()
  assert local.run(command, [environment(i, port) for i in range(2)], grace=2) == 0
  with np.load(out) as saved:
    results = dict(saved)
  assert results['devices'].tolist() == [2, 8, 4]
  deviations = {}
  for case in CASES:
    found = {k.removeprefix(f'{case}|'): v for k, v in results.items() if k.startswith(f'{case}|')}
    wanted = engine_cases.one_device(case.partition(':')[0])
    assert {k for k in wanted if "['eval']" not in k} == found.keys()
    deviations[case] = engine_cases.deviation(wanted, found)
  assert max(deviations.values()) < 1e-5, deviations
