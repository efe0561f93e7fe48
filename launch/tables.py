"""Prints the rows of an experiment's table beside what was measured here.

    python -m launch.tables --experiment=experiments/nplm/brown.py --runs=DIR

For a row whose argument is `mlp1` and whose split is `test` the figure is read from DIR/mlp1/test.json, as
`lmx evaluate --output` writes it, or from DIR/mlp1/results.json where that measured the same split; a mixture in it is
what counts. Rows of n-gram models (NGRAM_ROWS) are read from DIR/ngrams.json, as `lmx ngrams --output` writes it. A
row that was not measured stays empty.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import pathlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

FIGURES = {  # metric of a row -> key of a record
  'ppl': 'perplexity_per_token',
  'ppl_word': 'perplexity_per_word',
  'loss': 'loss',
  'bpc': 'bits_per_character',
  'bpb': 'bits_per_byte',
  'last_word_ppl': 'perplexity_of_last_word',
  'accuracy': 'accuracy',
  'filtered_accuracy': 'filtered_accuracy',
}
PERCENT = ('accuracy', 'filtered_accuracy')  # metrics that records have as fractions


def lines(experiment: Any, runs: pathlib.Path) -> Iterable[str]:
  """A table in Markdown: a line for each system, a pair of columns (paper, ours) for each split."""
  rows = [*((row, _of_run(row, runs)) for row in experiment.TABLE),
          *((row, _of_ngram(row, runs)) for row in getattr(experiment, 'NGRAM_ROWS', []))]  # fmt: skip
  splits = [split for split in ('train', 'valid', 'test') if any(row.split == split for row, _ in rows)]
  yield '| ' + ' | '.join(['system', *(f'{split}, paper | {split}, ours' for split in splits)]) + ' |'
  yield '|---' + '|---:|---:' * len(splits) + '|'
  systems = dict.fromkeys(_system(row) for row, _ in rows)
  for system in systems:
    cells = [system]
    for split in splits:
      found = [(row.value, ours) for row, ours in rows if (_system(row), row.split) == (system, split)]
      cells += [_text(x) for x in found[0]] if found else ['', '']
    yield '| ' + ' | '.join(cells) + ' |'


def _system(row: Any) -> str:
  """The name of a row's line: its id, without the split at its end."""
  return row.id.removesuffix(f'/{row.split}')


def _text(value: float) -> str:
  if math.isnan(value):
    return ''
  return f'{value:,.1f}' if value >= 10 else f'{value:.2f}'


def _of_run(row: Any, runs: pathlib.Path) -> float:
  for name in (f'{row.split}.json', 'results.json'):
    file = runs / row.arg / name
    record = _read(file) if file.is_file() else {}
    if record.get('split') == row.split:
      value = float(record.get('mixture', record)[FIGURES[row.metric]])
      return 100 * value if row.metric in PERCENT else value
  return math.nan


def _of_ngram(row: Any, runs: pathlib.Path) -> float:
  file = runs / 'ngrams.json'
  for record in _read(file) if file.is_file() else []:
    if (record['model'], record['split']) == (row.arg, row.split):
      return float(record[FIGURES[row.metric]])
  return math.nan


def _read(file: pathlib.Path) -> Any:
  try:
    found = json.loads(file.read_text())
  except (OSError, ValueError) as error:
    raise SystemExit(f'{file}: cannot be read ({error})') from None
  if not isinstance(found, (Mapping, list)):
    raise SystemExit(f'{file}: does not hold figures')
  return found


def _experiment(path: str) -> Any:
  spec = importlib.util.spec_from_file_location('experiment', path)
  if spec is None or spec.loader is None or not pathlib.Path(path).is_file():
    raise SystemExit(f'{path}: there is no such experiment file')
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def main(argv: list[str] | None = None) -> int:
  """Prints the table; returns 0."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--experiment', required=True, help='an experiment file with a TABLE')
  parser.add_argument('--runs', required=True, type=pathlib.Path, help='directory of the runs')
  args = parser.parse_args(argv)
  sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # experiments import one another
  print('\n'.join(lines(_experiment(args.experiment), args.runs)))
  return 0


if __name__ == '__main__':
  sys.exit(main())
