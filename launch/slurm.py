"""Trains on a Slurm cluster: renders a job script for `sbatch`, or submits through submitit (extra `slurm`).

  python -m launch.slurm --nodes=2 --gpus=8 --time=24:00:00 -- train --config=experiments/gpt2/webtext.py --workdir=DIR
  python -m launch.slurm --gpus=1 --commands=FILE --jobs=4

The second runs a line of FILE (`train --config=...`) in each element of a job array, four at once. The directory this
is called from must hold the project and be seen by the nodes, and so must the Python that calls it (or --python).

One process a node by default, which has all its GPUs; with --per_gpu one a GPU. A job is told two minutes before its
end (--notice) and when it is preempted: lmx saves and leaves with code 75, and the job is put back into the queue, as
it is when a node fails. After other errors it is not, and its exit code is lmx's. `scancel` ends it for good, and
`scancel --signal=USR1 --batch` lets lmx save first. With --wait=FILE the launcher waits (launch/waiting.py). Imports no
JAX.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import shlex
import sys
from collections.abc import Sequence

from launch import command, preflight, waiting
from lmx import ranges
from lmx.errors import InputError

# What else of the environment goes along: enough to find programs and caches, and none of the secrets that lie there.
ENVIRONMENT = (
  'HOME',
  'USER',
  'PATH',
  'LANG',
  'LD_LIBRARY_PATH',
  'LMX_CACHE',
  'LMX_DATA',
  'XDG_CACHE_HOME',
  'JAX_COMPILATION_CACHE_DIR',
)
CORES = 4  # of a GPU, unless the user says: JAX's host threads and the workers that load data
KEPT = '.code-{}'  # in the folder of the output files: the exit code of a job that is waited for


@dataclasses.dataclass(frozen=True)
class Job:
  """What is asked of Slurm.

  Attributes:
    name: of the job.
    nodes, gpus: number of nodes, and GPUs of a node.
    cpus: CPU cores of a process; 0 as the cluster has it, None CORES for each of its GPUs.
    per_gpu: one process for each GPU rather than for each node.
    time, partition, account, qos, mem, constraint: as in sbatch, '' to leave out.
    notice: seconds between SIGTERM and the end of the time limit.
    jobs: elements of an array that run at once, 0 for all.
    logs: folder of the output files.
    directory: the project on the cluster.
    python: the interpreter there.
    setup: lines of shell to run first, such as `module load cuda`.
    more: further options of sbatch.
    waited: writes its exit code to KEPT.
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
  python: str = sys.executable
  setup: tuple[str, ...] = ()
  more: tuple[str, ...] = ()
  waited: bool = False

  def __post_init__(self):
    for name, least in {'nodes': 1, 'gpus': 0, 'cpus': 0, 'notice': 0, 'jobs': 0}.items():
      if (getattr(self, name) or 0) < least:
        raise InputError(f'--{name} is {getattr(self, name)}; it must be at least {least}')
    if self.per_gpu and not self.gpus:
      raise InputError('--per_gpu needs --gpus, the number of GPUs of a node')

  @property
  def tasks(self) -> int:
    """Processes of a node."""
    return self.gpus if self.per_gpu else 1

  @property
  def cores(self) -> int:
    """CPU cores of a process, 0 as the cluster has it."""
    return CORES * self.gpus // self.tasks if self.cpus is None else self.cpus


def directives(job: Job, run: command.Run, elements: int) -> list[str]:
  """Options for sbatch: what is asked for, and that the job may be begun again."""
  found: dict[str, str | int] = {'job-name': job.name, 'nodes': job.nodes, 'ntasks-per-node': job.tasks}
  if job.gpus:
    found['gpus-per-node'] = job.gpus
  if job.cores:
    found['cpus-per-task'] = job.cores
  for name in ('time', 'partition', 'account', 'qos', 'mem', 'constraint'):
    if getattr(job, name):
      found[name] = getattr(job, name)
  found['output'] = f'{job.logs}/%x-%A_%a.out' if elements else f'{job.logs}/%x-%j.out'
  if elements:
    found['array'] = f'0-{elements - 1}' + (f'%{job.jobs}' if job.jobs else '')
  # B: the shell of the script alone is told; it tells the processes and then sees to the restart.
  found |= {'open-mode': 'append', 'signal': f'B:TERM@{job.notice}', 'export': ','.join((*ENVIRONMENT, *run.secrets))}
  lines = [f'--{name}={command.directive(name, value)}' for name, value in found.items()]
  for option in job.more:
    name, _, value = option.removeprefix('--').partition('=')
    lines.append(f'--{command.directive("sbatch", name)}' + (f'={command.directive(name, value)}' if value else ''))
  return [*lines, '--requeue']


