"""`lmx compare A B ... [--metric=NAME] [--test=mcnemar|randomization|bootstrap|t] [--correction=holm|bh|none]
[--output=FILE.json]`: significance of the differences between runs on the same data; the first is the baseline.

A and B are work directories, folders that `lmx evaluate --save_rows=DIR` wrote, or folders with one of these for each
seed. With saved rows (evaluation.save_rows) tests are paired, over rows. The default is McNemar's exact test for
accuracy, error percent and exact match of single runs, and approximate randomization for other metrics. Without rows,
Welch's t test compares several seeds. p-values are corrected for several comparisons. With --pairs, runs are compared
by their newest evaluation on minimal pairs, over paradigms.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lmx import records
from lmx.cli import results as results_command
from lmx.errors import InputError
from lmx.metrics import language

if TYPE_CHECKING:
  from lmx.evaluation.comparison import Compared, System


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
    'workdirs', nargs='+', metavar='DIR', help='runs, or folders of the seeds of a run; the first is the baseline'
  )
  parser.add_argument('--metric', default='', help="a metric of results.json (default: the first run's headline)")
  parser.add_argument(
    '--test', default='', choices=('mcnemar', 'randomization', 'bootstrap', 't'), help="default: the metric's"
  )
  parser.add_argument(
    '--correction',
    default='holm',
    choices=('holm', 'bh', 'none'),
    help='of p-values for several comparisons: Holm, Benjamini-Hochberg or none (default %(default)s)',
  )
  parser.add_argument(
    '--pairs', action='store_true', help='compare accuracies on minimal pairs (pairs.json), paired by paradigm'
  )
  parser.add_argument('--output', default='', help='file to write the comparison to, as JSON')


def run(args: argparse.Namespace) -> int:
  if len(args.workdirs) < 2:
    raise InputError(f'DIR: got only {args.workdirs[0]}; expected a baseline and at least one other run')
  names = _names(args.workdirs)
  if args.pairs:
    systems = _read_pairs(args.workdirs, names, args.metric)
  else:
    systems = [_read(path, name) for path, name in zip(args.workdirs, names, strict=True)]
  from lmx.evaluation import comparison
  from lmx.reporting import run_log

  metric = args.metric or systems[0].results[0]['metric']
  found, test = comparison.compare(systems, metric, args.test, args.correction)
  print('\n'.join(_lines(systems, found, metric, comparison.TESTS[test], args.correction)))
  if args.output:
    first = systems[0].results[0]
    about = {name: first[name] for name in ('dataset', 'split')} | {'data_hash': first.get('data_hash')}
    about |= {'metric': metric, 'test': test, 'correction': args.correction}
    run_log.write_json(args.output, about | {'systems': [_record(one) for one in found]})
  return 0


def _read(text: str, name: str) -> System:
  """Return the system in a folder. Raises InputError without results, or if runs differ in more than the seed."""
  path = pathlib.Path(text)
  own = path.is_file() or records.exists(path / records.RESULTS)
  folders = [path] if own else sorted(one.parent for one in path.glob(f'*/{records.RESULTS}'))
  if not folders:
    raise InputError(f'{path}: got no {records.RESULTS} in it or in its folders; expected a finished run or its seeds')
  found = [results_command.read_run(results_command.find_results(folder)) for folder in folders]
  alike = [json.dumps({k: v for k, v in one['settings'].items() if k != 'path'}, sort_keys=True) for one in found]
  if other := next((one for one, settings in zip(found, alike, strict=True) if settings != alike[0]), None):
    raise InputError(
      f'{path}: got runs of different settings or data, {found[0]["path"]} and {other["path"]}; expected the seeds of '
      'one config; name the runs of one of them'
    )
  from lmx.evaluation import rows
  from lmx.evaluation.comparison import System

  saved = [rows.read(pathlib.Path(one['path']), one) for one in found]
  complete = [one for one in saved if one is not None]
  return System(name, [one['path'] for one in found], found, complete if len(complete) == len(found) else None)


def _read_pairs(paths: Sequence[str], names: Sequence[str], metric: str) -> list[System]:
  """Return the systems with their accuracies on minimal pairs. Raises InputError if they share no evaluation."""
  from lmx.evaluation import pairs_files
  from lmx.evaluation import rows as row_files
  from lmx.evaluation.comparison import System

  tested = row_files.get('minimal_pairs').UNITS
  if metric and metric not in tested:
    raise InputError(
      f'--metric: got "{metric}" with --pairs; expected {" or ".join(tested)}; compare folders of lmx evaluate '
      '--pairs=DIR --save_rows=DIR for other metrics'
    )
  systems: list[System] = []
  for text, name in zip(paths, names, strict=True):
    path = pathlib.Path(text)
    own = records.exists(path / pairs_files.PAIRS)
    folders = [path] if own else sorted(one.parent for one in path.glob(f'*/{pairs_files.PAIRS}'))
    like = systems[0].results[0] if systems else None
    found = [pairs_files.paradigm_rows(pairs_files.newest(folder, like)) for folder in folders or [path]]
    systems.append(System(name, list(map(str, folders)), [one for _, one in found], [rows for rows, _ in found]))
  return systems


def _names(paths: Sequence[str]) -> list[str]:
  """Return the last part of each path, or the whole paths if two are equal."""
  short = [pathlib.PurePath(path).name for path in paths]
  return short if len(set(short)) == len(short) else list(paths)


def _record(one: Compared) -> dict[str, Any]:
  record = one._asdict()
  for name in ('interval', 'difference_interval'):
    interval = getattr(one, name)
    record[name] = None if interval is None else interval._asdict()
  return record


def _lines(systems: Sequence[System], found: Sequence[Compared], metric: str, test: str, correction: str) -> list[str]:
  """Return the comparison as a table, followed by the tests."""
  first, several = systems[0], len(found) > 2 and correction != 'none'
  rows = first.results[0].get('rows') if all(one.rows is not None for one in systems) else None
  counted = f', {rows["count"]:,} {rows["unit"]}{_tested(first, metric)}' if rows else ''
  results = first.results[0]
  width = max(len(one.name) for one in found)
  head = (
    f'  {"":{width}} {"runs":>4} {"mean":>10}  {"95% interval":22} {"difference":>10}  {"95% interval":22} {"p":>8}'
  )
  lines = [f'{metric} on {results["dataset"]}/{results["split"]}{counted}', head + f' {correction:>8}' * several]
  for one in found:
    cells = f'  {one.name:{width}} {len(one.workdirs):4} {one.mean:10.4f}  {_span(one.interval)}'
    if one.difference is not None:
      cells += f' {one.difference:+10.4f}  {_span(one.difference_interval)} {one.p:8.4f}'
      cells += f' {one.adjusted:8.4f}' * several
    lines.append(cells.rstrip())
  lines.append(f'p: {test}; differences from {found[0].name}')
  if several:
    names = {'holm': 'Holm', 'bh': 'Benjamini and Hochberg'}
    lines.append(f'{correction}: p corrected for {len(found) - 1} comparisons by {names[correction]}')
  lines += [f'{one.name}: p = {one.library[1]:.4f} by {one.library[0]}' for one in found if one.library]
  if rows is None:
    lines.append(f'over seeds, because not all runs saved their rows ({records.ROWS})')
  if rows and rows['kind'] == 'minimal_pairs':
    checkpoints = {one.name: dict.fromkeys(map(records.describe_checkpoint, one.results)) for one in systems}
    lines += [f'{name}: {"; ".join(steps)}' for name, steps in checkpoints.items() if any(steps)]
  uncharged = {one.name: language.describe_uncharged(one.results[0], metric) for one in systems}
  lines += [f'{name}: {remark}' for name, remark in uncharged.items() if remark]
  return [*lines, *_notes(systems)]


def _tested(system: System, metric: str) -> str:
  """Return the number of units that determine a metric with their name, '' if these are all rows."""
  from lmx.evaluation import rows as row_files

  assert system.rows is not None
  about = system.results[0]['rows']
  count = len(row_files.measure(metric, system.rows[0], system.results[0]).values)
  unit = row_files.get(about['kind']).UNITS.get(metric, about['unit'])
  return '' if count == about['count'] else f', tested over {count:,} {unit}'


def _notes(systems: Sequence[System]) -> list[str]:
  """Return a line if protocols differ, and one for each system that repeats a seed."""
  protocols = dict.fromkeys(str(one.get('protocol')) for system in systems for one in system.results)
  notes = [f'protocols differ: {" | ".join(protocols)}'] if len(protocols) > 1 else []
  for system in systems:
    seeds = [one['seed'] for one in system.results if 'seed' in one]
    notes += [f'{system.name}: some runs have the same seed'] * (len(set(seeds)) < len(seeds))
  return notes


def _span(interval: Any) -> str:
  if interval is None or math.isnan(interval.low):
    return f'{"":22}'
  return f'{f"{interval.low:.4f} to {interval.high:.4f}":22}'
