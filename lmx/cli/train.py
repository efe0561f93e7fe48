"""`lmx train --config=FILE[:variant] --workdir=DIR [--config.section.key=value ...]`."""

from __future__ import annotations

import argparse
import os
import sys

from lmx import storage


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--config', required=True, help='experiment file, with optional :variant')
  parser.add_argument('--workdir', required=True, help='work directory; the same command resumes the run')


def announce(args: argparse.Namespace) -> None:
  """Print the first line of a training, before JAX is imported; only process 0 prints it."""
  if os.environ.get('LMX_PROCESS_ID', '0') != '0':
    return
  state = 'run'
  if not storage.is_remote(args.workdir):
    state = 'resumes the run' if os.path.exists(os.path.join(args.workdir, 'config.json')) else 'new run'
  print(f'train {args.config}: {state} in {args.workdir}', file=sys.stderr, flush=True)


def run(args: argparse.Namespace) -> int:
  from lmx.config import resolve

  config = resolve.load(args.config, args.overrides)
  from lmx.engine import distributed

  distributed.initialize()
  from lmx import train

  return train.train(config, args.workdir, command=['lmx', *sys.argv[1:]], began=args.began)
