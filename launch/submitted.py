"""What submitit runs on the nodes for `launch.slurm --through=submitit`: one process of a run, seen to from outside.

submitit keeps the object that it runs and calls `checkpoint` when Slurm gives notice of the end. Imports no JAX.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import subprocess
from typing import Any

from launch import command


@dataclasses.dataclass
class Task:
  """A run as submitit starts it, in every process of the job.

  Attributes:
    words: what follows `lmx`.
    check: likewise for the check before it, () for none.
    python: the interpreter.
    directory: the project.
    env: variables to set.
    restarts: how often the job may go back into the queue.
    per_gpu: one process for each GPU, which JAX's own knowledge of Slurm sees to.
    kept: file for the exit code, with {} for the number of the job; '' for none.
  """

  words: tuple[str, ...]
  check: tuple[str, ...]
  python: str
  directory: str
  env: dict[str, str]
  restarts: int
  per_gpu: bool
  kept: str = ''

  def __post_init__(self):
    self.last = False  # told to end for good

  def __call__(self) -> int:
    code = 0
    for words in (self.check, self.words):
      if words and not code:
        code = command.PREEMPTED if self.last else self._run(words)
    if command.restartable(code) and not self.last and int(os.environ.get('SLURM_RESTART_COUNT', 0)) < self.restarts:
      print(f'launch.slurm: ended with {code}; back into the queue', flush=True)
      if os.environ['SLURM_PROCID'] == '0':
        subprocess.run(['scontrol', 'requeue', os.environ['SLURM_JOB_ID']], check=True)
      while True:
        signal.pause()  # until Slurm ends this run of the job
    if self.kept:
      self._keep(pathlib.Path(self.kept.format(os.environ['SLURM_JOB_ID'])), code)
    if code:
      raise RuntimeError(f'lmx ended with {code}; what it said stands above')
    return code

  def checkpoint(self) -> Any:
    """Called by submitit at the end of the time limit or a preemption: lets lmx save, then asks to be started again."""
    import submitit

    child = self.__dict__.pop('child', None)
    if child is not None:
      child.terminate()
      child.wait()
    return submitit.helpers.DelayedSubmission(self)

  def _run(self, words: tuple[str, ...]) -> int:
    env = {**os.environ, **self.env, **cluster(os.environ, self.per_gpu)}
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # Slurm signals lmx too, which has it from here
    child = subprocess.Popen([self.python, *command.MODULE, *words], cwd=self.directory, env=env)
    self.__dict__['child'] = child  # no field: it is not kept
    signal.signal(signal.SIGUSR1, self._end)
    code = child.wait()
    self.__dict__.pop('child', None)
    return code if code >= 0 else 128 - code

  def _end(self, number: int, frame: Any) -> None:
    """SIGUSR1: lets lmx save, and is not started again."""
    del number, frame
    self.last = True
    child = self.__dict__.get('child')
    if child is not None:
      child.terminate()

  def _keep(self, path: pathlib.Path, code: int) -> None:
    """Writes the code down: of several processes' one that no restart mends, else any that is not 0."""
    before = int(path.read_text()) if path.exists() else 0
    if before and (not code or command.restartable(code)):
      return
    part = path.with_name(f'{path.name}.{os.environ["SLURM_PROCID"]}')
    part.write_text(f'{code}\n')
    os.replace(part, path)


def cluster(env: Any, per_gpu: bool) -> dict[str, str]:
  """What lmx reads of the other processes, from the variables that Slurm sets in each."""
  if env['SLURM_NTASKS'] == '1':
    return {}
  if per_gpu:
    return {'LMX_COORDINATOR': 'auto'}
  found = subprocess.run(
    ['scontrol', 'show', 'hostnames', env['SLURM_JOB_NODELIST']], capture_output=True, text=True, check=True
  )
  hosts = found.stdout.split()
  return {
    'LMX_HOSTS': ','.join(hosts),
    'LMX_COORDINATOR': f'{hosts[0]}:{20000 + int(env["SLURM_JOB_ID"]) % 10000}',
    'LMX_NUM_PROCESSES': env['SLURM_NTASKS'],
    'LMX_PROCESS_ID': env['SLURM_PROCID'],
  }
