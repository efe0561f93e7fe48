"""`lmx ngrams --config=FILE [--split=valid,test] [--models=trigram,kn3,kn4,kn5] [--output=FILE.json]`.

lmx ngrams --config=FILE --models=ikn5 --boundaries=document --save=DIR        for `lmx score --workdir=DIR`
"""

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
  parser.add_argument(
    '--boundaries',
    default='stream',
    choices=('stream', 'document'),
    help='stream: contexts cross document boundaries; document: each document is predicted from its start; Kneser-Ney '
    'only (default %(default)s)',
  )
  parser.add_argument('--save', default='', metavar='DIR', help='folder to write the model to, a Kneser-Ney one')
  parser.add_argument('--output', default='', help='file to write the metrics to, as JSON')


def run(args: argparse.Namespace) -> int:
  from lmx.config import resolve
  from lmx.data import pipeline
  from lmx.evaluation.parts import mixture
  from lmx.reporting import run_log
  from lmx.scoring import ngrams

  config = resolve.load(args.config, args.overrides)
  data = resolve.to_run(config).data
  if not pipeline.has_texts(data.dataset):
    raise InputError(f'data.dataset: got "{data.dataset}"; expected a text data set; choose one for n-gram models')
  splits, names = args.split.split(','), args.models.split(',')
  if args.save:
    if len(names) != 1:
      raise InputError(f'--models: got {args.models} with --save; expected one model, such as ikn5')
    ngrams.check_empty(args.save)
  corpus = pipeline.load(data)
  if corpus.tokenizer.is_separate:
    raise InputError(
      'data.vocabularies: got separate ones of two languages; expected one vocabulary for n-gram models; set '
      'data.vocabularies=shared'
    )
  models = {names[0]: mixture.estimate(corpus, names[0], args.boundaries)} if args.save else {}
  records = mixture.evaluate_ngrams(corpus, splits, names, args.boundaries, models, data)
  by_name = {(record['model'], record['split']): record['perplexity_per_token'] for record in records}
  print('perplexity per token', *(f'{split:>12}' for split in splits))
  for name in names:
    print(f'{name:20}', *(f'{by_name[name, split]:12,.2f}' for split in splits))
  if args.save:
    record = {'config': config.to_dict(), 'data_hash': corpus.hash, 'metrics': records}
    ngrams.save(args.save, names[0], models[names[0]], args.boundaries, corpus.tokenizer, record)
    print(f'saved {names[0]}: {args.save}')
  if args.output:
    run_log.write_json(args.output, records)
  return 0
