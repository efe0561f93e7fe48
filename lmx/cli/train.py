"""`lmx train --config=FILE[:variant] --workdir=DIR [--config.section.key=value ...]`."""

from __future__ import annotations

import argparse
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--config', required=True, help='experiment file, with optional :variant')
  parser.add_argument('--workdir', required=True, help='work directory; the same command resumes the run')


def run(args: argparse.Namespace) -> int:
  from lmx.engine import distributed

  distributed.initialize()
  from lmx import train
  from lmx.config import resolve

  return train.train(resolve.load(args.config, args.overrides), args.workdir, command=['lmx', *sys.argv[1:]])
