"""Job script of a training on Slurm, and its submission by `sbatch`. Imports no JAX."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shlex
import sys
from collections.abc import Sequence

from launch import command, preflight
from lmx.errors import InputError

# Variables that a job gets: enough to find programs and caches, and no secrets.
ENVIRONMENT = (
  'HOME',
  'USER',
  'PATH',
  'LANG',
  'LD_LIBRARY_PATH',
  'LMX_CACHE',
  'LMX_DATA',
  'XDG_CACHE_HOME',
  'LMX_COMPILATION_CACHE',
  'JAX_COMPILATION_CACHE_DIR',
)
RUNTIMES = ('pyxis', 'apptainer')  # srun's plug-in of enroot; a command around lmx
_TIME = re.compile(r'(\d+-\d+|\d+)(:\d+){0,2}|infinite|unlimited', re.ASCII | re.IGNORECASE)
_TIMES = ('time', 'time-min')  # options of sbatch that are durations
CORES = 4  # per GPU by default: for JAX's host threads and the workers that load data
CODE_FILE = '.code-{}'  # file with the exit code of a job with --wait, in the output folder


@dataclasses.dataclass(frozen=True)
class Job:
  """Resources and options of a Slurm job.

  Attributes:
    name: name of the job.
    nodes, gpus: number of nodes, and GPUs of a node.
    cpus: CPU cores of a process; 0 is the cluster's default, None is CORES for each of its GPUs.
    per_gpu: one process for each GPU rather than for each node.
    time, partition, account, qos, mem, constraint: as in sbatch, '' to leave out.
    notice: seconds between SIGTERM and the end of the time limit.
    jobs: elements of an array that run at once, 0 for all.
    logs: folder of the output files.
    directory: the project on the cluster.
    python: the interpreter there, '' for this one or, in a container, python3.
    setup: lines of shell to run first, such as `module load cuda`.
    more: further options of sbatch.
    writes_code: write the exit code to CODE_FILE.
    container: image in which every process runs, '' for none.
    runtime: what runs it, one of RUNTIMES.
    mounts: folders SOURCE:TARGET of the container, beside the project.
  """

  name: str = 'lmx'
  nodes: int = 1
  gpus: int = 0
  cpus: int | None = None
  per_gpu: bool = False
  time: str = ''
  partition: str = ''
  account: str = ''
  qos: str = ''
  mem: str = ''
  constraint: str = ''
  notice: int = 120
  jobs: int = 0
  logs: str = 'runs/slurm'
  directory: str = dataclasses.field(default_factory=os.getcwd)
  python: str = ''
  setup: tuple[str, ...] = ()
  more: tuple[str, ...] = ()
  writes_code: bool = False
  container: str = ''
  runtime: str = 'pyxis'
  mounts: tuple[str, ...] = ()

  def __post_init__(self):
    for name, least in {'nodes': 1, 'gpus': 0, 'cpus': 0, 'notice': 0, 'jobs': 0}.items():
      if (getattr(self, name) or 0) < least:
        raise InputError(f'--{name}: got {getattr(self, name)}; expected at least {least}')
    if self.per_gpu and not self.gpus:
      raise InputError('--per_gpu needs --gpus, the number of GPUs per node')
    if self.time:
      _check_time('--time', self.time)
    for name, value in map(_parse_option, self.more):
      if name in _TIMES:
        _check_time(f'--sbatch={name}', value)
    if self.runtime != RUNTIMES[0] and not self.container:
      raise InputError(f'--runtime={self.runtime}: got no --container; expected its image')
    if self.mounts and not self.container:
      raise InputError('--mount: got no --container; expected its image')
    for mount in self.mounts:
      if not re.fullmatch(r'/[^:,\s]*:/[^:,\s]*(:[a-z+]+)?', mount):
        raise InputError(f'--mount: got "{mount}"; expected /SOURCE:/TARGET, without commas and spaces')

  @property
  def interpreter(self) -> str:
    """Return the interpreter on the nodes."""
    return self.python or ('python3' if self.container else sys.executable)

  @property
  def tasks(self) -> int:
    """Return the processes of a node."""
    return self.gpus if self.per_gpu else 1

  @property
  def cores(self) -> int:
    """Return the CPU cores of a process, 0 for the default of the cluster."""
    return CORES * self.gpus // self.tasks if self.cpus is None else self.cpus


def _check_time(field: str, text: str) -> None:
  """Raise InputError if sbatch would not read a duration."""
  if not _TIME.fullmatch(text):
    raise InputError(
      f'{field}: got "{text}"; expected minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S or unlimited, such as 24:00:00'
    )


def _parse_option(text: str) -> tuple[str, str]:
  """Return name and value of an option of sbatch, '' for a flag."""
  name, _, value = text.removeprefix('--').partition('=')
  return name, value


def directives(job: Job, run: command.Run, elements: int) -> list[str]:
  """Return the options of sbatch, which may requeue the job."""
  options: dict[str, str | int] = {'job-name': job.name, 'nodes': job.nodes, 'ntasks-per-node': job.tasks}
  if job.gpus:
    options['gpus-per-node'] = job.gpus
  if job.cores:
    options['cpus-per-task'] = job.cores
  for name in ('time', 'partition', 'account', 'qos', 'mem', 'constraint'):
    if getattr(job, name):
      options[name] = getattr(job, name)
  options['output'] = f'{job.logs}/%x-%A_%a.out' if elements else f'{job.logs}/%x-%j.out'
  if elements:
    options['array'] = f'0-{elements - 1}' + (f'%{job.jobs}' if job.jobs else '')
  # B: only the shell of the script gets the signal; it signals the processes and then requeues the job.
  options |= {'open-mode': 'append', 'signal': f'B:TERM@{job.notice}', 'export': ','.join((*ENVIRONMENT, *run.secrets))}
  lines = [f'--{name}={command.check_directive(name, value)}' for name, value in options.items()]
  for name, value in map(_parse_option, job.more):
    lines.append(
      f'--{command.check_directive("sbatch", name)}' + (f'={command.check_directive(name, value)}' if value else '')
    )
  return [*lines, '--requeue']


# If one process fails, srun kills the others and returns the largest exit code, or the kill's. So a process with a
# permanent error writes its exit code to a file, which the script reads.
TASK = r"""
trap : TERM  # lmx has it too, saves and ends
export LMX_PROCESS_ID="$SLURM_PROCID"
"$@"
code=$?
if [ "$code" -ne 0 ] && [ "$code" -ne 75 ] && { [ "$code" -le 128 ] || [ "$code" -eq 130 ]; }; then
  echo "$code" > "$LMX_ENDED"
