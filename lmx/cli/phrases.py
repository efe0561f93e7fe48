"""`lmx phrases --input=TEXT --output=TEXT`: join frequent collocations into phrases ("new_york"), one sentence per
line.

The result is a text for `data.dataset=text_files`. Both may be compressed (.gz, .xz, .zst); --input takes several
files, separated by commas. The defaults follow word2vec's released script: two passes, thresholds 200 and 100.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from lmx import documents, ranges
from lmx.errors import InputError, explain


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--input', required=True, metavar='FILES', help='text files with words separated by white space')
  parser.add_argument('--output', required=True, metavar='FILE', help='the text with phrases')
  parser.add_argument('--thresholds', default='200,100', help='one per pass (default %(default)s)')
  parser.add_argument(
    '--discount', type=ranges.number(0), default=5.0, help='subtracted from the count of a pair (default %(default)s)'
  )
  parser.add_argument(
    '--min_count', type=ranges.integer(0), default=5, help='minimum count of a word and of a pair (default %(default)s)'
  )
  parser.add_argument('--lower_case', action='store_true', help='lower-case the text first')


def run(args: argparse.Namespace) -> int:
  from lmx.data import phrases

  try:
    thresholds = [ranges.number(0)(text) for text in args.thresholds.split(',')]
  except argparse.ArgumentTypeError as error:
    raise InputError(f'--thresholds: {error}, separated by commas') from None
  files = args.input.split(',')
  passes = []
  for number, one in enumerate(
    phrases.passes(
      lambda: _sentences(files, args.lower_case), thresholds, discount=args.discount, min_count=args.min_count
    ),
    1,
  ):
    best = sorted(one.scores, key=lambda pair: -one.scores[pair])[:8]
    print(f'pass {number}: {len(one.scores):,} pairs, such as {", ".join(map("_".join, best)) or "none"}', flush=True)
    passes.append(one)
  try:
    with documents.open_to_write(args.output) as out:
      for words in _sentences(files, args.lower_case):
        for one in passes:
          words = one.apply(words)
        out.write(' '.join(words) + '\n')
  except OSError as error:
    raise InputError(
      f'--output: got {args.output}, which cannot be written ({explain(error)}); expected a writable path'
    ) from None
  return 0


def _sentences(files: list[str], lower_case: bool) -> Iterator[list[str]]:
  for path in files:
    documents.check_regular(path)  # a pass over the text may follow
    for line in documents.read_lines(path):
      yield (line.lower() if lower_case else line).split()
