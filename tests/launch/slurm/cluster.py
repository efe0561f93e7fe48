"""A real Slurm of two nodes on the loopback of this machine, and a program in place of lmx.

On Debian `apt-get install slurm-wlm munge` brings it.
"""

from __future__ import annotations

import os
import pathlib
import socket
import stat
import subprocess
import time

from launch import command
from launch.slurm import job as slurm_job
from launch.slurm.job import Job

DAEMONS = ('munged', 'slurmctld', 'slurmd')
# Stands in for `python -m lmx.cli.main`: says what reaches it, and ends as its first word asks.
PROGRAM = """#!/bin/bash
shift 2
restart=${SLURM_RESTART_COUNT:-0}
printf 'process %s of %s, restart %s, secret %s, other %s\\n' "$LMX_PROCESS_ID" "$SLURM_NTASKS" "$restart" \
  "${WANDB_API_KEY:+given}" "${OTHER_SECRET:-none}"
printf '%s\\0' "$@" > "words-$SLURM_JOB_ID"
case "$1" in
  exit) exit "$2" ;;
  again) if [ "$restart" -lt "$2" ]; then exit 75; fi ;;
  wait)
    trap 'echo told; exit 75' TERM
    if [ "$restart" -eq 0 ]; then echo waiting; for i in {1..300}; do sleep 0.1; done; exit 9; fi ;;
  deaf) trap '' TERM; echo waiting; for i in {1..1200}; do sleep 0.1; done ;;
  mixed) if [ "$LMX_PROCESS_ID" = 1 ]; then exit 2; fi; trap '' TERM; sleep 30 ;;
esac
"""
NASTY = ("it's", '"', '$(touch broken)', '`touch broken`', 'a\nb', ';', '&& touch broken', ' --', '--', '#', '*', '')


def run_of(*words, **more) -> command.Run:
  return command.Run(words, **more)


def wait(moment, seconds=60.0):
  """Return the result of `moment()` once it is true."""
  end = time.monotonic() + seconds
  while not (found := moment()):
    assert time.monotonic() < end, 'waited in vain'
    time.sleep(0.1)
  return found


def free_ports(count):
  sockets = [socket.socket() for _ in range(count)]
  for each in sockets:
    each.bind(('localhost', 0))
  found = [each.getsockname()[1] for each in sockets]
  for each in sockets:
    each.close()
  return found


class Cluster:
  """A Slurm of two nodes, both this machine."""

  def __init__(self, folder: pathlib.Path):
    self.folder, self.host = folder, socket.gethostname().partition('.')[0]
    self.nodes = (self.host, f'{self.host}b')
    self.environment = {**os.environ, 'SLURM_CONF': str(folder / 'slurm.conf')}
    self.daemons: list[subprocess.Popen] = []

  def configure(self) -> None:
    ports = free_ports(4)
    for name in ('state', 'run', *(f'spool-{node}' for node in self.nodes)):
      (self.folder / name).mkdir()
    nodes = [
      f'NodeName={node} NodeHostname={self.host} NodeAddr=127.0.0.1 Port={port} CPUs=2'
      for node, port in zip(self.nodes, ports[2:], strict=True)
    ]
    (self.folder / 'slurm.conf').write_text(f"""
ClusterName=test
SlurmctldHost={self.host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={self.folder}/run/munge,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool-%n
SlurmctldPidFile={self.folder}/run/slurmctld.pid
SlurmdPidFile={self.folder}/run/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=5
{chr(10).join(nodes)}
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")
    (self.folder / 'cgroup.conf').write_text('CgroupAutomount=no\n')
    (self.folder / 'munge.key').write_bytes(os.urandom(1024))
    (self.folder / 'munge.key').chmod(stat.S_IRUSR)

  def start(self) -> None:
    run = self.folder / 'run'
    self.daemon(
      'munged',
      '--foreground',
      '--force',
      f'--key-file={self.folder}/munge.key',
      f'--socket={run}/munge',
      f'--pid-file={run}/munged.pid',
      f'--log-file={run}/munged.log',
      f'--seed-file={run}/seed',
    )
    wait((run / 'munge').exists)
    self.daemon('slurmctld', '-D', '-c')
    for node in self.nodes:
      self.daemon('slurmd', '-D', '-N', node)
    wait(lambda: self.ask('sinfo', '--noheader', '--format=%D %T').strip() == '2 idle')

  def daemon(self, *argv: str) -> None:
    with (self.folder / f'{argv[0]}-{len(self.daemons)}.log').open('w') as log:
      self.daemons.append(subprocess.Popen(argv, env=self.environment, stdout=log, stderr=log))

  def stop(self) -> None:
    self.ask('scancel', f'--user={os.environ.get("USER", "root")}')
    for daemon in reversed(self.daemons):
      daemon.terminate()
    for daemon in reversed(self.daemons):
      try:
        daemon.wait(10)
      except subprocess.TimeoutExpired:
        daemon.kill()

  def ask(self, *argv: str) -> str:
    return subprocess.run(argv, env=self.environment, capture_output=True, text=True, check=False).stdout

  def state(self, job: str) -> str:
    """As in 'FAILED 2:0 1': state, exit code, restarts."""
    words = self.ask('scontrol', 'show', 'job', '--oneliner', job).split()
    found = dict(word.partition('=')[::2] for word in words)
    return f'{found.get("JobState")} {found.get("ExitCode")} {found.get("Restarts")}'

  def ended(self, job: str, seconds=60.0) -> str:
    over = lambda: None if (s := self.state(job)).split()[0] in ('PENDING', 'RUNNING', 'COMPLETING') else s
    return wait(over, seconds)


def submit(project, *words, commands=(), **more):
  job = Job(directory=str(project), python=str(project / 'program'), **more)
  return slurm_job.submit(job, run_of(*words, secrets=('WANDB_API_KEY',)), commands)


def output(project, job) -> str:
  return (project / f'runs/slurm/lmx-{job}.out').read_text()


def stand_in(project, root, program: str) -> None:
  """A project whose lmx is `program`, beside the real launchers."""
  (project / 'lmx/cli').mkdir(parents=True)
  (project / 'launch').symlink_to(root / 'launch')
  for name in ('__init__.py', 'cli/__init__.py'):
    (project / 'lmx' / name).touch()
  for name in ('errors.py', 'ranges.py'):
    (project / 'lmx' / name).symlink_to(root / 'lmx' / name)
  (project / 'lmx/cli/main.py').write_text(program)


def jobs_of(cluster) -> list[str]:
  return [
    line.split()[0].partition('=')[2]
    for line in cluster.ask('scontrol', 'show', 'job', '-o').splitlines()
    if line.startswith('JobId=')
  ]
