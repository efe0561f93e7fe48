"""`lmx vectors`: evaluate, inspect, plot and export word vectors of a run or file.

lmx vectors --workdir=DIR --analogies questions-words.txt --similarity wordsim353.tsv,simlex999.tsv
lmx vectors --workdir=DIR --nearest france,king          lmx vectors --workdir=DIR --analogy france,paris,italy
lmx vectors --workdir=DIR --plot map.png --words france,paris,italy,rome
lmx vectors --workdir=DIR --export vectors.bin           lmx vectors --vectors vectors.bin --nearest france
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from lmx import ranges
from lmx.errors import InputError, explain


def add_arguments(parser: argparse.ArgumentParser) -> None:
  source = parser.add_mutually_exclusive_group(required=True)
  source.add_argument('--workdir', help='work directory of a run')
  source.add_argument('--vectors', metavar='FILE', help='word2vec, GloVe or fastText vectors, as text or binary')
  parser.add_argument('--which', default='last', help="checkpoint: 'best', 'last' or a step (default %(default)s)")
  parser.add_argument(
    '--side',
    choices=('source', 'target'),
    default='',
    help='words and table of a translation model with a table for each language',
  )
  parser.add_argument('--analogies', metavar='FILE', help='questions like questions-words.txt')
  parser.add_argument('--similarity', metavar='FILES', help='judgements like WordSim-353, separated by commas')
  parser.add_argument(
    '--restrict', type=ranges.integer(0), default=30_000, help='restrict analogies to the N most frequent words'
  )
  parser.add_argument('--nearest', metavar='WORDS', help='show the words nearest to these')
  parser.add_argument('--analogy', metavar='A,B,C', help='solve "A is to B as C is to ?"')
  parser.add_argument(
    '--count', type=ranges.integer(1, 1_000_000), default=10, help='number of nearest words (default %(default)s)'
  )
  parser.add_argument('--plot', metavar='FILE.png', help='plot --words on their two principal components')
  parser.add_argument('--words', metavar='WORDS', help='words to plot; --pairs joins them two by two')
  parser.add_argument('--pairs', action='store_true', help='join the first word with the second, and so on')
  parser.add_argument(
    '--export', metavar='FILE', help='write the vectors; binary if the name ends with .bin or .bin.gz'
  )
  parser.add_argument('--output', default='', help='file to write the metrics to, as JSON')
  parser.add_argument('--json', action='store_true', help='print the metrics as JSON')


def run(args: argparse.Namespace) -> int:
  vectors = _vectors(args)
  results: dict[str, Any] = {'words': len(vectors.words), 'width': vectors.raw_VD.shape[1]}
  if args.analogies:
    results['analogies'] = _analogies(vectors, args.analogies, args.restrict)
  if args.similarity:
    results['similarity'] = _similarity(vectors, args.similarity.split(','))
  if args.nearest:
    results['nearest'] = {word: vectors.nearest(word, args.count) for word in args.nearest.split(',')}
  if args.analogy:
    results['nearest'] = results.get('nearest', {}) | {
      args.analogy: vectors.analogy(*_parse_analogy(args.analogy), args.count)
    }
  if args.export:
    from lmx.interop import word2vec

    binary = args.export.removesuffix('.gz').endswith('.bin')
    word2vec.write(args.export, vectors.words, vectors.raw_VD, binary=binary)
    results['written'] = args.export
  if args.plot:
    draw(vectors, (args.words or ','.join(vectors.words[:40])).split(','), args.plot, pairs=args.pairs)
    results['drawn'] = args.plot
  if args.output:
    from lmx.reporting import run_log

    run_log.write_json(args.output, results)
  print(json.dumps(results, indent=1) if args.json else '\n'.join(_lines(results)))
  return 0


def _parse_analogy(text: str) -> list[str]:
  words = text.split(',')
  if len(words) != 3:
    raise InputError(f'--analogy: got "{text}"; expected three words, separated by commas')
  return words


def _vectors(args: argparse.Namespace) -> Any:
  from lmx.prediction import word_vectors

  if args.vectors and args.side:
    raise InputError(f'--side: got {args.side} with --vectors; expected none; omit --side')
  if args.vectors:
    return word_vectors.from_file(args.vectors)
  from lmx.runs import restore

  return word_vectors.from_run(restore.load(args.workdir, args.which, args.overrides), args.side)


def _analogies(vectors: Any, path: str, restrict: int) -> dict[str, Any]:
  from lmx.metrics import embeddings

  result = vectors.analogies(embeddings.read_questions(path), restrict)
  shares = {kind: result.accuracy(kind) for kind in ('semantic', 'syntactic', 'total')}
  accuracies: dict[str, Any] = {kind: None if math.isnan(share) else share for kind, share in shares.items()}
  sections = {name: [right, total] for name, (right, total) in result.sections.items()}
  return accuracies | {'restrict': restrict, 'skipped': result.skipped, 'sections': sections}


def _similarity(vectors: Any, paths: list[str]) -> dict[str, Any]:
  from lmx.metrics import embeddings

  found = {path: vectors.similarity(embeddings.read_judgements(path), where=f'{path}: ') for path in paths}
  return {path: one._asdict() | ({'spearman': None} if math.isnan(one.spearman) else {}) for path, one in found.items()}


def _lines(results: dict[str, Any]) -> list[str]:
  lines = [f'{results["words"]:,} words, {results["width"]} wide']
  if 'analogies' in results:
    analogies = results['analogies']
    for name, (right, total) in analogies['sections'].items():
      lines.append(f'  {name:30} {_percent(right, total)}  ({right:,} of {total:,})')
    for kind in ('semantic', 'syntactic', 'total'):
      lines.append(f'  {kind:30} ' + (f'{analogies[kind]:6.1%}' if analogies[kind] is not None else '     -'))
    lines.append(f'  ({analogies["restrict"]:,} most frequent words; {analogies["skipped"]:,} questions skipped)')
  for path, row in results.get('similarity', {}).items():
    spearman = '- (undefined)' if row['spearman'] is None else f'{row["spearman"]:.3f}'
    lines.append(f'  {path}: Spearman {spearman} over {row["pairs"]:,} pairs, {row["skipped"]:,} skipped')
  for word, near in results.get('nearest', {}).items():
    lines.append(f'  {word}: ' + ', '.join(f'{other} {score:.2f}' for other, score in near))
  return lines + [f'  wrote {results[key]}' for key in ('written', 'drawn') if key in results]


def _percent(right: int, total: int) -> str:
  return f'{right / total:6.1%}' if total else '     -'


def draw(vectors: Any, words: list[str], path: str, *, pairs: bool = False) -> None:
  """Draw words at their first two principal components, as in figure 2 of arXiv 1310.4546.

  Args:
    vectors: `lmx.metrics.embeddings.Vectors`.
    words: two or more words that have vectors.
    path: image file to write.
    pairs: join words two and two (country, capital, country, capital ...).

  Raises:
    InputError: a word is unknown, there are fewer than two words, or the file cannot be written.
  """
  from matplotlib.figure import Figure

  from lmx.metrics import embeddings

  if len(words) < 2:
    raise InputError(f'--words: got {len(words)}; expected at least two words to draw')
  place_N2 = embeddings.project(vectors.raw_VD[[vectors.index(word) for word in words]])
  figure = Figure(figsize=(8, 8), layout='constrained')
  axes = figure.add_subplot()
  axes.scatter(place_N2[:, 0], place_N2[:, 1], s=8)
  for word, place in zip(words, place_N2, strict=True):
    axes.annotate(word, place, xytext=(4, 4), textcoords='offset points')
  if pairs:
    for i in range(0, len(words) - 1, 2):
      axes.plot(*place_N2[i : i + 2].T, color='0.6', linewidth=0.8)
  axes.set(xlabel='first principal component', ylabel='second principal component')
  try:
    figure.savefig(path, dpi=150)
  except (OSError, ValueError) as error:
    raise InputError(
      f'--output: got {path}, which cannot be written ({explain(error)}); expected a writable path'
    ) from None
