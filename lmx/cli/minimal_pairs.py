"""Options and work of `lmx evaluate --pairs`: accuracy on minimal pairs, such as BLiMP."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lmx import documents, storage
from lmx.errors import InputError

if TYPE_CHECKING:
  from lmx.data.minimal_pairs import MinimalPairs
  from lmx.evaluation.minimal_pairs import Evaluated
  from lmx.scoring.scorer import Scorer

# Options of other evaluations, and of this one.
_OTHERS = (
  *('config', 'split', 'no_baselines', 'cache', 'mixture', 'ensemble', 'translations', 'by_length', 'beside'),
  'attention',
)
_OWN = ('good', 'bad', 'paradigm', 'protocol', 'method', 'start', 'end', 'subset', 'subset_file', 'seen_text')
_SUBSETS = ('all', 'babylm', 'seen')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Add the options."""
  group = parser.add_argument_group('minimal pairs')
  group.add_argument(
    '--pairs',
    default='',
    metavar='PATH',
    help="BLiMP's folder, or a table of good and bad sentences, or a folder of them",
  )
  group.add_argument('--good', default='', metavar='COLUMN', help='column of the good sentences (sentence_good)')
  group.add_argument('--bad', default='', metavar='COLUMN', help='column of the bad sentences (sentence_bad)')
  group.add_argument(
    '--paradigm', default='', metavar='COLUMN', help='column of the paradigms (UID, else the file name)'
  )
  group.add_argument(
    '--protocol',
    default='',
    choices=('lmx', 'blimp', 'babylm2025', 'harness'),
    help='start symbol, leading space, first token and ties as in this pipeline (lmx)',
  )
  group.add_argument('--method', default='', help='way of scoring, see lmx score')
  group.add_argument(
    '--start',
    default='',
    choices=('auto', 'symbol', 'none'),
    help='score after a start symbol, or without the first token',
  )
  group.add_argument('--end', action='store_true', help='also score the end of each sentence')
  group.add_argument(
    '--subset',
    default='',
    choices=_SUBSETS,
    help="babylm: BabyLM's list; seen: every word at least twice in the training text",
  )
  group.add_argument('--subset_file', default='', metavar='FILE', help="BabyLM's list, if it is not beside the folder")
  group.add_argument(
    '--seen_text', default='', metavar='FILE,FILE', help="training text for --subset=seen, instead of the run's"
  )


def check(args: argparse.Namespace) -> None:
  """Raise InputError for options of minimal pairs without --pairs, and of other evaluations with it."""
  if not args.pairs:
    for name in _OWN:
      if getattr(args, name):
        raise InputError(f'--{name}: got it without --pairs; expected both; add --pairs=DIR')
    if args.which == 'all':
      raise InputError('--which: got all; expected best, last, average or a step; all needs --pairs')
    return
  for name in _OTHERS:
    if getattr(args, name):
      raise InputError(f'--{name.replace("_", "-")}: got it with --pairs; expected only one of them; omit it')
  for name, subset in (('subset_file', 'babylm'), ('seen_text', 'seen')):
    if getattr(args, name) and args.subset != subset:
      raise InputError(f'--{name}: got it without --subset={subset}; expected both; add --subset={subset}')
  if args.which == 'all' and args.save_rows:
    raise InputError('--save_rows: got it with --which=all; expected one checkpoint; name its step')
  if args.which == 'all' and (path := pathlib.PurePath(args.output)).suffix.lower() == '.png':
    raise InputError(f'--output: got {path}, the name of the picture; expected one for JSON; name {path.stem}.json')


def run(args: argparse.Namespace, folder: pathlib.Path | None) -> int:
  """Evaluate, print and keep the metrics; `folder` is that of --save_rows."""
  from lmx.data import minimal_pairs
  from lmx.evaluation import pairs_files
  from lmx.reporting import run_log

  if not storage.is_remote(args.workdir):
    pairs_files.read(pathlib.Path(args.workdir))  # a damaged file is named before the work
  dataset = minimal_pairs.read(
    args.pairs, args.good or minimal_pairs.GOOD, args.bad or minimal_pairs.BAD, args.paradigm
  )
  if args.subset == 'babylm':
    dataset = minimal_pairs.keep_listed(dataset, args.subset_file)
  if args.which == 'all':
    return _run_all(args, dataset)
  scorer, dataset, evaluated = _evaluate(args, args.which, dataset)
  _print(args, evaluated.metrics)
  if args.output:
    run_log.write_json(args.output, evaluated.metrics)
  if folder is not None:
    pairs_files.write_rows(folder, dataset, evaluated)
    print(f'wrote {folder}: {len(dataset.pairs):,} pairs', file=sys.stderr)
  if workdir := _own_folder(args, scorer):
    pairs_files.keep(workdir, evaluated.metrics)
    print(f'wrote {workdir / pairs_files.PAIRS}', file=sys.stderr)
  elif not args.output:
    print(f'{args.workdir} keeps no {pairs_files.PAIRS}; write the metrics by --output=FILE.json', file=sys.stderr)
  return 0