fi
exit "$code"
""".strip()

RUN = r"""
told=; child=; again=
export LMX_ENDED="$logs/.ended-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}"
tell() {  # by scancel, which signals the processes: srun takes the signal for an order to end them at once
  told=1
  if [ -n "$child" ]; then scancel --signal=TERM "$SLURM_JOB_ID"; fi
}
trap tell TERM
trap 'restarts=0; tell' USR1

processes() {  # runs the command in every process; the code is one that no restart mends, or what srun gives
  # Since Slurm 22.05 srun does not take over the cores of a process from the job.
  srun ${SLURM_CPUS_PER_TASK:+"--cpus-per-task=$SLURM_CPUS_PER_TASK"} --kill-on-bad-exit=1 bash -c "$task" lmx "$@" &
  child=$!
  wait "$child"
  code=$?
  while kill -0 "$child" 2>/dev/null; do  # the wait was ended by the signal
    wait "$child"
    code=$?
  done
  child=
  if [ -s "$LMX_ENDED" ]; then read -r code < "$LMX_ENDED"; rm -f "$LMX_ENDED"; fi
}

code=0
if [ ${#check[@]} -gt 0 ]; then processes "${check[@]}"; fi
if [ "$code" -eq 0 ] && [ -n "$told" ]; then code=75; fi  # before the training began
if [ "$code" -eq 0 ]; then processes "${command[@]}"; fi
if [ "$code" -eq 75 ] || { [ "$code" -gt 128 ] && [ "$code" -ne 130 ]; }; then
  state="$(scontrol show job --oneliner "$SLURM_JOB_ID" | grep -o 'JobState=[A-Z]*')"
  if [ "$state" = JobState=RUNNING ] && [ "${SLURM_RESTART_COUNT:-0}" -lt "$restarts" ]; then
    echo "launch.slurm: ended with $code; back into the queue (restart $((${SLURM_RESTART_COUNT:-0} + 1)) of $restarts)"
    scontrol requeue "$SLURM_JOB_ID" && again=1
    sleep 60  # until Slurm ends this run of the job
  fi
fi
""".strip()

WRITE_CODE = r"""
if [ -z "$again" ]; then echo "$code" > "$kept.part" && mv "$kept.part" "$kept"; fi
""".strip()


def script(job: Job, run: command.Run, commands: Sequence[Sequence[str]] = ()) -> str:
  """Return the job script.

  Args:
    job: resources and options.
    run: the run; its words are used unless there are `commands`.
    commands: lmx commands, one for each element of a job array.
  """
  array = [tuple(words) for words in commands]
  lines = ['#!/bin/bash', '# Made by python -m launch.slurm; sbatch takes it.']
  lines += [f'#SBATCH {line}' for line in directives(job, run, len(array))]
  lines += ['', 'set -u', 'export SLURM_EXPORT_ENV=ALL  # to srun, what this shell has', *command.export_lines(run.env)]
  lines += [f'cd {shlex.quote(job.directory)} || exit 2', 'export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"']
  lines += [*job.setup, '']
  if array:
    lines += ['case "$SLURM_ARRAY_TASK_ID" in']
    for number, words in enumerate(array):
      lines += [f'{number})', *_shell_arrays(job, dataclasses.replace(run, words=words)), ';;']
    lines += ['esac']
  else:
    lines += _shell_arrays(job, run)
  lines += [f'restarts={run.restarts}', f'logs={shlex.quote(job.logs)}', f'task={shlex.quote(TASK)}', '']
  if job.writes_code:
    lines += [f'kept="$logs/{CODE_FILE.format("$SLURM_JOB_ID")}"', 'rm -f "$kept"']
  processes = job.nodes * job.tasks
  if job.per_gpu:
    lines += ['export LMX_COORDINATOR=auto  # JAX knows Slurm, and gives each process of a node its own device']
  elif processes > 1:
    lines += [
      'LMX_HOSTS="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd, -)"',
      'LMX_COORDINATOR="${LMX_HOSTS%%,*}:$((20000 + SLURM_JOB_ID % 10000))"',
      f'export LMX_HOSTS LMX_COORDINATOR LMX_NUM_PROCESSES={processes}',
    ]
  run_all = RUN.replace(' bash -c "$task"', f' {pyxis(job)}bash -c "$task"')
  return '\n'.join([*lines, run_all, *([WRITE_CODE] if job.writes_code else []), 'exit "$code"', ''])


def pyxis(job: Job) -> str:
  """Return the options of srun that run a step in a container, with a space behind; '' without pyxis."""
  if not job.container or job.runtime != 'pyxis':
    return ''
  options = {'image': job.container, 'mounts': _mounts(job), 'workdir': job.directory}
  return ''.join(f'{shlex.quote(f"--container-{name}={value}")} ' for name, value in options.items())


def _mounts(job: Job) -> str:
  return ','.join([f'{job.directory}:{job.directory}', *job.mounts])


def _shell_arrays(job: Job, run: command.Run) -> list[str]:
  """Return the command and its preflight as arrays of the shell."""
  check = preflight_words(job, run)
  inside = ''
  if job.container and job.runtime == 'apptainer':
    gpus = ['--nv'] if job.gpus else []
    words = ['apptainer', 'exec', *gpus, '--bind', _mounts(job), '--pwd', job.directory, job.container]
    inside = f'{shlex.join(words)} '
  return [
    f'command=({inside}{command.lmx_command(run.words, job.interpreter)})',
    f'check=({inside + command.lmx_command(check, job.interpreter) if check else ""})',
  ]


def preflight_words(job: Job, run: command.Run) -> tuple[str, ...]:
  """Return the lmx arguments that check the hosts first, () for no check."""
  if not run.preflight:
    return ()
  devices = 1 if job.per_gpu else job.gpus
  return preflight.words(run.words, processes=job.nodes * job.tasks, devices=devices)


def submit(job: Job, run: command.Run, commands: Sequence[Sequence[str]] = ()) -> str:
  """Submit the script; return the job number, '' in a dry run, which prints the script.

  Raises:
    InputError: a secret is not set, or Slurm is missing.
    command.Failed: Slurm refuses the job.
  """
  text = script(job, run, commands)
  if run.dry_run:
    print(text, end='')
    return ''
  run.secret_values()
  (pathlib.Path(job.directory) / job.logs).mkdir(parents=True, exist_ok=True)
  argv = ['sbatch', '--parsable', f'--chdir={job.directory}']
  return command.Runner().read(argv, text).strip().partition(';')[0]
