"""Two and four processes with eight devices together, over gloo, do what one process with one device does."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from launch import command, local
from lmx import records
from lmx.checkpoint import manager
from lmx.engine import distributed
from lmx.reporting import ledger
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


def training(root, workdir, processes, *more, devices=4, environment=()):
  """A training by `launch.local`; `more` are its options and, with --config, those of the training."""
  own = [option for option in more if not option.startswith('--config')]
  argv = [
    *(
      sys.executable,
      '-m',
      'launch.local',
      f'--processes={processes}',
      f'--devices={devices // processes}',
      *own,
      '--',
    ),
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
    *(option for option in more if option not in own),
  ]
  env = {**os.environ, 'XLA_FLAGS': '', 'PYTHONPATH': str(root), **dict(environment)}
  return subprocess.Popen(argv, cwd=root, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process, code=0):
  output, _ = process.communicate(timeout=500)
  assert process.returncode == code, output
  return output


def params(workdir):
  found, _, step = manager.restore_params(workdir / 'checkpoints', None, 'last')
  assert step == 40
  return jax.tree.map(np.asarray, found)


def losses(workdir):
  return {record['step']: record['loss'] for record in records.read_metrics(workdir) if record['split'] == 'train'}


def wait_for(launcher, workdir, lines):
  """Wait until the log of a training has so many lines; return the ids of the launcher's processes."""
  log = workdir / 'metrics.jsonl'
  while launcher.poll() is None and (len(log.read_text().splitlines()) if log.exists() else 0) < lines:
    time.sleep(0.02)
  assert launcher.poll() is None, launcher.communicate()[0]
  return [int(x) for x in pathlib.Path(f'/proc/{launcher.pid}/task/{launcher.pid}/children').read_text().split()]


def assert_same(one, other):
  """Assert that two runs have the same parameters and predictions, to the bit."""
  jax.tree.map(np.testing.assert_array_equal, params(one), params(other))
  assert (one / 'rows.jsonl').read_bytes() == (other / 'rows.jsonl').read_bytes()


@pytest.fixture(scope='module')
def whole(root, tmp_path_factory):
  """Work directory of two processes that nothing has interrupted."""
  workdir = tmp_path_factory.mktemp('whole') / 'run'
  ended(training(root, workdir, 2))
  return workdir


with_proc = pytest.mark.skipif(not pathlib.Path('/proc/self/task').exists(), reason='looks for the processes in /proc')


def test_loss_of_another_process_is_recognised(monkeypatch):
  gloo = jax.errors.JaxRuntimeError('UNKNOWN: Gloo all-reduce failed: Connection closed by peer [10.0.0.2]:15038')
  full = jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Out of memory allocating 5 bytes')
  assert not distributed.is_lost(gloo)  # of a single process
  monkeypatch.setattr(jax, 'process_count', lambda: 2)
  assert distributed.is_lost(gloo) and not distributed.is_lost(full) and not distributed.is_lost(OSError('nccl'))


@pytest.mark.slow
@with_proc
def test_killed_process_has_all_started_again_and_the_end_is_the_same(root, tmp_path, whole):
  workdir, began = tmp_path / 'killed', time.time()
  launcher = training(root, workdir, 2, '--restarts=2', '--config.train.heartbeat=0.5')
  for victim, lines in ((1, 12), (0, 26)):  # the one that waits for the other, and the one that saves
    os.kill(wait_for(launcher, workdir, lines)[victim], signal.SIGKILL)
    time.sleep(1)
  assert ended(launcher).count('starting again') == 2
  assert_same(whole, workdir)
  times, wall = ledger.read(workdir), (workdir / 'logs' / ledger.FILE).stat().st_mtime - began
  assert times['sessions'] == 3 and sum(times['seconds'].values()) == pytest.approx(wall, rel=0.02)
  assert times['seconds']['redone'] > 0 and times['seconds']['between'] > 0
  assert records.read_results(workdir)['time']['goodput'] == pytest.approx(times['goodput'], rel=0.05)


@pytest.mark.slow
@with_proc
def test_hung_process_is_reported_and_all_are_started_again(root, tmp_path, whole):
  workdir, settings = tmp_path / 'hung', ('--config.train.heartbeat=1', '--config.train.watchdog=6')
  launcher = training(root, workdir, 2, '--restarts=1', '--grace=2', *settings)
  os.kill(wait_for(launcher, workdir, 12)[1], signal.SIGSTOP)
  output = ended(launcher)
  assert output.count('(process 1): no heartbeat for 3 heartbeats') == 1
  assert 'made no progress' in output and 'ended with 75; starting again' in output
  assert 'in _check_finite' in (workdir / 'logs/host-000.log').read_text()  # stack of the main thread
  assert_same(whole, workdir)


@pytest.mark.slow
@with_proc
def test_notice_of_preemption_saves_in_all_processes(root, tmp_path, whole, metadata_server):
  workdir = tmp_path / 'preempted'
  launcher = training(root, workdir, 2, environment={'GCE_METADATA_HOST': metadata_server.address})
  wait_for(launcher, workdir, 12)
  metadata_server.preempt()
  output = ended(launcher, 75)
  assert 'Compute Engine preempts this host' in output and 'stopped after update' in output
  stopped = manager.newest_step(workdir / 'checkpoints')
  assert stopped == max(losses(workdir)) < 40  # no update is lost
  ended(training(root, workdir, 2))
  assert_same(whole, workdir)


@pytest.mark.slow
@with_proc
@pytest.mark.skipif(not hasattr(os, 'getuid') or os.getuid() != 0, reason='mounts a small disk')
def test_full_disk_ends_the_run_and_the_same_command_resumes_it(root, tmp_path, whole):
  disk = tmp_path / 'disk'
  disk.mkdir()
  if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=32m', 'none', disk], check=False).returncode:
    pytest.skip('cannot mount a small disk')
  try:
    launcher = training(root, disk / 'run', 2)
    wait_for(launcher, disk / 'run', 12)
    with contextlib.suppress(OSError), (disk / 'other').open('wb', buffering=0) as other:
      while True:
        other.write(bytes(1 << 12))
    full = time.monotonic()
    output = ended(launcher, 2)
    assert time.monotonic() - full < 60  # process 0 does not wait for the other, which waits for it
    assert 'space' in output and 'Traceback' not in output
    (disk / 'other').unlink()
    assert manager.newest_step(disk / 'run/checkpoints') >= 5
    ended(training(root, disk / 'run', 2))
    assert_same(whole, disk / 'run')
  finally:
    subprocess.run(['umount', '-l', disk], check=False)


@pytest.mark.slow
@with_proc
@pytest.mark.parametrize(('axis', 'before', 'after'), [('data', 2, 1), ('fsdp', 2, 1), ('data', 1, 2)])
def test_run_continues_on_other_slices(root, tmp_path, whole, axis, before, after):
  """Each process stands for a slice of two devices; one is killed, and the same command resumes on `after` slices."""
  workdir, axes = tmp_path / 'run', ('--config.parallel.data=1', '--config.parallel.fsdp=-1') * (axis == 'fsdp')
  launcher = training(root, workdir, before, '--grace=2', *axes, devices=2 * before)
  os.kill(wait_for(launcher, workdir, 16)[-1], signal.SIGKILL)
  launcher.communicate()
  assert command.is_restartable(launcher.returncode)
  ended(training(root, workdir, after, *axes, devices=2 * after))
  found, expected = losses(workdir), losses(whole)
  assert found.keys() == expected.keys()  # the loss of an update shows which rows it had
  np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=0, atol=1e-5)


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
