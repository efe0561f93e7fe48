"""`lmx evaluate --workdir=DIR [--split=test] [--which=best|last|STEP] [--config.data.eval_batch_size=1 ...]`."""

from __future__ import annotations

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--workdir', required=True, help='work directory of a run')
  parser.add_argument('--split', default='test', help='train, valid or test')
  parser.add_argument('--which', default='best', help="'best' on the validation split, 'last', or a step")
  parser.add_argument('--no-baselines', action='store_true', help='leave the n-gram models out')
  parser.add_argument('--json', action='store_true', help='print the figures as JSON')


def run(args: argparse.Namespace) -> int:
  from lmx import evaluate, restored

  which = int(args.which) if args.which.isdigit() else args.which
  run = restored.load(args.workdir, which, args.overrides)
  figures = evaluate.of_run(run, args.split, with_baselines=not args.no_baselines)
  print(json.dumps(figures, indent=1) if args.json else evaluate.summary(figures))
  return 0
