"""Train on a Cloud TPU VM: create or reuse the machine, copy the code, start all hosts, follow the log, restart.

  python -m launch.tpu_vm --name=NAME --zone=ZONE --accelerator=v5litepod-16 --delete -- train --config=... --workdir=gs://...

It copies the checked-out commit. lmx runs independently of the connection: training continues if the launcher ends, and
the same command follows it again; with --wait=FILE a signal to the launcher reaches lmx (launch/wait.py). If the
machine is preempted or lmx exits with code 75, the run resumes on a new machine, up to --restarts times. With --delete
the machine is deleted when the run has ended; with --delete and no command, at once. Secrets go through the
connection's standard input. Imports no JAX.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Sequence

from launch import accelerators, command, compile_first
from launch.tpu_vm.job import Launch, find_commit, log
from launch.tpu_vm.machine import Machine
from launch.tpu_vm.wait import wait
from launch.wait import keep_output
from lmx.console import Console


def main(argv: Sequence[str] | None = None) -> int:
  """Entry point; returns the exit code."""
  return command.run_main('tpu_vm', lambda streams: _main(argv, streams), argv is None)


def _main(argv: Sequence[str] | None, streams: Console) -> int:
  own, words = command.split(argv)
  args = _parser().parse_args(own)
  if not args.delete:
    command.require_command(words)
  machine = Machine(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Machine)})
  run = command.parse_run(args, words)
  keep_output(streams, args)
  runner = command.Runner(run.dry_run)
  code = 0
  if words:
    if not run.dry_run:
      command.search_path('gcloud')
      run.secret_values()
    if args.compile_first:
      compile_first.check(words, accelerators.find(machine.accelerator, pool=False), dry_run=run.dry_run)
    if args.wait and not run.dry_run:
      return wait(machine, run, args)
    code = Launch(machine, run, find_commit(command.Runner(), args.commit), args.poll).run_to_end()
  if args.delete:
    runner.read(machine.delete())
  elif words and not run.dry_run:
    log(f'{machine.name} is kept and is still charged; `{shlex.join(machine.delete())}` deletes it')
  return code


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog='python -m launch.tpu_vm', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--name', required=True, help='of the machine; one that is there is used')
  parser.add_argument('--zone', required=True, help="Google's zone, such as us-central1-a")
  parser.add_argument('--accelerator', required=True, help='such as v5litepod-16 or v6e-8')
  for name in ('project', 'version', 'service_account', 'network', 'subnetwork'):
    parser.add_argument(f'--{name}', default='', help='as in gcloud; its own choice without')
  parser.add_argument('--queued', action='store_true', help='ask by a queued resource, which waits for capacity')
  parser.add_argument('--spot', action='store_true', help='a machine that can be preempted')
  parser.add_argument('--reserved', action='store_true', help='a machine of a reservation')
  parser.add_argument('--internal', action='store_true', help='connect by internal addresses')
  parser.add_argument('--commit', default='', help='commit to run, the one checked out if not given')
  parser.add_argument('--compile_first', action='store_true', help='rent nothing unless the step compiles and fits')
  parser.add_argument('--delete', action='store_true', help='delete the machine when the run has ended')
  command.add_arguments(parser, poll=20.0)
  return parser


if __name__ == '__main__':
  sys.exit(main())
