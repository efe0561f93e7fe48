"""`lmx preflight --config=FILE --workdir=DIR`: check the hosts before a training (`lmx/cluster/preflight.py`).

It runs in every process of the training; the launchers run it before each training.
"""

from __future__ import annotations

import argparse

from lmx import ranges


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--config', required=True, help='experiment file of the training, with optional :variant')
  parser.add_argument('--workdir', required=True, help='work directory of the training')
  parser.add_argument(
    '--processes',
    type=ranges.integer(0, 1_000_000),
    default=0,
    help='expected number of processes, 0 for any number',
  )
  parser.add_argument(
    '--devices',
    type=ranges.integer(0, 1_000_000),
    default=0,
    help='devices that each process must have, 0 for any number',
  )
  parser.add_argument(
    '--timeout', type=ranges.number(0, 1e6, above=True), default=60.0, help='seconds to wait for a process'
  )
  parser.add_argument('--prepare', action='store_true', help='prepare the data set if it is missing')


def run(args: argparse.Namespace) -> int:
  from lmx.cluster import preflight

  setup = preflight.Setup(
    args.config, args.overrides, args.workdir, args.processes, args.devices, args.timeout, args.prepare
  )
  preflight.check(setup, lambda text: print(f'preflight: {text}', flush=True))
  return 0
