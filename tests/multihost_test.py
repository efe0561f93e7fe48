"""Two and four processes with eight devices together, over gloo, do what one process with one device does."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from launch import local
from lmx.checkpoint import manager
from tests import engine_cases, saved_rows

# The last two divide parameters over devices of both processes.
CASES = (
  'gpt2:{}',
  'bert:{}',
  'rnn_lm:{}',
  'rnn_lm:{"mode": "pmap"}',
  'gpt2:{"data": 1, "fsdp": 4, "tensor": 2}',
  'rnn_lm:{"data": 1, "fsdp": 4, "tensor": 2}',
)


def environment(process: int, processes: int, port: int) -> dict[str, str]:
  """Settings of one of the processes."""
  added = local.environment(process, processes, 8 // processes, port)
  # These programs run for ten steps: compiling them fast is worth more than running them fast.
  flags = added['XLA_FLAGS'] + ' --xla_backend_optimization_level=0'
  return added | {'XLA_FLAGS': flags, 'PYTHONPATH': str(pathlib.Path(__file__).parents[1])}


@pytest.mark.parametrize(
  ('processes', 'cases'), [(2, CASES[5:]), *(pytest.param(n, CASES, marks=pytest.mark.slow) for n in (2, 4))]
)
def test_several_processes_match_one(tmp_path, processes, cases):
  # One test for all cases, so that test workers do not start a pair of processes each.
  out, first = str(tmp_path / 'results.npz'), str(tmp_path / 'start.npz')
  engine_cases.save_start(first, {case.partition(':')[0] for case in cases})
  command = [sys.executable, engine_cases.__file__, out, first, *cases]
  port = local.free_port()
  assert local.run(command, [environment(i, processes, port) for i in range(processes)], grace=2) == 0
  with np.load(out) as saved:
    results = dict(saved)
  assert results['devices'].tolist() == [processes, 8, 8 // processes]
  deviations = {}
  for case in cases:
    found = {k.removeprefix(f'{case}|'): v for k, v in results.items() if k.startswith(f'{case}|')}
    wanted = engine_cases.one_device(case.partition(':')[0])
    assert {k for k in wanted if "['eval']" not in k} == found.keys()
    deviations[case] = engine_cases.deviation(wanted, found)
  assert max(deviations.values()) < 1e-5, deviations


def training(root, workdir, processes, *more):
  """A training by `launch.local`, which starts its processes again when one is killed."""
  argv = [
    sys.executable,
    '-m',
    'launch.local',
    f'--processes={processes}',
    f'--devices={4 // processes}',
    *more,
    '--',
    'train',
    '--config=experiments/rnn_lm/quickstart.py:tiny',
    f'--workdir={workdir}',
    '--config.data.batch_size=6',  # which four devices do not divide
    '--config.train.steps=40',
    '--config.train.eval_every=20',
    '--config.train.log_every=1',
    '--config.checkpoint.every_steps=5',
    '--config.evaluation.baselines=false',
    '--config.evaluation.save_rows=true',
    '--config.samples.count=0',
  ]
  env = {**os.environ, 'XLA_FLAGS': '', 'PYTHONPATH': str(root)}
  return subprocess.Popen(argv, cwd=root, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process):
  output, _ = process.communicate(timeout=500)
  assert process.returncode == 0, output
  return output


def params(workdir):
  found, _, step = manager.restore_params(workdir / 'checkpoints', None, 'last')
  assert step == 40
  return jax.tree.map(np.asarray, found)


def children(pid: int) -> list[int]:
  return [int(x) for x in pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text().split()]


@pytest.mark.slow
@pytest.mark.skipif(not pathlib.Path('/proc/self/task').exists(), reason='looks for the processes in /proc')
def test_killed_process_has_all_started_again_and_the_end_is_the_same(root, tmp_path):
  ended(training(root, tmp_path / 'whole', 2))
  launcher, log = training(root, tmp_path / 'killed', 2, '--restarts=2'), tmp_path / 'killed/metrics.jsonl'
  for victim, steps in ((1, 12), (0, 26)):  # the one that waits for the other, and the one that saves
    while launcher.poll() is None and (len(log.read_text().splitlines()) if log.exists() else 0) < steps:
      time.sleep(0.02)
    os.kill(children(launcher.pid)[victim], signal.SIGKILL)
    time.sleep(1)
  assert ended(launcher).count('starting again') == 2
  jax.tree.map(np.testing.assert_array_equal, params(tmp_path / 'whole'), params(tmp_path / 'killed'))
  assert (tmp_path / 'whole/rows.jsonl').read_bytes() == (tmp_path / 'killed/rows.jsonl').read_bytes()


@pytest.mark.slow
def test_training_of_several_processes_matches_one(root, tmp_path):
  for processes in (1, 2, 4):
    ended(training(root, tmp_path / str(processes), processes))
  for processes in (2, 4):
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
    jax.tree.map(close, params(tmp_path / '1'), params(tmp_path / str(processes)))
    one, other = (saved_rows.check(tmp_path / str(n)) for n in (1, processes))
    for name in ('loss', 'tokens'):
      np.testing.assert_allclose([row[name] for row in other], [row[name] for row in one], rtol=1e-4)
