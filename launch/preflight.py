"""Check the hosts before a training: `lmx preflight` in every process, with the arguments of the training.

  python -m launch.preflight --processes=2 --devices=4 -- train --config=experiments/gpt2/quickstart.py --workdir=DIR

only runs the check, in local processes. The other launchers put `words(...)` before the training they start. The checks
and their messages are in lmx/cluster/preflight.py. Imports no JAX.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from launch import command, local
from lmx import ranges
from lmx.console import Console
from lmx.errors import InputError

SECONDS = 60  # jax-ml/jax#22436: a script started on one host only hangs without a message


def words(run: Sequence[str], *, processes: int | str = 0, devices: int = 0, seconds: int = 0) -> tuple[str, ...]:
  """Return the arguments of lmx that check the hosts of the training `run`; () for other commands.

  Args:
    run: arguments of lmx in the training.
    processes: expected number, or a shell expression for it; 0 to take it from the environment.
    devices: accelerators that each process must see; 0 for any number.
    seconds: time to wait for the other processes, 0 for SECONDS.
  """
  if not run or run[0] != 'train':
    return ()
  settings = command.config_options(run[1:], '--workdir')
  options = [f'--processes={processes}'] if processes else []
  options += [f'--devices={devices}'] if devices else []
  return ('preflight', '--prepare', *options, f'--timeout={seconds or SECONDS}', *settings)


def main(argv: Sequence[str] | None = None) -> int:
  """Entry point; returns the exit code."""
  return command.run_main('preflight', lambda streams: _main(argv, streams), argv is None)


def _main(argv: Sequence[str] | None, streams: Console) -> int:
  own, run = command.split(argv)
  parser = argparse.ArgumentParser(
    prog='python -m launch.preflight', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--processes', type=ranges.integer(1, 100_000), default=1, help='number of processes')
  parser.add_argument(
    '--devices', type=ranges.integer(0, 100_000), default=0, help='simulated CPU devices of each, 0 for the real ones'
  )
  parser.add_argument(
    '--timeout', type=ranges.integer(1, 1_000_000), default=SECONDS, help='seconds to wait for a process'
  )
  parser.add_argument('--dry_run', action='store_true', help='print the commands and run nothing')
  args = parser.parse_args(own)
  command.require_command(run)
  check = words(run, processes=args.processes, devices=args.devices, seconds=args.timeout)
  if not check:
    raise InputError(f'`lmx {run[0]}` needs no preflight; only `train` does')
  options = [f'--processes={args.processes}', f'--devices={args.devices}', *(['--dry_run'] if args.dry_run else [])]
  return local.launch([*options, '--', *check], streams)


if __name__ == '__main__':
  sys.exit(main())
