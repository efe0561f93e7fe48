"""`lmx predict --workdir=DIR --input=FILE`: a fine-tuned run's predictions on a file or split, as JSON lines.

lmx predict --workdir=DIR --input=FILE.jsonl                          labels or scores of rows
lmx predict --workdir=DIR --split=test --glue --output=FILE.tsv
lmx predict --workdir=DIR --input=FILE.conllu --output=FILE.conll     a label for each word
lmx predict --workdir=DIR --input=FILE.json --squad --output=FILE.json [--null_odds=FILE.json] [--n_best=5]
lmx predict --workdir=DIR --input=FOLDER --output=FOLDER [--masks=FOLDER]   a mask for each image, and a legend
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from lmx import ranges
from lmx.cli import which
from lmx.errors import InputError, writing

RUNS_OF_FORMAT = {
  'glue': 'runs of a task of GLUE',
  'conll': 'taggers',
  'squad': 'runs that answer questions',
  'null_odds': 'runs that answer questions',
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--workdir', required=True, help='work directory of a fine-tuned run')
  source = parser.add_mutually_exclusive_group(required=True)
  source.add_argument(
    '--input',
    help='rows: .txt (one text per line), .jsonl, .tsv or .csv with texts and optional labels; words to tag: .txt '
    '(one sentence per line), .conll, .conllu, or .jsonl with "tokens" and optional "tags"; questions: '
    ".json or .jsonl in SQuAD's format; each also as .gz. Images: .jpg or .png, or a folder of them",
  )
  source.add_argument('--split', help="a split of the run's own data")
  which.add_argument(parser)
  form = parser.add_mutually_exclusive_group()
  for name, text in (
    ('glue', "write the file that GLUE's test server takes"),
    ('conll', 'tagging: write columns, as for an output whose name ends in .conll'),
    ('squad', "questions: write the answers as SQuAD's evaluation reads them"),
  ):
    form.add_argument(f'--{name}', dest='form', action='store_const', const=name, default='', help=text)
  parser.add_argument('--null_odds', default='', help="file for the no-answer probabilities, SQuAD's --na-prob-file")
  parser.add_argument('--n_best', type=ranges.integer(0, 1_000_000), default=0, help='questions: candidates per answer')
  parser.add_argument(
    '--masks', default='', help='images: folder of true masks, PNG files named like the images; prints the metrics'
  )
  parser.add_argument(
    '--output', default='', help='file to write, for images a folder (default: JSON lines on standard output)'
  )


def run(args: argparse.Namespace) -> int:
  from lmx import inference
  from lmx.prediction import tasks
  from lmx.runs import restore

  loaded = inference.load(args.workdir, args.which, args.overrides)
  loaded.check('predict')
  task = tasks.get(loaded)
  if task.IMAGES:
    return _segment(loaded, args)
  if args.masks:
    raise InputError(f'--masks: got {args.masks}; {loaded.workdir} does not read images; omit it')
  formats = {args.output: args.form or ('conll' if args.output.endswith('.conll') else '')}
  formats |= {args.null_odds: 'null_odds'} if args.null_odds else {}
  for name in filter(None, formats.values()):
    if name not in task.FORMATS:
      raise InputError(
        f'--{name}: got it for {loaded.workdir} with objective "{loaded.run.objective_name}"; expected '
        f'{RUNS_OF_FORMAT[name]}; omit it'
      )
  predictions = loaded.predict(args.input, split=args.split or '', n_best=args.n_best)
  outputs = {path: predictions.text(name) if name else _lines(predictions) for path, name in formats.items()}
  for path, text in outputs.items():
    _write(path, text)
    if path:
      print(f'wrote {path}: {len(predictions):,} predictions', file=sys.stderr)
  for note in filter(None, (restore.checkpoint_note(loaded, args.which), *predictions.notes, predictions.score)):
    print(note, file=sys.stderr)
  return 0


def _segment(loaded: Any, args: argparse.Namespace) -> int:
  """Write masks of images, or print a line for each."""
  from lmx.prediction import segmentation
  from lmx.runs import restore

  for name in ('form', 'null_odds', 'n_best'):
    if getattr(args, name):
      given = getattr(args, name) if name == 'form' else name
      raise InputError(
        f'--{given}: got it for {loaded.workdir}, which reads images; expected a run that reads texts; omit it'
      )
  if args.masks and args.split:
    raise InputError(
      f'--masks: got {args.masks} with --split, which has its own masks; expected only one of them; omit it'
    )
  inputs = (
    segmentation.read_split(loaded, args.split)
    if args.split
    else segmentation.read_file(loaded, args.input, args.masks)
  )
  notes = [restore.checkpoint_note(loaded, args.which), *inputs.notes]
  if args.output:
    score, broken = segmentation.write(loaded, inputs, args.output)
    count = len(inputs.items) - len(broken.images)
    print(f'wrote {args.output}: {count:,} masks', file=sys.stderr)
  else:
    score, broken = segmentation.print_rows(loaded, inputs)
  for note in filter(None, (*notes, score)):
    print(note, file=sys.stderr)
  where = f'; the others are in {args.output}' if args.output else ''
  problems = [
    f'{len(messages):,} of {len(inputs.items):,} {what}: {"; ".join(list(messages.values())[:5])}'
    for messages, what in (
      (broken.images, f'images cannot be read{where}'),
      (broken.masks, 'images are predicted but not scored, because of their true masks'),
    )
    if messages
  ]
  if problems:
    raise InputError('\n'.join(problems))
  return 0


def _lines(predictions: Sequence[Mapping[str, Any]]) -> str:
  from lmx.reporting import run_log

  return ''.join(json.dumps(run_log.to_json(row), ensure_ascii=False) + '\n' for row in predictions)


def _write(path: str, text: str) -> None:
  """Write a file, or to standard output if `path` is ''."""
  from lmx.reporting import run_log

  with writing(path or 'standard output'):
    if path:
      run_log.write_text(path, text)
    else:
      print(text, end='', flush=True)
