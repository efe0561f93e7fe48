"""`lmx evaluate --workdir=DIR [--config=FILE[:variant]] [--split=test] [--which=best|last|average|STEP]
[--cache=500,0.1,1] [--mixture=trigram:0.5] [--ensemble=DIR,DIR] [--translations=FILE]
[--by_length=FILE.png --beside=DIR,DIR] [--attention=64:256:64] [--output=FILE.json] [--save_rows=DIR]
[--config.evaluation.batch_size=1 ...]`.

`lmx evaluate --workdir=DIR --pairs=DIR [--protocol=lmx|blimp|babylm2025|harness] [--subset=babylm|seen]
[--which=...|all]`: accuracy on minimal pairs, by paradigm, phenomenon and field.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from typing import Any

from lmx import records
from lmx.cli import minimal_pairs, which


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--workdir', required=True, help='work directory of a run')
  parser.add_argument(
    '--config', default='', help="experiment file with data, objective and evaluation that replace the run's"
  )
  parser.add_argument(
    '--split', default='', help='train, valid, test or another; without it test, or evaluation.split of --config'
  )
  which.add_argument(parser, 'all', "; with --pairs also 'all', every checkpoint")
  parser.add_argument('--no-baselines', action='store_true', help='do not evaluate the baselines')
  parser.add_argument('--cache', metavar='WINDOW,LAMBDA,THETA', help='also evaluate with a continuous cache')
  parser.add_argument(
    '--mixture', metavar='NAME[:WEIGHT]', help="also evaluate mixed with an n-gram model: 'trigram' or 'kneser_ney'"
  )
  parser.add_argument(
    '--ensemble',
    default='',
    help='work directories of further runs, separated by commas; evaluates the mean',
  )
  parser.add_argument('--translations', default='', help='file for the translations of the split (evaluation.beam)')
  parser.add_argument('--by_length', default='', help='picture of BLEU by source length (evaluation.beam)')
  parser.add_argument('--beside', default='', help='further runs for this picture, separated by commas')
  parser.add_argument(
    '--attention',
    metavar='FIRST:LAST:STEP',
    help='evaluate at these attention lengths, with memory or overlapping windows; report the shortest of the best',
  )
  parser.add_argument('--output', default='', help='file to write the metrics to, as JSON')
  parser.add_argument(
    '--save_rows',
    default='',
    metavar='DIR',
    help='folder for the prediction of every row (rows.jsonl) and the metrics with a 95%% interval (results.json), '
    'which lmx compare reads',
  )
  parser.add_argument('--json', action='store_true', help='print the metrics as JSON')
  minimal_pairs.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
  from lmx.errors import InputError
  from lmx.evaluation import report, translation
  from lmx.evaluation import rows as row_files
  from lmx.reporting import run_log

  if args.beside and not args.by_length:
    raise InputError('--beside: got it without --by_length; expected both, because it names runs for that picture')
  minimal_pairs.check(args)
  if args.attention:
    return _evaluate_attention(args)
  folder = _rows_folder(args.save_rows) if args.save_rows else None
  if args.pairs:
    return minimal_pairs.run(args, folder)
  metrics, objective, outputs, rows = _evaluate_ensemble(args) if args.ensemble else _evaluate_run(args)
  translations = [one for one in outputs if isinstance(one, translation.TranslatedPair)]
  if args.translations:
    if not translations:
      raise InputError('--translations: got an ensemble that translates nothing; omit it')
    translation.write(args.translations, translations)
  print(json.dumps(metrics, indent=1) if args.json else report.summary(metrics, objective))
  if args.by_length:
    translation.draw(args.by_length, metrics, [name for name in args.beside.split(',') if name])
  if args.output:
    run_log.write_json(args.output, metrics)
    print(f'wrote {args.output}', file=sys.stderr)
  if folder is not None:
    row_files.write(folder, rows)
    run_log.write_json(str(folder / records.RESULTS), metrics)
    print(f'wrote {folder}: {metrics["rows"]["count"]:,} rows', file=sys.stderr)
  return 0


def _rows_folder(path: str) -> pathlib.Path:
  """Create the folder of --save_rows and return it. Raises InputError for a run's work directory."""
  from lmx.errors import InputError, writing

  folder = pathlib.Path(path)
  for name, what in ((records.CONFIG, 'the work directory of a run'), (records.NGRAMS, 'a saved n-gram model')):
    if (folder / name).exists():
      raise InputError(f'--save_rows: got {folder}, {what}; expected another folder')
  with writing(path):
    folder.mkdir(parents=True, exist_ok=True)
  return folder


def _evaluate_attention(args: argparse.Namespace) -> int:
  from lmx.errors import InputError
  from lmx.evaluation import attention_length, context_length
  from lmx.reporting import run_log

  for name in ('config', 'cache', 'mixture', 'ensemble', 'translations', 'by_length', 'save_rows'):
    if getattr(args, name):
      raise InputError(f'--{name}: got it with --attention; expected only one of them; omit --{name}')
  lengths = context_length.parse_lengths('--attention', args.attention)
  overrides = [*args.overrides, 'evaluation.baselines=false']
  metrics = attention_length.measure(args.workdir, args.which, overrides, args.split or 'test', lengths)
  print(json.dumps(metrics, indent=1) if args.json else attention_length.table(metrics))
  if args.output:
    run_log.write_json(args.output, metrics)
    print(f'wrote {args.output}', file=sys.stderr)
  return 0


def _evaluate_ensemble(args: argparse.Namespace) -> Any:
  from lmx.errors import InputError
  from lmx.evaluation import ensemble

  for name in ('config', 'cache', 'mixture', 'by_length', 'save_rows'):
    if getattr(args, name):
      raise InputError(f'--{name}: got it with --ensemble; expected one run; omit it')
  workdirs = [args.workdir, *args.ensemble.split(',')]
  return ensemble.evaluate(workdirs, args.split or 'test', args.which, args.overrides)


def _evaluate_run(args: argparse.Namespace) -> Any:
  from lmx.config import resolve
  from lmx.errors import InputError
  from lmx.evaluation import report, translation
  from lmx.runs import restore

  cache = [f'evaluation.cache=({args.cache})'] if args.cache else []
  mixed = _mixture(args.mixture) if args.mixture else []
  saved = ['evaluation.save_rows=true'] if args.save_rows else []
  replacement = resolve.load(args.config).to_dict() if args.config else None
  # The baselines are evaluated even if the run's own final evaluation skipped them.
  baselines = ['evaluation.baselines=false'] * args.no_baselines
  shown = [] if replacement else ['evaluation.baselines=true']
  run = restore.load(
    args.workdir, args.which, [*shown, *args.overrides, *baselines, *cache, *mixed, *saved], replacement
  )
  split = args.split or (resolve.measured_split(run.run, run.corpus()) if replacement else 'test')
  if (args.translations or args.by_length) and not run.run.evaluation.beam:
    raise InputError(
      '--translations: got it, or --by_length, without a beam; expected one; add --config.evaluation.beam=4'
    )
  if args.translations:
    translation.write(args.translations, (), 'a')  # fails before the evaluation; mode 'a' keeps the content
  if note := restore.checkpoint_note(run, args.which):
    print(note, file=sys.stderr)
  return report.evaluate_restored(run, split)


def _mixture(text: str) -> list[str]:
  """Return the overrides for NAME[:WEIGHT]."""
  name, _, weight = text.partition(':')
  return [f'evaluation.mixture={name}', *([f'evaluation.mixture_weight={weight}'] if weight else [])]
