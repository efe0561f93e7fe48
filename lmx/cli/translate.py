"""`lmx translate --workdir=DIR < TEXT`: translate lines from a file or standard input by beam search.

Each input line is a sentence, and each output line its translation. With --n_best or --scores a line has tab-separated
columns: source line number, score, log-probability (in nats) and text. --reference=FILE prints metrics at the end: BLEU
with sacreBLEU's signature, the papers' tokenised BLEU, chrF. They go to standard error if the translations go to
standard output. --plot=DIR plots the attention weights of the reference's or translation's words over the source.
--alignments=FILE has gold alignments (`i-j`, possible ones `ipj`) between source and reference words, and prints the
alignment error rate.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

import numpy as np

from lmx import documents, ranges
from lmx.cli import generate, which
from lmx.errors import InputError, InputWarning, explain, writing

_SEARCH = (
  *('beam', 'alpha', 'penalty', 'stop', 'max_extra', 'min_ratio', 'max_ratio', 'allow_unk'),
  *('coverage_penalty', 'replace_unknown', 'tokens', 'sample', 'temperature', 'seed', 'max_length', 'forced_first'),
  *generate.CONSTRAINTS,
)
_CHARACTERS = 'surrogateescape'  # bytes that are not UTF-8 pass through unchanged


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--workdir', required=True, help='work directory of a trained encoder-decoder')
  parser.add_argument('--input', default='-', help='text, one sentence per line; - is standard input (default)')
  parser.add_argument('--output', default='-', help='file for the translations; - is standard output (default)')
  parser.add_argument('--ensemble', default='', help='further runs; beam search uses their mean probabilities')
  search = parser.add_argument_group('search', "defaults are the run's `evaluation` settings")
  generate.add_search(search, "beam size; 1 is greedy (default: the run's, or 4)", 1)
  search.add_argument('--max_extra', type=ranges.integer(0, 1_000_000), help='maximum tokens beyond the source length')
  search.add_argument('--min_ratio', type=ranges.number(0, 1000), help='minimum number of tokens per source token')
  search.add_argument(
    '--max_ratio', type=ranges.number(0, 1000), help='maximum number of tokens per source token, instead of --max_extra'
  )
  search.add_argument(
    '--max_length', type=ranges.integer(0, 1_000_000), help='maximum tokens of a translation, instead of both'
  )
  search.add_argument('--forced_first', type=ranges.integer(0), help='id of the first token of every translation')
  search.add_argument('--allow_unk', action=argparse.BooleanOptionalAction, help='also write the unknown word')
  search.add_argument('--coverage_penalty', type=ranges.number(0, 1000), help='its beta; 0 disables it')
  search.add_argument(
    '--replace_unknown',
    action=argparse.BooleanOptionalAction,
    help='by the source word with the most attention',
  )
  generate.add_constraints(parser)
  search.add_argument('--dictionary', default='', help='file of word translations to use instead of copying')
  parser.add_argument(
    '--n_best', type=ranges.integer(1, 1000), default=1, help='number of translations per line, with scores'
  )
  parser.add_argument('--scores', action='store_true', help='show scores even with one translation per line')
  parser.add_argument('--sample', action='store_true', help='sample a translation instead of searching for the best')
  parser.add_argument('--temperature', type=ranges.number(0), help='divides the logits in sampling (default 1)')
  parser.add_argument('--seed', type=ranges.seed, help='seed of sampling (default 0)')
  parser.add_argument(
    '--truncate', action='store_true', help="truncate lines longer than the model's positions, with a warning"
  )
  parser.add_argument(
    '--tokens', type=ranges.integer(1), default=4096, help='source tokens per batch (default %(default)s)'
  )
  parser.add_argument(
    '--lines', type=ranges.integer(0), default=0, help='lines read at a time: 1 answers each, 0 reads all'
  )
  parser.add_argument('--reference', default='', help='file with reference translations')
  parser.add_argument('--language', default='', help="of the references, for tokenised BLEU (default: the data set's)")
  parser.add_argument('--plot', default='', help='directory for one alignment picture per line')
  parser.add_argument('--alignments', default='', help='file of gold alignments; needs --reference')
  parser.add_argument('--metrics', default='', help='file to write the metrics to, as JSON; needs --reference')
  parser.add_argument(
    '--first', type=ranges.integer(0, 1), choices=(0, 1), help='number of the first word in --alignments (default 0)'
  )
  which.add_argument(parser)


def run(args: argparse.Namespace) -> int:
  from lmx import inference
  from lmx.decoding import translate
  from lmx.engine import precision

  _check(args)
  loaded = inference.load(args.workdir, args.which, args.overrides)
  loaded.check('translate')
  others = [name for name in args.ensemble.split(',') if name]
  translator = loaded.translator(inference.load_ensemble(loaded, others, args.which, args.overrides))
  if args.plot or args.alignments:
    translate.check_attention(translator)
  options: dict[str, Any] = {name: getattr(args, name) for name in _SEARCH if getattr(args, name) is not None}
  options |= {'dictionary': translate.read_dictionary(args.dictionary)} if args.dictionary else {}
  _check_most(args, loaded.search(**options).beam)
  references = _lines(args.reference) if args.reference else None
  gold = _read_gold(args, references)
  lines: list[str] = []
  best: list[Any] = []
  with _open_input(args.input) as stream, _open_output(args.output) as out:
    for some in _read_parts(stream, args.input, args.lines):
      if not args.lines:  # the part is the whole input
        _check_references(args, references, some)
      translations = loaded.translations(
        some, translator=translator, truncate=args.truncate, first=len(lines) + 1, title='translating', **options
      )
      for number, hypotheses in enumerate(translations, len(lines) + 1):
        out.writelines(_rows(args, number, hypotheses))
      out.flush()
      lines += some
      best += [hypotheses[0] for hypotheses in translations]
  if args.output != '-':
    print(f'wrote {args.output}: {len(lines):,} translations', file=sys.stderr)
  with precision.scope(loaded.run.matmul_precision):
    _write_reports(args, loaded, translator, lines, best, references, gold)
  return 0


def _check(args: argparse.Namespace) -> None:
  """Check the options, as far as possible before loading the run."""
  if args.alignments and not args.reference:
    raise InputError(
      '--alignments: got it without --reference; expected both, because they are between the source and the reference'
    )
  if args.metrics and not args.reference:
    raise InputError(
      '--metrics: got it without --reference; expected both, because they compare translations with references'
    )
  if args.language and not (args.reference and len(args.language) == 2):
    raise InputError(f'--language: got {args.language}; expected two letters, such as de, together with --reference')
  if args.first is not None and not args.alignments:
    raise InputError(f'--first: got {args.first}; expected it only with --alignments; omit it')
  if not args.sample and (args.temperature, args.seed) != (None, None):
    raise InputError('--temperature: got it, or --seed, without --sample; expected --sample; add it')


def _check_most(args: argparse.Namespace, beam: int) -> None:
  if args.n_best > (1 if args.sample else beam):
    most = '1 with --sample' if args.sample else f'--beam={beam}'
    raise InputError(f'--n_best: got {args.n_best}; expected at most {most}')


def _check_references(args: argparse.Namespace, references: Sequence[str] | None, lines: Sequence[str]) -> None:
  if references is not None and len(references) != len(lines):
    raise InputError(
      f'--reference: got {args.reference} of {len(references):,} lines; expected {len(lines):,}, as many as the source'
    )


def _rows(args: argparse.Namespace, number: int, hypotheses: Sequence[Any]) -> Iterator[str]:
  for one in hypotheses[: args.n_best]:
    scored = args.scores or args.n_best > 1
    yield (f'{number}\t{one.score:.4f}\t{one.log_p:.4f}\t' if scored else '') + one.text + '\n'


def _write_reports(args: Any, loaded: Any, translator: Any, lines: Any, best: Any, references: Any, gold: Any) -> None:
  """Write the other outputs: metrics, pictures, the alignment error rate."""
  from lmx.evaluation import translation
  from lmx.reporting import run_log

  report = sys.stderr if args.output == '-' else sys.stdout
  _check_references(args, references, lines)
  written: dict[str, Any] = {}
  if references is not None:
    source, target = _sides(loaded.workdir)
    metrics = translation.compute_scores(
      [one.text for one in best],
      references,
      lines,
      (source, args.language or target),
      loaded.run.data.lower_case,
      loaded.run.evaluation.compounds,
    )
    print('\n'.join(translation.summary(metrics)), file=report)
    written |= metrics
  if args.plot or args.alignments:
    from lmx.decoding import translate

    with warnings.catch_warnings(action='ignore', category=InputWarning):  # of truncated lines, as before
      sources = translator.sources(lines, truncate=args.truncate)
    texts = [np.asarray(one.tokens, np.int32) for one in best] if references is None else translator.targets(references)
    weights = translate.alignments(translator, sources, texts, args.tokens)
    if args.plot:
      _draw(args.plot, translator.tokenizer, sources, texts, weights)
      count = sum(len(ids) > 0 for ids in sources)
      print(f'  wrote {count:,} picture{"s" * (count != 1)} to {args.plot}', file=report)
    if args.alignments:
      rate = _error_rate(translator.tokenizer, zip(lines, references, strict=True), sources, texts, weights, gold)
      print(f'  {"alignment error rate":24} {rate:12.3f}', file=report)
      written['alignment_error_rate'] = rate
  if args.metrics:
    run_log.write_json(args.metrics, written)
    print(f'wrote {args.metrics}', file=sys.stderr)


def _sides(workdir: Any) -> tuple[str, str]:
  """Return the languages that the run translates from and into."""
  from lmx.config import run_files

  source, target = run_files.read_data(workdir).get('sides') or ('', '')
  return str(source), str(target)


def _draw(folder: str, tokenizer: Any, sources: Sequence[Any], texts: Sequence[Any], weights: Sequence[Any]) -> None:
  from lmx.decoding import translate
  from lmx.reporting import plots, waiting

  pairs = zip(sources, texts, weights, strict=True)
  for number, (source, text, a_TS) in enumerate(waiting.bar(pairs, 'drawing', len(sources)), 1):
    if len(source):
      path = os.path.join(folder, f'{number:04}.png')
      words = translate.token_labels(tokenizer, source), translate.token_labels(tokenizer.target, text)
      plots.alignment(path, a_TS, *words)


def _read_gold(args: argparse.Namespace, references: Sequence[str] | None) -> Any:
  from lmx.metrics import translation as metrics

  if not args.alignments:
    return None
  gold = metrics.read_alignments(args.alignments, first=args.first or 0)
  if references is not None and len(gold[0]) != len(references):
    raise InputError(
      f'--alignments: got {args.alignments} of {len(gold[0]):,} lines; expected {len(references):,}, as '
      'many as the references'
    )
  return gold


def _error_rate(
  tokenizer: Any,
  pairs: Iterable[tuple[str, str]],
  sources: Sequence[Any],
  texts: Sequence[Any],
  weights: Sequence[Any],
  gold: Any,
) -> float:
  """Return the alignment error rate of links between words without EOS; words are separated by white space."""
  from lmx.decoding import translate
  from lmx.metrics import translation as metrics

  predicted: list[set[tuple[int, int]]] = []
  for pair, source, text, a_TS in zip(pairs, sources, texts, weights, strict=True):
    if len(source) < 2 or len(text) < 2:
      predicted.append(set())
      continue
    sides = zip((tokenizer, tokenizer.target), pair, (source, text), strict=True)
    starts = [translate.word_starts(own, line, ids[:-1]) for own, line, ids in sides]
    predicted.append(metrics.links(metrics.between_words(a_TS[:-1, :-1], *starts)))
  return metrics.alignment_error_rate(predicted, *gold)


def _lines(path: str) -> list[str]:
  with _open_input(path) as stream:
    return [line.rstrip('\r\n') for line in stream]


def _read_parts(stream: TextIO, name: str, size: int) -> Iterator[list[str]]:
  """Yield lines of the input, `size` at a time; 0 yields all at once."""
  lines = (line.rstrip('\r\n') for line in _bounded(stream, name))
  try:
    while some := list(itertools.islice(lines, size or None)):
      yield some
  except OSError as error:
    raise InputError(f'{name}: cannot be read ({explain(error)})') from None


def _bounded(stream: TextIO, name: str) -> Iterator[str]:
  """Yield the lines of the input. Raises InputError if one has more than `documents.LONGEST` characters."""
  number = 0
  while line := stream.readline(documents.LONGEST + 1):
    number += 1
    if len(line) > documents.LONGEST:
      raise InputError(f'{name}, line {number}: got more than {documents.LONGEST:,} characters; expected a sentence')
    yield line


@contextlib.contextmanager
def _open_input(path: str) -> Iterator[TextIO]:
  if path == '-':
    if sys.stdin is None:
      raise InputError('standard input is closed; name a file')
    sys.stdin.reconfigure(encoding='utf-8-sig', errors=_CHARACTERS, newline='\n')  # type: ignore[union-attr]
    yield sys.stdin
    return
  documents.check_streamed(path)
  if path.lower().endswith(documents.COMPRESSED):
    raise InputError(f'--input: got {path}; expected a plain text; decompress it, or pipe it to standard input')
  try:
    end = '\n'
    if os.path.isfile(path):  # a pipe is read once
      with open(path, 'rb') as file:
        end = documents.line_end(file.read(1 << 20)).decode()
    stream = open(path, encoding='utf-8-sig', errors=_CHARACTERS, newline=end)
  except OSError as error:
    raise InputError(f'{path}: cannot be read ({explain(error)})') from None
  with stream:
    yield stream


@contextlib.contextmanager
def _open_output(path: str) -> Iterator[TextIO]:
  with writing('standard output' if path == '-' else path):
    if path == '-':
      if sys.stdout is None:
        raise InputError('standard output is closed; name a file')
      if isinstance(sys.stdout, io.TextIOWrapper):  # a caller may have replaced standard output
        sys.stdout.reconfigure(encoding='utf-8', errors=_CHARACTERS, newline='\n')
      yield sys.stdout
    else:
      with documents.open_to_write(path, errors=_CHARACTERS) as stream:
        yield stream
