"""`lmx predict --workdir=DIR --input=FILE`: the label of each line of a .txt or .jsonl file, as JSON lines."""

from __future__ import annotations

import argparse
import json
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--workdir', required=True, help='work directory of a trained classifier')
  parser.add_argument('--input', required=True, help='.txt: a text a line; .jsonl: {"text": ..., "label": optional}')
  parser.add_argument('--which', default='best', help="'best' on the validation split, 'last', or a step")


def run(args: argparse.Namespace) -> int:
  from lmx import predictions, restored

  which = int(args.which) if args.which.isdigit() else args.which
  loaded = restored.load(args.workdir, which, args.overrides)
  documents = predictions.read(args.input, predictions.label_names(loaded))
  right = given = 0
  for document, found in zip(documents, predictions.of_texts(loaded, [d.text for d in documents]), strict=True):
    print(json.dumps(found, ensure_ascii=False))
    given += bool(document.label)
    right += found['label'] == document.label
  if given:
    print(f'{right} of {given} documents with a label are right ({right / given:.1%})', file=sys.stderr)
  return 0
