"""`lmx import --from=DIR --workdir=OUT`: import published weights as a work directory.

The table that it prints has a line for each kind of tensor: read; renamed, with the name that the family has for it;
unused, with the reason; or newly initialised, because the files do not have it.
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
    '--from',
    dest='source',
    required=True,
    help='a transformers folder, hub:NAME or hub:NAME@REVISION to download one, or a folder with the released files '
    'of BERT, ELMo, GPT, GPT-2, XLNet, Transformer-XL, AWD-LSTM, fairseq or fastai; docs/notes/weights.md has '
    'a command for each',
  )
  parser.add_argument('--workdir', required=True, help='work directory to write')
  parser.add_argument(
    '--tokenizer',
    choices=('read', 'none'),
    default='read',
    help='none imports only the model, from a folder without tokenizer files; the run then cannot read text',
  )
  parser.add_argument(
    '--dry_run', action='store_true', help='read everything, print the tensor table, and write nothing'
  )


def run(args: argparse.Namespace) -> int:
  from lmx.interop import tensor_table
  from lmx.runs import convert

  imported = convert.read(args.source, args.workdir, args.overrides, with_tokenizer=args.tokenizer != 'none')
  print('\n'.join([*tensor_table.lines(imported.rows), *imported.lines, *imported.notes]))
  if args.dry_run:
    print(f'would write {args.workdir}: {convert.describe_files(imported)}')
    return 0
  convert.write(imported, args.workdir)
  print(f'wrote {args.workdir}: name it in --workdir of other commands, or in --config.train.init_from')
  return 0
