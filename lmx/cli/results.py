"""`lmx results DIR DIR ... [--metric=NAME] [--output=FILE.json] [--plot=FILE.png]`: figures of finished runs, seeds of
one put together.

Runs of the same name, model, data and split stand in one line: how many there are, the mean of the figure, its standard
deviation (n - 1) and standard error, the least and the greatest. Configs that differ in more than the seed are said.
The plot shows the figure on the validation split by updates: of runs that differ only in the seed their mean, and a
band from the least to the greatest.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lmx.errors import InputError, nearest

GROUP = ('name', 'model', 'dataset', 'split')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('workdirs', nargs='+', metavar='DIR', help='work directories of finished runs, or results.json')
  parser.add_argument('--metric', default='', help="a figure of results.json; each run's own first one without it")
  parser.add_argument('--output', default='', help='file to write the table to, as JSON')
  parser.add_argument('--plot', default='', help='picture of the figure on the validation split by updates')


def run(args: argparse.Namespace) -> int:
  groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
  for workdir in args.workdirs:
    found = _read(pathlib.Path(workdir))
    groups.setdefault(tuple(str(found[key]) for key in GROUP), []).append(found)
  metric = args.metric or next(iter(groups.values()))[0]['metric']
  curves = _curves(groups.values(), metric) if args.plot else {}
  rows = [_row(dict(zip(GROUP, key, strict=True)), found, args.metric) for key, found in groups.items()]
  print('\n'.join(_lines(rows)))
  if curves:
    from lmx import pictures

    pictures.curves(args.plot, curves, f'{metric.replace("_", " ")} on the validation split')
  if args.output:
    from lmx import log

    log.write_json(args.output, {'rows': rows})
  return 0


def _read(path: pathlib.Path) -> dict[str, Any]:
  """results.json of a run, with the config but its seed beside it."""
  path = path / 'results.json' if path.is_dir() else path
  try:
    found = json.loads(path.read_text())
    missing = [key for key in (*GROUP, 'metric') if key not in found]
  except (OSError, ValueError, TypeError) as error:
    raise InputError(f'{path} cannot be read ({error}); is the run finished?') from None
  if missing:
    raise InputError(f'{path} has no {", ".join(missing)}: not the results of a run')
  config = path.parent / 'config.json'
  settings = json.loads(config.read_text()) if config.exists() else {}
  return found | {'path': str(path.parent), 'settings': {key: x for key, x in settings.items() if key != 'seed'}}


def _row(about: dict[str, Any], found: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any]:
  """A line of the table."""
  metric = metric or found[0]['metric']
  for one in found:
    if not isinstance(one.get(metric), (int, float)):
      numbers = [key for key, x in one.items() if isinstance(x, (int, float)) and not isinstance(x, bool)]
      raise InputError(f'{one["path"]} has no figure "{metric}"{nearest(metric, numbers)}')
  values = [float(one[metric]) for one in found]
  deviation = statistics.stdev(values) if len(values) > 1 else None
  seeds = [one.get('seed') for one in found]
  return about | {
    'metric': metric, 'runs': len(values), 'mean': statistics.fmean(values), 'deviation': deviation,
    'error': None if deviation is None else deviation / math.sqrt(len(values)),
    'least': min(values), 'greatest': max(values), 'seeds': seeds,
    'same_seed': len(set(seeds)) < len(seeds),
    'same_config': all(one['settings'] == found[0]['settings'] for one in found),
  }  # fmt: skip


def _curves(groups: Iterable[Sequence[Mapping[str, Any]]], metric: str) -> dict[str, list[list[tuple[int, float]]]]:
  """(step, figure) of each run, by what the runs have in common: the name, and settings in which others differ."""
  curves: dict[str, list[list[tuple[int, float]]]] = {}
  for group in groups:
    settings = [dict(_flat(one['settings'])) for one in group]
    names = dict.fromkeys(name for some in settings for name in some)
    differ = [name for name in names if any(some.get(name) != settings[0].get(name) for some in settings)]
    for one, some in zip(group, settings, strict=True):
      about = ', '.join(f'{name}={some.get(name)}' for name in differ)
      curves.setdefault(f'{one["name"]} {about}'.strip(), []).append(_curve(one, metric))
  return curves


def _curve(found: Mapping[str, Any], metric: str) -> list[tuple[int, float]]:
  from lmx import log

  records = [record for record in log.read_metrics(found['path']) if record['split'] == 'valid']
  if not any(metric in record for record in records):
    names = {name for record in records for name in record} - {'step', 'split', 'seconds'}
    advice = f'{nearest(metric, names)}; choose one with --metric' if names else ''
    raise InputError(f'{found["path"]} has no "{metric}" of the validation split during training{advice}')
  return [(record['step'], record[metric]) for record in records if metric in record]


def _flat(settings: Mapping[str, Any], before: str = '') -> Iterator[tuple[str, Any]]:
  """('section.key', value) of nested settings."""
  for key, value in settings.items():
    if isinstance(value, Mapping):
      yield from _flat(value, f'{before}{key}.')
    else:
      yield before + key, value


def _lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
  width = max(len(row['name']) for row in rows)
  lines = [f'{"":{width}}  {"figure":14} {"runs":>4} {"mean":>10} {"sd":>8} {"se":>8} {"least":>10} {"greatest":>10}']
  for row in rows:
    spread = [f'{"":8}' if row[key] is None else f'{row[key]:8.3f}' for key in ('deviation', 'error')]
    lines.append(
      f'{row["name"]:{width}}  {row["metric"]:14} {row["runs"]:4} {row["mean"]:10.3f} {" ".join(spread)} '
      f'{row["least"]:10.3f} {row["greatest"]:10.3f}  {row["model"]}, {row["dataset"]}/{row["split"]}'
    )
    if row['same_seed']:
      lines.append(f'{"":{width}}  some of these runs have the same seed')
    if not row['same_config']:
      lines.append(f'{"":{width}}  the configs of these runs differ in more than the seed')
  return lines
