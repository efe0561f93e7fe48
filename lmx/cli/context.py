"""`lmx context --workdirs=DIR,DIR --lengths=32:256:32 --output=DIR [--split=valid] [--tokens=4000] [--stride=1]
[--shares=0.1,0.5,1] [--which=best|last|average|STEP] [--config.evaluation.model.clamp=64 ...]`."""

from __future__ import annotations

import argparse

from lmx import ranges
from lmx.cli import which


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--workdirs', required=True, help='work directories of a group of models, separated by commas')
  parser.add_argument('--output', required=True, help='directory for context.json and context.png, or FILE.json')
  parser.add_argument(
    '--lengths', default='32:256:32', help='contexts in tokens, FIRST:LAST:STEP (default %(default)s)'
  )
  parser.add_argument('--split', default='valid', help='split to measure (default %(default)s)')
  parser.add_argument(
    '--tokens',
    type=ranges.integer(0),
    default=4000,
    help='tokens to measure, spread over the split; 0 is all (default %(default)s)',
  )
  parser.add_argument(
    '--stride',
    type=ranges.integer(1, 1_000_000),
    default=1,
    help='tokens that each window predicts; later ones see more than its length (default %(default)s: all see '
    'exactly the length)',
  )
  parser.add_argument('--shares', default='0.1,0.5,1', help='shares r of the hardest tokens (default %(default)s)')
  parser.add_argument(
    '--threshold', type=ranges.number(0), default=0.01, help='smallest gain that counts (default %(default)s)'
  )
  which.add_argument(parser)
  parser.add_argument(
    '--window_tokens',
    type=ranges.integer(1),
    default=4096,
    help='tokens per batch, rows times length (default %(default)s)',
  )


def run(args: argparse.Namespace) -> int:
  import pathlib

  from lmx.errors import InputError, explain
  from lmx.evaluation import context_length
  from lmx.reporting import plots, run_log

  lengths, shares = context_length.parse_lengths('--lengths', args.lengths), _shares(args.shares)
  output = pathlib.Path(args.output)
  output = output if output.suffix == '.json' else output / 'context.json'
  try:  # before the evaluation
    output.parent.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise InputError(f'{output.parent}: cannot be created ({explain(error)})') from None
  results = context_length.measure(
    [workdir for workdir in args.workdirs.split(',') if workdir],
    args.split,
    lengths,
    tokens=args.tokens,
    stride=args.stride,
    shares=shares,
    threshold=args.threshold,
    which=args.which,
    overrides=args.overrides,
    window_tokens=args.window_tokens,
  )
  run_log.write_json(str(output), results)
  plots.context_gains(output.with_suffix('.png'), results)
  print(context_length.table(results))
  return 0


def _shares(text: str) -> list[float]:
  from lmx.errors import InputError

  try:
    shares = [float(part) for part in text.split(',')]
  except ValueError:
    shares = [0.0]
  if not all(0 < share <= 1 for share in shares):
    raise InputError(f'--shares: got "{text}"; expected numbers above 0 and at most 1, separated by commas')
  return shares
