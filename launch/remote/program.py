"""Command line that the launchers by ssh share. Imports no JAX."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from collections.abc import Sequence
from typing import Any

from launch import accelerators, command, compile_first
from launch.remote.job import Launch, find_commit
from launch.remote.wait import wait
from launch.wait import check_outputs, keep_output
from lmx import ranges, storage
from lmx.console import Console
from lmx.errors import InputError


def add_arguments(parser: argparse.ArgumentParser, example: str) -> None:
  """Add the options that launchers by ssh have, and those of every launcher."""
  parser.add_argument('--name', required=True, help='of the machine; an existing one is used')
  parser.add_argument('--zone', required=True, help="Google's zone, such as us-central1-a")
  parser.add_argument('--accelerator', required=True, help=f'such as {example}')
  parser.add_argument('--slices', type=ranges.integer(1, 100_000), default=1, help='TPU slices that train together')
  parser.add_argument('--spot', action='store_true', help='a machine that can be preempted')
  parser.add_argument('--internal', action='store_true', help='connect by internal addresses')
  parser.add_argument('--commit', default='', help='commit to run, the one checked out if not given')
  parser.add_argument('--compile_first', action='store_true', help='rent nothing unless the step compiles and fits')
  parser.add_argument('--delete', action='store_true', help='delete the machine when the run has ended')
  parser.add_argument('--logs', default='', help='folder for the logs of all hosts, runs/LAUNCHER/NAME if not given')
  command.add_arguments(parser, poll=20.0)


def main(kind: Any, parser: argparse.ArgumentParser, argv: Sequence[str] | None, streams: Console) -> int:
  """Run the launcher of machines of a `kind`, a dataclass that is a `job.Machines`; return the exit code."""
  own, words = command.split(argv)
  args = parser.parse_args(own)
  if not args.delete:
    command.require_command(words)
  check_outputs(words, kind.launcher)
  if args.logs:
    args.logs = storage.check_path('--logs', args.logs, storage.FOLDER)
    if '://' in args.logs:
      raise InputError(f'--logs: got {args.logs}; expected a folder of this machine')
  machines = kind(**{field.name: getattr(args, field.name) for field in dataclasses.fields(kind)})
  slice_ = accelerators.find(machines.accelerator, machines.launcher)
  run = command.parse_run(args, words, slice_)
  keep_output(streams, args)
  runner = command.Runner(run.dry_run)
  code = 0
  if words:
    if not run.dry_run:
      command.search_path('gcloud')
      run.secret_values()
    if args.compile_first:
      compile_first.check(words, slice_, machines.slices, args.flags, dry_run=run.dry_run)
    if args.wait and not run.dry_run:
      return wait(machines, run, args)
    launch = Launch(machines, run, find_commit(command.Runner(), args.commit), args.logs, args.poll)
    code = launch.run_to_end()
  if args.delete:
    machines.delete(runner)
  elif words and not run.dry_run:
    again = shlex.join(['python', '-m', f'launch.{machines.launcher}', *options(machines), '--delete'])
    launch.log(f'{machines.name} is kept and is still charged; `{again}` deletes it')
  return code


def options(machines: Any) -> list[str]:
  """Return the options that name the machines."""
  given = {field.name: getattr(machines, field.name) for field in dataclasses.fields(machines)}
  defaults = {field.name: field.default for field in dataclasses.fields(machines)}
  return [
    f'--{name}' if value is True else f'--{name}={value}' for name, value in given.items() if value != defaults[name]
  ]
