"""Train on a Slurm cluster: render a job script for `sbatch`, or submit through submitit (extra `slurm`).

  python -m launch.slurm --nodes=2 --gpus=8 --time=24:00:00 -- train --config=experiments/gpt2/webtext.py --workdir=DIR
  python -m launch.slurm --gpus=1 --commands=FILE --jobs=4

  python -m launch.slurm --gpus=8 --container=IMAGE --mount=/data:/data -- train ...

The second runs each line of FILE (`train --config=...`) as an element of a job array, four at once. The nodes must see
the current directory, which must be the project, and the Python that runs this command (or --python). With --container
each process runs in an image that has lmx's dependencies, by enroot (the plug-in pyxis of srun) or, with
--runtime=apptainer, by `apptainer exec`. The project is mounted; --mount mounts further folders, such as the data, the
caches ($LMX_DATA, $LMX_CACHE) and a work directory outside the project.

By default there is one process per node, with all its GPUs; with --per_gpu one per GPU. A job gets SIGTERM two minutes
before its time limit (--notice) and when it is preempted: lmx saves and exits with code 75, and the job is requeued, as
when a node fails. After other errors it is not requeued, and its exit code is lmx's. `scancel` ends it without a
restart, and `scancel --signal=USR1 --batch` lets lmx save first. With --wait=FILE the launcher waits (launch/wait.py).
Imports no JAX.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Sequence

from launch import command
from launch.slurm import submitit_job
from launch.slurm.job import CORES, RUNTIMES, Job, submit
from launch.slurm.wait import Waiter
from launch.wait import keep_output, submit_and_wait
from lmx import documents, ranges, storage
from lmx.console import Console
from lmx.errors import InputError


def main(argv: Sequence[str] | None = None) -> int:
  """Entry point; returns the exit code."""
  return command.run_main('slurm', lambda streams: _main(argv, streams), argv is None)


def _main(argv: Sequence[str] | None, streams: Console) -> int:
  own, words = command.split(argv)
  args = parser().parse_args(own)
  run = command.parse_run(args, words, kind='gpu' if args.gpus else '')
  commands: list[tuple[str, ...]] = []
  if args.wait and args.commands:
    raise InputError('--wait: got --commands; expected one lmx command')
  if args.commands:
    path = storage.path('--commands', args.commands, storage.FILE)
    try:
      commands = command.parse_commands(documents.read_lines(path))
    except InputError as error:
      raise InputError(f'--commands: {error}') from None
  if bool(words) == bool(commands):
    raise InputError('give either one lmx command after --, or --commands=FILE with one per line')
  for name in ('logs', 'directory', 'python'):  # the nodes see the files and the home directory of this machine
    if value := getattr(args, name):
      setattr(args, name, storage.check_path(f'--{name}', value, '' if name == 'python' else storage.FOLDER))
  fields = {field.name: getattr(args, field.name) for field in dataclasses.fields(Job) if hasattr(args, field.name)}
  job = Job(
    **{name: value for name, value in fields.items() if value is not None},
    setup=tuple(args.setup_lines),
    more=tuple(args.sbatch),
    mounts=tuple(args.mount),
    writes_code=bool(args.wait),
  )
  if args.through == 'submitit':
    submitit_job.check(job)
  keep_output(streams, args, pathlib.Path(job.directory, job.logs, 'launch.log'))
  if args.wait and not run.dry_run:
    return submit_and_wait('slurm', Waiter(job, run, args.through), args.wait, args.poll)
  if args.through == 'submitit' and not run.dry_run:
    print('\n'.join(submitit_job.submit(job, run, commands)))
    return 0
  number = submit(job, run, commands)
  if number:
    print(f'job {number}; its output goes to {job.directory}/{job.logs}. squeue shows it, scancel {number} ends it')
  return 0


def parser() -> argparse.ArgumentParser:
  """Return the parser of the launcher's own options."""
  parser = argparse.ArgumentParser(
    prog='python -m launch.slurm', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--nodes', type=ranges.integer(1, 1_000_000), default=1, help='number of nodes')
  parser.add_argument('--gpus', type=ranges.integer(0, 1000), default=0, help='GPUs of a node')
  parser.add_argument(
    '--cpus', type=ranges.integer(0, 100_000), help=f"CPU cores per process ({CORES} per GPU; 0: the cluster's default)"
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
  parser.add_argument('--commands', default='', metavar='FILE', help='lmx commands, one per line, for a job array')
  parser.add_argument(
    '--jobs', type=ranges.integer(0, 1_000_000), default=0, help='elements of the array that run at once, 0 for all'
  )
  parser.add_argument('--container', metavar='IMAGE', help='image to run in; its python3 unless --python is given')
  parser.add_argument('--runtime', choices=RUNTIMES, default='pyxis', help='what runs the container')
  parser.add_argument(
    '--mount', action='append', default=[], metavar='/FROM:/TO', help='folder of the container; repeatable'
  )
  parser.add_argument('--through', choices=('sbatch', 'submitit'), default='sbatch', help='what submits')
  command.add_arguments(parser)
  return parser


if __name__ == '__main__':
  sys.exit(main())
