"""`lmx prepare --config=FILE`: build the data set and the token cache of a config before the run."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--config', required=True, help='experiment file, with :variant if it has any')


def run(args: argparse.Namespace) -> int:
  from lmx.config import resolve
  from lmx.data import pipeline

  run = resolve.to_run(resolve.load(args.config, args.overrides))
  corpus = pipeline.load(pipeline.without_missing_vectors(run.data))
  if not corpus.dir:
    print(f'data set {run.data.dataset} is generated as it is read; there is nothing to prepare')
    return 0
  tokenizer = corpus.tokenizer
  if pipeline.has_texts(run.data.dataset):
    content = f'with tokenizer {tokenizer.kind}: vocabulary {tokenizer.vocab_size:,}'
  else:
    content = f'with masks of {len(corpus.manifest["label_names"])} classes'
  print(f'{run.data.dataset} {content}, in {corpus.dir}')
  width = max(len(name) for name in corpus.splits)
  columns = list(next(iter(corpus.splits.values())).counts)
  titles = columns if pipeline.has_texts(run.data.dataset) else ['images']
  print(' ' * width, *(f'{title:>14}' for title in titles))
  for name, split in corpus.splits.items():
    print(f'{name:{width}}', *(f'{split.counts[c]:>14,}' for c in columns[: len(titles)]))
  return 0