# Where one process fails srun kills the others and gives the greatest code, or that of the killing. So a process that
# ends with a code that no restart mends writes it down, where the shell of the script reads it.
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

KEEP = r"""
if [ -z "$again" ]; then echo "$code" > "$kept.part" && mv "$kept.part" "$kept"; fi
""".strip()


def script(job: Job, run: command.Run, commands: Sequence[Sequence[str]] = ()) -> str:
  """The job script.

  Args:
    job: what is asked of Slurm.
    run: what is run; its words, unless there are `commands`.
    commands: lmx commands, one for each element of a job array.
  """
  array = [tuple(words) for words in commands]
  lines = ['#!/bin/bash', '# Made by python -m launch.slurm; sbatch takes it.']
  lines += [f'#SBATCH {line}' for line in directives(job, run, len(array))]
  lines += ['', 'set -u', 'export SLURM_EXPORT_ENV=ALL  # to srun, what this shell has', *command.exports(run.env)]
  lines += [f'cd {shlex.quote(job.directory)} || exit 2', 'export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"']
  lines += [*job.setup, '']
  if array:
    lines += ['case "$SLURM_ARRAY_TASK_ID" in']
    for number, words in enumerate(array):
      lines += [f'{number})', *_arrays(job, dataclasses.replace(run, words=words)), ';;']
    lines += ['esac']
  else:
    lines += _arrays(job, run)
  lines += [f'restarts={run.restarts}', f'logs={shlex.quote(job.logs)}', f'task={shlex.quote(TASK)}', '']
  if job.waited:
    lines += [f'kept="$logs/{KEPT.format("$SLURM_JOB_ID")}"', 'rm -f "$kept"']
  processes = job.nodes * job.tasks
  if job.per_gpu:
    lines += ['export LMX_COORDINATOR=auto  # JAX knows Slurm, and gives each process of a node its own device']
  elif processes > 1:
    lines += [
      'LMX_HOSTS="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd, -)"',
      'LMX_COORDINATOR="${LMX_HOSTS%%,*}:$((20000 + SLURM_JOB_ID % 10000))"',
      f'export LMX_HOSTS LMX_COORDINATOR LMX_NUM_PROCESSES={processes}',
    ]
  return '\n'.join([*lines, RUN, *([KEEP] if job.waited else []), 'exit "$code"', ''])


def _arrays(job: Job, run: command.Run) -> list[str]:
  """The command and the check before it as arrays of the shell."""
  check = _check(job, run)
  return [
    f'command=({command.lmx(run.words, job.python)})',
    f'check=({command.lmx(check, job.python) if check else ""})',
  ]


def _check(job: Job, run: command.Run) -> tuple[str, ...]:
  """What follows `lmx` to check the hosts first."""
  if not run.preflight:
    return ()
  devices = 1 if job.per_gpu else job.gpus
  return preflight.words(run.words, processes=job.nodes * job.tasks, devices=devices)


def submit(job: Job, run: command.Run, commands: Sequence[Sequence[str]] = ()) -> str:
  """Submits the script; returns the number of the job, '' in a dry run, which prints it.

  Raises:
    InputError: a secret is not set, or there is no Slurm here.
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


def submit_through_submitit(job: Job, run: command.Run, commands: Sequence[Sequence[str]] = ()) -> list[str]:
  """The same through submitit; returns the numbers of the jobs.

  Raises:
    InputError: submitit or Slurm is missing, or a secret is not set.
  """
  try:
    import submitit
  except ImportError:
    raise InputError('submitit is not installed: run `pip install "lmx[slurm]"`, or leave --through away') from None
  from launch import submitted

  if job.setup or job.more:
    raise InputError('--setup and --sbatch go with --through=sbatch, not with submitit')
  run.secret_values()
  command.path('sbatch')
  logs = pathlib.Path(job.directory) / job.logs / '%j'
  executor = submitit.SlurmExecutor(folder=logs, python=shlex.quote(job.python))
  executor.update_parameters(**parameters(job, run))
  runs = [dataclasses.replace(run, words=tuple(words)) for words in commands] or [run]
  kept = str(pathlib.Path(job.directory) / job.logs / KEPT) if job.waited else ''
  tasks = [
    submitted.Task(
      each.words, _check(job, each), job.python, job.directory, dict(run.env), run.restarts, job.per_gpu, kept
    )
    for each in runs
  ]
  return [each.job_id for each in executor.submit_array(tasks)]


def parameters(job: Job, run: command.Run) -> dict[str, object]:
  """What submitit's Slurm executor is told."""
  given = {
    name: command.directive(name, value)
    for name in ('partition', 'account', 'qos', 'mem', 'constraint', 'time')
    if (value := getattr(job, name))
  }
  return {
    'job_name': command.directive('name', job.name),
    'nodes': job.nodes,
    'ntasks_per_node': job.tasks,
    'signal_delay_s': job.notice,
    'array_parallelism': job.jobs or 256,
    **({'gpus_per_node': job.gpus} if job.gpus else {}),
    **({'cpus_per_task': job.cores} if job.cores else {}),
    **given,
    'additional_parameters': {'requeue': True, 'export': ','.join((*ENVIRONMENT, *run.secrets))},
    'setup': [
      'export SLURM_EXPORT_ENV=ALL',
      *[f'export SRUN_CPUS_PER_TASK={job.cores}'] * (job.cores > 0),
      f'cd {shlex.quote(job.directory)}',
      'export PYTHONPATH="$PWD"',
    ],
  }


