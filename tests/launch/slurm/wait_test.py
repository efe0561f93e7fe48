"""`launch.slurm --wait` on a real Slurm of two nodes where one is installed."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

import pytest

from launch import command
from tests.launch.slurm.cluster import jobs_of, stand_in, wait

ROOT = pathlib.Path(__file__).parents[3]


def waiter(project, *words, wait='file', own=(), cwd=None) -> subprocess.Popen:
  """`python -m launch.slurm --wait` in a process of its own."""
  argv = [f'--wait={project / wait}', '--poll=0.3', f'--python={project / "program"}', f'--directory={project}', *own]
  return subprocess.Popen(
    [sys.executable, '-m', 'launch.slurm', *argv, '--', *words],
    stdout=subprocess.PIPE,
    text=True,
    cwd=cwd or ROOT,
  )


def saying(process: subprocess.Popen, text: str) -> None:
  """Reads what a process says up to a line."""
  while True:
    line = process.stdout.readline()
    assert line, f'it ended without saying {text}'
    if line.strip() == text:
      return


def test_launcher_exits_with_lmx_exit_code(cluster, project):
  """Two at once: one that fails, and one that goes back into the queue first."""
  failed, again = waiter(project, 'exit', '3', wait='a'), waiter(project, 'again', '1', wait='deep/b')
  (said, _), (more, _) = failed.communicate(timeout=120), again.communicate(timeout=120)
  assert (failed.returncode, again.returncode) == (3, 0), (said, more)
  lines = [line for line in said.splitlines() if line.startswith('process')]
  assert lines == ['process 0 of 1, restart 0, secret , other none']
  lines = [line.partition(', secret')[0] for line in more.splitlines() if line.startswith('process')]
  assert lines == ['process 0 of 1, restart 0', 'process 0 of 1, restart 1']
  assert not (project / 'a').exists() and not (project / 'deep/b').exists()
  assert not list((project / 'runs/slurm').glob('.code*'))


# Ends with 75 when it is told.
TOLD = """\
import os, signal, sys, time
def told(*_):
  print("told", flush=True)
  sys.exit(75)
signal.signal(signal.SIGTERM, told)
open(f"words-{os.environ['SLURM_JOB_ID']}", "a").write("begun ")
print("waiting", flush=True)
time.sleep(120)
"""


@pytest.mark.slow
@pytest.mark.parametrize('through', ['sbatch', 'submitit'])
def test_killed_launcher_resumes_its_job_and_forwards_signals(cluster, project, root, through):
  own = [f'--through={through}']
  if through == 'submitit':
    pytest.importorskip('submitit', reason='submitit is not installed: pip install lmx[slurm]')
    stand_in(project, root, TOLD)
    own.append(f'--python={sys.executable}')
  more = {'own': own, 'cwd': project if through == 'submitit' else None}
  before = jobs_of(cluster)
  first = waiter(project, 'wait', **more)
  saying(first, 'waiting')
  first.kill()
  first.communicate()
  second = waiter(project, 'wait', **more)
  time.sleep(2)
  assert second.poll() is None
  second.send_signal(signal.SIGTERM)
  said, _ = second.communicate(timeout=60)
  assert second.returncode == 75 and 'told' in said.split(), said
  (number,) = set(jobs_of(cluster)) - set(before)
  assert cluster.ended(number).endswith(' 0')  # and not once more into the queue
  assert not (project / 'file').exists() and not list((project / 'runs/slurm').glob('.code*'))


@pytest.mark.slow
def test_slurm_states_map_to_exit_codes(cluster, project):
  """Cancelled by hand, cancelled while it waits in the queue, deaf to the first signal, and gone from the cluster."""
  hand, deaf = waiter(project, 'wait', wait='a'), waiter(project, 'deaf', wait='b')
  queued = waiter(project, 'exit', '0', wait='c', own=['--sbatch=begin=now+600'])
  saying(hand, 'waiting')
  saying(deaf, 'waiting')
  cluster.ask('scancel', json.loads((project / 'a').read_text())['job'])
  deaf.send_signal(signal.SIGTERM)
  wait(lambda: (project / 'c').exists())
  queued.send_signal(signal.SIGTERM)
  said, _ = hand.communicate(timeout=60)
  assert hand.returncode == command.INTERRUPTED and 'ended as CANCELLED' in said, said
  queued.communicate(timeout=60)
  assert queued.returncode == 75
  assert deaf.poll() is None
  deaf.send_signal(signal.SIGTERM)
  deaf.communicate(timeout=60)
  assert deaf.returncode == 75
  (project / 'd').write_text(json.dumps({'job': '99999', 'says': [], 'kept': str(project / 'no'), 'through': 'sbatch'}))
  gone = waiter(project, 'exit', '0', wait='d')
  said, _ = gone.communicate(timeout=60)
  assert gone.returncode == 75 and 'ended as unknown to Slurm' in said


EXPERIMENT = """
from experiments import config
from experiments.rnn_lm import quickstart


def get_config(arg=''):
  return quickstart.get_config('tiny')


def sweep():
  yield from config.grid(optim__lr=[0.1, 0.01, 0.001, 0.5])
"""


@pytest.mark.slow
def test_sweep_of_jobs_that_is_killed_runs_every_trial_once(cluster, project, root):
  """SIGKILL to the sweep, and to one of the launchers that wait for its jobs."""
  pytest.importorskip('optuna', reason='needs the extra `sweep`')
  (project / 'bar.py').write_text(EXPERIMENT)
  child = shlex.join([sys.executable, str(root / 'tests/launch/sweep_child.py')])
  (project / 'program').write_text(f'#!/bin/sh\nshift 2\nexec {child} "$@"\n')
  options = f'--python={project}/program --directory={root} --logs={project}/logs --poll=0.3 --no-preflight'
  argv = [
    f'--config={project}/bar.py',
    f'--workdir={project}/sweep',
    '--poll=0.2',
    '--jobs=2',
    '--where=slurm',
    f'--launch={options} --name=worker{{job}}',
    '--env=SLOT={job}',
    '--env=CHILD=' + json.dumps({'steps': 12, 'seconds': 0.4}),
  ]
  before = jobs_of(cluster)
  start = lambda: subprocess.Popen(
    [sys.executable, '-m', 'launch.sweep', *argv], cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
  )
  process, trials = start(), project / 'sweep/trials'
  wait(lambda: len(list(trials.glob('*/metrics.jsonl'))) == 2 or process.poll() is not None, 120)
  process.kill()
  assert len(list(trials.glob('*/metrics.jsonl'))) == 2, process.communicate()
  os.kill(int((trials / '0001/.job').read_text()), signal.SIGKILL)
  process.communicate()
  process = start()
  said, _ = process.communicate(timeout=300)
  assert process.returncode == 0 and '4/4 trials' in said, said
  for number in range(4):
    folder = trials / f'{number:04d}'
    assert len((folder / 'begun.txt').read_text().splitlines()) == 1, said
    assert (folder / 'steps.txt').read_text().split() == [str(step) for step in range(1, 13)]
    assert not (folder / '.launched').exists()
  numbers = set(jobs_of(cluster)) - set(before)
  assert len(numbers) == 4
  names = {
    word
    for number in numbers
    for word in cluster.ask('scontrol', 'show', 'job', '-o', number).split()
    if word.startswith('JobName=')
  }
  assert names == {'JobName=worker0', 'JobName=worker1'}
