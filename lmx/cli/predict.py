"""`lmx predict --workdir=DIR --input=FILE`: the label or score of each row of a file, or of a split, as JSON lines.

  lmx predict --workdir=DIR --input=FILE.jsonl
  lmx predict --workdir=DIR --split=test --glue --output=FILE.tsv
"""

from __future__ import annotations

import argparse
import json
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--workdir', required=True, help='work directory of a trained classifier or regression')
  source = parser.add_mutually_exclusive_group(required=True)
  source.add_argument(
    '--input', help='.txt: a text a line; .jsonl, .tsv, .csv: rows with the texts and, optional, the label of the data'
  )
  source.add_argument('--split', help="a split of the run's own data")
  parser.add_argument('--which', default='best', help="'best' on the validation split, 'last', or a step")
  parser.add_argument('--glue', action='store_true', help="write the file that GLUE's test server takes")
  parser.add_argument('--output', default='', help='file to write; standard output without it')


def run(args: argparse.Namespace) -> int:
  from lmx import predictions, restored
  from lmx.data import pipeline
  from lmx.errors import InputError

  which = int(args.which) if args.which.isdigit() else args.which
  loaded = restored.load(args.workdir, which, args.overrides)
  labels: list[str] = []
  if args.input:
    rows = predictions.read(args.input, loaded)
    labels = [row.label for row in rows]
    found = predictions.of_rows(loaded, [row.texts for row in rows])
  else:
    found = predictions.said(loaded, pipeline.load(loaded.run.data), args.split)
  lines = ''.join(json.dumps(row, ensure_ascii=False) + '\n' for row in found)
  text = predictions.submission(loaded, found) if args.glue else lines
  try:
    if args.output:
      with open(args.output, 'w', encoding='utf-8') as file:
        file.write(text)
    else:
      print(text, end='')
  except OSError as error:
    raise InputError(f'{args.output}: cannot be written ({error.strerror})') from None
  given = sum(map(bool, labels))
  if given and loaded.run.objective_name != 'regress':
    right = sum(row['label'] == label for row, label in zip(found, labels, strict=True) if label)
    print(f'{right} of {given} documents with a label are right ({right / given:.1%})', file=sys.stderr)
  return 0