def main(argv: Sequence[str] | None = None) -> int:
  """Entry point; returns the exit code."""
  return command.guarded('slurm', lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
  own, words = command.split(argv)
  args = _parser().parse_args(own)
  run = command.of(args, words)
  commands: list[tuple[str, ...]] = []
  if args.wait and args.commands:
    raise InputError('--wait is for one lmx command, not for --commands')
  if args.commands:
    try:
      commands = command.commands_of(pathlib.Path(args.commands).read_text().splitlines())
    except OSError as error:
      raise InputError(f'--commands: {error}') from None
  if bool(words) == bool(commands):
    raise InputError('give either one lmx command after --, or --commands=FILE with one a line')
  fields = {field.name: getattr(args, field.name) for field in dataclasses.fields(Job) if hasattr(args, field.name)}
  job = Job(
    **{name: value for name, value in fields.items() if value is not None},
    setup=tuple(args.setup_lines),
    more=tuple(args.sbatch),
    waited=bool(args.wait),
  )
  if args.wait and not run.dry_run:
    from launch import slurm_wait

    return waiting.to_end('slurm', slurm_wait.Waited(job, run, args.through), args.wait, args.poll)
  if args.through == 'submitit' and not run.dry_run:
    print('\n'.join(submit_through_submitit(job, run, commands)))
    return 0
  number = submit(job, run, commands)
  if number:
    print(f'job {number}; its output goes to {job.directory}/{job.logs}. squeue shows it, scancel {number} ends it')
  return 0


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog='python -m launch.slurm', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--nodes', type=ranges.integer(1, 1_000_000), default=1, help='number of nodes')
  parser.add_argument('--gpus', type=ranges.integer(0, 1000), default=0, help='GPUs of a node')
  parser.add_argument(
    '--cpus', type=ranges.integer(0, 100_000), help=f'CPU cores of a process ({CORES} a GPU; 0: as the cluster)'
  )
  parser.add_argument('--per_gpu', action='store_true', help='one process for each GPU rather than each node')
  for name in ('name', 'time', 'partition', 'account', 'qos', 'mem', 'constraint'):
    parser.add_argument(f'--{name}', help='as in sbatch')
  parser.add_argument(
    '--notice', type=ranges.integer(0, 1_000_000), default=120, help='seconds from SIGTERM to the end of the time limit'
  )
  parser.add_argument('--logs', default='runs/slurm', help='folder of the output files')
  parser.add_argument('--directory', help='the project on the cluster, this one if not given')
  parser.add_argument('--python', help='the interpreter there, this one if not given')
  parser.add_argument('--setup', dest='setup_lines', action='append', default=[], help='shell to run first; repeatable')
  parser.add_argument('--sbatch', action='append', default=[], metavar='NAME=VALUE', help='further option; repeatable')
  parser.add_argument('--commands', default='', metavar='FILE', help='lmx commands, one a line, for a job array')
  parser.add_argument(
    '--jobs', type=ranges.integer(0, 1_000_000), default=0, help='elements of the array that run at once, 0 for all'
  )
  parser.add_argument('--through', choices=('sbatch', 'submitit'), default='sbatch', help='what submits')
  command.add_arguments(parser)
  return parser


if __name__ == '__main__':
  sys.exit(main())
