"""`lmx score --workdir=DIR --input=FILE`: log-probabilities of texts under a language model, in nats.

lmx score --workdir=DIR --input=FILE.txt                                a JSON line per line
lmx score --workdir=DIR --input=FILE.csv --column=sentence --output=FILE.tsv
lmx score --workdir=DIR --input=FILE.txt --by=word                      surprisal of each word
lmx score --workdir=DIR --input=FILE.txt --total=FILE.json              bits per byte, perplexity per word

DIR is a work directory, published weights, or n-gram models of `lmx ngrams --save`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from lmx.cli import which
from lmx.errors import InputError, writing

METHODS = ('causal', 'pll', 'pll_word_l2r', 'left_to_right', 'permutation_pll', 'both', 'forward', 'backward')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
    '--workdir', required=True, help='work directory of a language model, published weights, or saved n-gram models'
  )
  parser.add_argument(
    '--input', required=True, help='texts: .txt (one per line), .jsonl, .tsv or .csv; each also as .gz, .xz or .zst'
  )
  parser.add_argument('--column', default='', help='column of the texts (default: text)')
  which.add_argument(parser)
  parser.add_argument(
    '--method',
    default='auto',
    choices=('auto', *METHODS),
    help='causal: left to right; pll: pseudo-log-likelihood of BERT, pll_word_l2r also masks the rest of the word; '
    'left_to_right, permutation_pll: XLNet; both, forward, backward: ELMo (default: the first that the model has)',
  )
  parser.add_argument(
    '--start',
    default='auto',
    choices=('auto', 'symbol', 'none'),
    help='of causal scores: symbol reads a start symbol first, none does not predict the first token (default: symbol '
    'where the tokenizer has one)',
  )
  parser.add_argument('--end', action='store_true', help='also score the end of each text')
  parser.add_argument(
    '--context', default='', metavar='FILE', help='text that each text continues, without the line feed at its end'
  )
  parser.add_argument('--leading_space', action='store_true', help='score each text as if a space preceded it')
  parser.add_argument(
    '--by',
    default='sentence',
    choices=('sentence', 'word', 'token'),
    help='also give the surprisal of each word or token (default %(default)s)',
  )
  parser.add_argument(
    '--output',
    default='',
    help='.jsonl or .tsv to write, also as .gz, .xz or .zst (default: JSON lines on standard output)',
  )
  parser.add_argument('--total', default='', help='file to write the totals to, as JSON')


def run(args: argparse.Namespace) -> int:
  from lmx import documents
  from lmx.scoring import table

  form = documents.ending(args.output) if args.output else '.jsonl'
  if form not in table.FORMATS:
    raise InputError(f'--output: got {args.output}; expected a name that ends in {" or ".join(table.FORMATS)}')
  texts = table.read(args.input, args.column)
  table.check_columns(args.input, texts, args.by, form)
  context = documents.read_text(args.context).removesuffix('\n') if args.context else ''  # an editor's last line end
  from lmx.reporting import run_log
  from lmx.runs import restore
  from lmx.scoring import loading, sentences
  from lmx.scoring.scorer import RunScorer
  from lmx.scoring.total import Total, line

  scorer = loading.load(args.workdir, args.which, args.overrides, method=args.method, start=args.start, end=args.end)
  if args.context:
    scorer.read_context(context)
  space = ', with a leading space' * args.leading_space
  print(f'{scorer.name}: {scorer.protocol}{space}; {scorer.source}', file=sys.stderr)
  note = restore.checkpoint_note(scorer.loaded, args.which) if isinstance(scorer, RunScorer) else ''
  print(f'{note}\n' * bool(note), end='', file=sys.stderr)
  total = Total()
  scores = sentences.score(
    scorer,
    texts.texts,
    where=f'{args.input}, line',
    numbers=texts.numbers,
    detail='words' if args.by == 'word' else 'text',
    leading_space=args.leading_space,
    title='score',
  )
  write = table.tsv_lines if form == '.tsv' else table.lines
  _write(args.output, write(texts.rows, _added(scores, total), args.by, scorer.is_probability))
  if args.output:
    print(f'wrote {args.output}: {len(texts.texts):,} texts', file=sys.stderr)
  report = total.report(scorer) | {'workdir': str(args.workdir), 'source': scorer.source, 'input': args.input}
  for text in (line(report), *report['notes']):
    print(text, file=sys.stderr)
  if args.total:
    run_log.write_json(args.total, report)
    print(f'wrote {args.total}', file=sys.stderr)
  return 0


def _added(scores: Iterable[Any], total: Any) -> Iterator[Any]:
  """Yield the scores, and add each to the total."""
  for score in scores:
    total.add(score)
    yield score


def _write(path: str, lines: Iterable[str]) -> None:
  """Write a file as a whole or not at all, or to standard output if `path` is ''."""
  from lmx.reporting import run_log

  if path:
    run_log.write_text(path, ''.join(lines))
    return
  with writing('standard output'):
    for line in lines:
      print(line, end='')
    sys.stdout.flush()
