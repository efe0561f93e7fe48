"""`lmx ngrams --config=FILE [--split=valid,test] [--models=trigram,kn3,kn4,kn5] [--output=FILE.json]`."""

from __future__ import annotations

import argparse

from lmx.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--config', required=True, help='experiment file, with optional :variant')
  parser.add_argument('--split', default='valid,test', help='splits to evaluate, separated by commas')
  parser.add_argument(
    '--models',
    default='trigram,kn3,kn4,kn5',
    help='trigram (interpolated), kn3 (back-off Kneser-Ney of order 3), ikn3 (interpolated), class3_500, ...',
  )
  parser.add_argument('--output', default='', help='file to write the metrics to, as JSON')


def run(args: argparse.Namespace) -> int:
  from lmx.config import resolve
  from lmx.data import pipeline
  from lmx.evaluation.parts import mixture
  from lmx.reporting import run_log

  data = resolve.to_run(resolve.load(args.config, args.overrides)).data
  if not pipeline.has_texts(data.dataset):
    raise InputError(f'data.dataset: got "{data.dataset}"; expected a text data set; choose one for n-gram models')
  corpus = pipeline.load(data)
  splits, models = args.split.split(','), args.models.split(',')
  records = mixture.evaluate_ngrams(corpus, splits, models)
  by_name = {(record['model'], record['split']): record['perplexity_per_token'] for record in records}
  print('perplexity per token', *(f'{split:>12}' for split in splits))
  for name in models:
    print(f'{name:20}', *(f'{by_name[name, split]:12,.2f}' for split in splits))
  if args.output:
    run_log.write_json(args.output, records)
  return 0