def _evaluate(
  args: argparse.Namespace, which: str | int, dataset: MinimalPairs
) -> tuple[Scorer, MinimalPairs, Evaluated]:
  """Return the scorer of a checkpoint, the pairs of the subset and their evaluation."""
  from lmx.data import minimal_pairs
  from lmx.evaluation import minimal_pairs as evaluation
  from lmx.runs import restore

  protocol = args.protocol or 'lmx'
  options = {'method': args.method or 'auto', 'start': args.start or 'auto', 'end': args.end}
  scorer = evaluation.load(args.workdir, which, args.overrides, protocol=protocol, **options)
  if args.subset == 'seen' and dataset.subset != 'seen':
    dataset = minimal_pairs.keep_seen(dataset, *_training_text(args, scorer))
  print(f'{scorer.name}: {scorer.protocol}; {scorer.source}; pairs: {len(dataset.pairs):,}', file=sys.stderr)
  loaded = getattr(scorer, 'loaded', None)
  if note := loaded and restore.checkpoint_note(loaded, which):
    print(note, file=sys.stderr)
  return scorer, dataset, evaluation.evaluate(scorer, dataset, protocol)


def _training_text(args: argparse.Namespace, scorer: Scorer) -> tuple[Iterator[str], str]:
  """Return the documents of the training text, and its name. Raises InputError if there is none."""
  if args.seen_text:
    return (line for path in args.seen_text.split(',') for line in documents.read_lines(path)), args.seen_text
  loaded = getattr(scorer, 'loaded', None)
  if loaded is None or loaded.files is not None:
    raise InputError(f'--seen_text: got none, and {args.workdir} names no training text; expected its files; name them')
  from lmx.data import sources

  data = loaded.run.data
  if data.fraction < 1 or data.train_documents:
    raise InputError(
      f'--seen_text: got none, and {args.workdir} was trained on a part of its documents (data.fraction or '
      'data.train_documents); expected the files of that part; name them'
    )
  splits = sources.open_splits(data)
  texts = (text for split in data.train_splits for _, text, _ in splits[split])
  return texts, f'the training text of {data.dataset}'


def _own_folder(args: argparse.Namespace, scorer: Scorer) -> pathlib.Path | None:
  """Return the local folder of a run or of an n-gram model, None for published weights and buckets."""
  loaded = getattr(scorer, 'loaded', None)
  if (loaded is not None and loaded.files is not None) or storage.is_remote(args.workdir):
    return None
  return pathlib.Path(args.workdir)


def _print(args: argparse.Namespace, metrics: dict[str, Any]) -> None:
  from lmx.evaluation import minimal_pairs
  from lmx.metrics import published_pairs
  from lmx.reporting import run_log

  # All of BLiMP, however its folder is called.
  is_blimp = metrics['split'] == 'all' and len(metrics['paradigms']) == 67 and len(metrics['phenomena']) == 12
  published = published_pairs.BLIMP if is_blimp else ()
  text = json.dumps(run_log.to_json(metrics), indent=1)
  print(text if args.json else minimal_pairs.table(metrics, published))


def _run_all(args: argparse.Namespace, dataset: MinimalPairs) -> int:
  """Evaluate every checkpoint of a run, and write the learning curve after each."""
  from lmx.checkpoint import manager
  from lmx.evaluation import pairs_files

  workdir = pathlib.Path(args.workdir)
  steps = [] if storage.is_remote(args.workdir) else manager.steps(workdir / 'checkpoints')
  if not steps:
    raise InputError(f'--which: got all, and {args.workdir} has no checkpoints; expected the work directory of a run')
  path = pathlib.Path(args.output) if args.output else workdir / pairs_files.CURVE
  points: list[dict[str, Any]] = []
  words: dict[int, int] | None = None
  for step in steps:
    scorer, dataset, evaluated = _evaluate(args, step, dataset)
    words = _training_words(scorer, steps) if words is None else words
    points.append(evaluated.metrics | ({'words': words[step]} if words else {}))
    pairs_files.write_curve(path, points)
    low, high = (100 * x for x in evaluated.metrics['interval'])
    at = f' ({words[step]:,} words)' if words else ''
    print(f'step {step:,}{at}: {100 * evaluated.metrics["accuracy"]:.2f} ({low:.2f} to {high:.2f})', flush=True)
  if args.json:
    print(json.dumps(points, indent=1))
  print(f'wrote {path} and {path.with_suffix(".png")}', file=sys.stderr)
  return 0


def _training_words(scorer: Any, steps: list[int]) -> dict[int, int]:
  """Return the training words of a run at its steps; {} if they are unknown, with the reason for the user."""
  from lmx.evaluation import training_words

  try:
    return training_words.at_steps(scorer.loaded, steps)
  except InputError as error:
    print(f'the curve is by updates, because the training words are unknown: {error}', file=sys.stderr)
    return {}
