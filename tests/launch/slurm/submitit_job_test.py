"""Submission through submitit on a real Slurm, where both are installed."""

from __future__ import annotations

import sys

import pytest

from launch import submitted
from launch.slurm import submitit_job
from launch.slurm.job import Job
from tests.launch.slurm.cluster import NASTY, run_of, stand_in


def test_submitit_sets_process_environment(monkeypatch):
  assert submitit_job.cluster({'SLURM_NTASKS': '1'}, False) == {}
  assert submitit_job.cluster({'SLURM_NTASKS': '8'}, True) == {'LMX_COORDINATOR': 'auto'}


def test_task_of_a_job_queued_by_an_earlier_version_is_read():
  """Its pickle refers to the class by this name."""
  assert submitted.Task is submitit_job.Task


@pytest.mark.slow
def test_through_submitit(cluster, project, root):
  pytest.importorskip('submitit', reason='submitit is not installed: pip install lmx[slurm]')
  job = Job(directory=str(project), python=sys.executable, nodes=2)
  stand_in(
    project,
    root,
    'import os, sys\n'
    'print("words", sys.argv[1:], os.environ["LMX_PROCESS_ID"], os.environ["LMX_NUM_PROCESSES"],'
    ' os.environ["LMX_COORDINATOR"].partition(":")[0], os.environ["NOTE"], "WANDB_API_KEY" in os.environ,'
    ' "OTHER_SECRET" in os.environ)\n'
    'sys.exit(0 if os.environ.get("SLURM_RESTART_COUNT") else 75)\n',
  )
  run = run_of('list', *NASTY, env={'NOTE': 'a $(b)'}, secrets=('WANDB_API_KEY',))
  (number,) = submitit_job.submit(job, run)
  assert cluster.ended(number) == 'COMPLETED 0:0 1'
  said = [line for path in project.rglob('*.out') for line in path.read_text().splitlines()]
  for process in range(2):
    wanted = f'words {["list", *NASTY]} {process} 2 {cluster.host} a $(b) True False'
    assert said.count(wanted) == 2, said
