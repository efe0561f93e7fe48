"""`lmx export --workdir=DIR --to=OUT`: a folder that transformers loads (AWD-LSTM: fastai; ELMo: bilm-tf)."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
    '--workdir',
    required=True,
    help='work directory of a run of BERT, GPT, GPT-2, XLNet, Transformer-XL, Marian, AWD-LSTM or ELMo',
  )
  parser.add_argument('--to', required=True, help='folder to write')
  parser.add_argument(
    '--max_shard_size', default='', help='size of a file of weights at most, such as 200MB (default: 5GB)'
  )
  parser.add_argument('--which', default='best', help="'best' on the validation split, 'last', 'average', or a step")


def run(args: argparse.Namespace) -> int:
  from lmx.runs import convert

  for line in convert.export_run(args.workdir, args.to, args.which, args.max_shard_size):
    print(line)
  return 0
