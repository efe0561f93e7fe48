"""`lmx prepare --config=FILE`: build the data set and the token cache of a config before the run.

Large text is tokenized in chunks by one process per core. The same command resumes after an interruption. Several hosts
with a shared cache (data.cache_dir) divide the chunks among them.
"""

from __future__ import annotations

import argparse

from lmx import ranges


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--config', required=True, help='experiment file, with :variant if it has any')
  parser.add_argument(
    '--processes',
    type=ranges.integer(1, 1024),
    default=0,
    help='processes on this host that tokenize text (default: one per core)',
  )


def run(args: argparse.Namespace) -> int:
  from lmx.config import resolve
  from lmx.data import pipeline

  run = resolve.to_run(resolve.load(args.config, args.overrides))
  corpus = pipeline.load(pipeline.without_missing_vectors(run.data), args.processes)
  if not corpus.dir:
    print(f'data set {run.data.dataset} is generated on the fly; there is nothing to prepare')
    return 0
  for note in run.data.file_notes():
    print(note)
  tokenizer = corpus.tokenizer
  if pipeline.has_texts(run.data.dataset):
    content = f'with tokenizer {tokenizer.kind}: vocabulary {tokenizer.vocab_size:,}'
    content += f' of the source, {tokenizer.target.vocab_size:,} of the target' if tokenizer.is_separate else ''
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
