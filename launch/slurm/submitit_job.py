"""Submission through submitit (`launch.slurm --through=submitit`), and the task that it pickles for the nodes.

submitit calls the task's `checkpoint` when Slurm gives notice of the end. Imports no JAX.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shlex
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

from launch import command
from launch.slurm.job import CODE_FILE, ENVIRONMENT, Job, preflight_words
from lmx.errors import InputError


@dataclasses.dataclass
class Task:
  """A run's task, which submitit starts in every process of the job.

  Attributes:
    words: arguments after `lmx`.
    check: arguments of the preflight, () for none.
    python: the interpreter.
    directory: the project.
    env: variables to set.
    restarts: how often the job may be requeued.
    per_gpu: one process per GPU; JAX finds the others through Slurm.
    kept: file for the exit code, with {} for the job number; '' for none.
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
    self.last = False  # no restart

  def __call__(self) -> int:
    code = 0
    for words in (self.check, self.words):
      if words and not code:
        code = command.PREEMPTED if self.last else self._run(words)
    if command.is_restartable(code) and not self.last and int(os.environ.get('SLURM_RESTART_COUNT', 0)) < self.restarts:
      print(f'launch.slurm: ended with {code}; back into the queue', flush=True)
      if os.environ['SLURM_PROCID'] == '0':
        subprocess.run(['scontrol', 'requeue', os.environ['SLURM_JOB_ID']], check=True)
      while True:
        signal.pause()  # until Slurm ends this run of the job
    if self.kept:
      self._write_code(pathlib.Path(self.kept.format(os.environ['SLURM_JOB_ID'])), code)
    if code:
      raise RuntimeError(f'lmx ended with {code}; see its output above')
    return code

  def checkpoint(self) -> Any:
    """Let lmx save and requeue the task; submitit calls this at the time limit and at a preemption."""
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
    self.__dict__['child'] = child  # no field: it is not pickled
    signal.signal(signal.SIGUSR1, self._end)
    code = child.wait()
    self.__dict__.pop('child', None)
    return code if code >= 0 else 128 - code

  def _end(self, number: int, frame: Any) -> None:
    """Let lmx save, without a restart; handler of SIGUSR1."""
    del number, frame
    self.last = True
    child = self.__dict__.get('child')
    if child is not None:
      child.terminate()

  def _write_code(self, path: pathlib.Path, code: int) -> None:
    """Write the exit code: of several processes' the one that no restart fixes, else any that is not 0."""
    before = int(path.read_text(encoding='utf-8')) if path.exists() else 0
    if before and (not code or command.is_restartable(code)):
      return
    part = path.with_name(f'{path.name}.{os.environ["SLURM_PROCID"]}')
    part.write_text(f'{code}\n', encoding='utf-8')
    os.replace(part, path)


def cluster(env: Any, per_gpu: bool) -> dict[str, str]:
  """Return the variables by which lmx finds the other processes, from those that Slurm sets in each."""
  if env['SLURM_NTASKS'] == '1':
    return {}
  if per_gpu:
    return {'LMX_COORDINATOR': 'auto'}
  listing = subprocess.run(
    ['scontrol', 'show', 'hostnames', env['SLURM_JOB_NODELIST']],
    capture_output=True,
    encoding='utf-8',
    errors='replace',
    check=True,
  )
  hosts = listing.stdout.split()
  return {
    'LMX_HOSTS': ','.join(hosts),
    'LMX_COORDINATOR': f'{hosts[0]}:{20000 + int(env["SLURM_JOB_ID"]) % 10000}',
    'LMX_NUM_PROCESSES': env['SLURM_NTASKS'],
    'LMX_PROCESS_ID': env['SLURM_PROCID'],
  }


def check(job: Job) -> None:
  """Raise InputError if the job has options that submitit cannot pass on."""
  options = {'--setup': job.setup, '--sbatch': job.more, '--container': job.container}
  if given := [name for name, value in options.items() if value]:
    raise InputError(f'{" and ".join(given)}: got --through=submitit; expected --through=sbatch')


def submit(job: Job, run: command.Run, commands: Sequence[Sequence[str]] = ()) -> list[str]:
  """Submit through submitit; return the job numbers.

  Raises:
    InputError: submitit or Slurm is missing, or a secret is not set.
  """
  try:
    import submitit
  except ImportError:
    raise InputError('submitit is not installed: run `pip install "lmx[slurm]"`, or omit --through') from None
  run.secret_values()
  command.search_path('sbatch')
  logs = pathlib.Path(job.directory) / job.logs / '%j'
  executor = submitit.SlurmExecutor(folder=logs, python=shlex.quote(job.interpreter))
  executor.update_parameters(**parameters(job, run))
  runs = [dataclasses.replace(run, words=tuple(words)) for words in commands] or [run]
  kept = str(pathlib.Path(job.directory) / job.logs / CODE_FILE) if job.writes_code else ''
  tasks = [
    Task(
      each.words,
      preflight_words(job, each),
      job.interpreter,
      job.directory,
      dict(run.env),
      run.restarts,
      job.per_gpu,
      kept,
    )
    for each in runs
  ]
  return [each.job_id for each in executor.submit_array(tasks)]


def parameters(job: Job, run: command.Run) -> dict[str, object]:
  """Return the parameters of submitit's Slurm executor."""
  options = {
    name: command.check_directive(name, value)
    for name in ('partition', 'account', 'qos', 'mem', 'constraint', 'time')
    if (value := getattr(job, name))
  }
  return {
    'job_name': command.check_directive('name', job.name),
    'nodes': job.nodes,
    'ntasks_per_node': job.tasks,
    'signal_delay_s': job.notice,
    'array_parallelism': job.jobs or 256,
    **({'gpus_per_node': job.gpus} if job.gpus else {}),
    **({'cpus_per_task': job.cores} if job.cores else {}),
    **options,
    'additional_parameters': {'requeue': True, 'export': ','.join((*ENVIRONMENT, *run.secrets))},
    'setup': [
      'export SLURM_EXPORT_ENV=ALL',
      *[f'export SRUN_CPUS_PER_TASK={job.cores}'] * (job.cores > 0),
      f'cd {shlex.quote(job.directory)}',
      'export PYTHONPATH="$PWD"',
    ],
  }
