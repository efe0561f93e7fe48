"""`lmx results DIR DIR ... [--metric=NAME] [--output=FILE.json] [--plot=FILE.png]`: metrics of finished runs, averaged
over seeds. Damaged runs are listed below the table and excluded from all means.

A row is a group of runs with the same config (except the seed), data and protocol: count, mean, its 95% interval,
standard deviation (n - 1), standard error, minimum and maximum of the metric. The interval is Student's t over the
seeds; of a single run it is the bootstrap interval over rows that evaluation.save_rows stored for its headline. Runs
with the same name but other settings or data are separate rows, which show the work directories and differences. A
results.json without a config.json has its own row. The plot shows the metric on the validation split by update: the
mean of each group, and a band from the minimum to the maximum.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lmx import records
from lmx import statistics as intervals
from lmx.config import experiment, paths
from lmx.errors import InputError, nearest
from lmx.metrics import language

LABEL = ('name', 'dataset', 'split')  # the model is in the config
# Settings that may differ in a group: paths of data and tokenizer (the data hash covers their content), and settings of
# execution and logging.
FREE = (
  *experiment.EXECUTION,
  'seed',
  'evaluation.save_rows',
  'train.init_from',
  'data.tokenizer_path',
  'data.vectors',
)
MAX_DIFFERENCES = 6  # shown for a row; the rest are counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('workdirs', nargs='+', metavar='DIR', help='work directories of finished runs, or results.json')
  parser.add_argument('--metric', default='', help="a metric of results.json (default: each run's headline)")
  parser.add_argument('--output', default='', help='file to write the table to, as JSON')
  parser.add_argument('--plot', default='', help='plot of the validation metric by updates')


def run(args: argparse.Namespace) -> int:
  groups: dict[str, list[dict[str, Any]]] = {}
  damaged: dict[str, str] = {}
  for workdir in args.workdirs:
    path = find_results(pathlib.Path(workdir))
    try:
      result = read_run(path)
    except InputError as error:
      damaged[str(path.parent)] = str(error)
      continue
    groups.setdefault(json.dumps([_label(result), result['settings']], sort_keys=True), []).append(result)
  if not groups:
    raise InputError('\n'.join(damaged.values()))
  differences = _differences(groups.values())
  metric = args.metric or next(iter(groups.values()))[0]['metric']
  curves = _curves(groups.values(), differences, metric) if args.plot else {}
  rows = [_row(group, differing, args.metric) for group, differing in zip(groups.values(), differences, strict=True)]
  print('\n'.join([*_lines(rows), *(f'damaged, in no mean: {error}' for error in damaged.values())]))
  if curves:
    from lmx.reporting import plots

    plots.metric_curves(args.plot, curves, f'{metric.replace("_", " ")} on the validation split')
  if args.output:
    from lmx.reporting import run_log

    run_log.write_json(args.output, {'rows': rows, 'damaged': damaged})
  return 0


def find_results(path: pathlib.Path) -> pathlib.Path:
  """Return the results.json in a work directory, or the file itself. Raises InputError if it does not exist."""
  path = path / records.RESULTS if path.is_dir() else path
  if not records.exists(path):
    raise InputError(f'{path}: missing; expected the results of a run; is it finished?')
  return path


def read_run(path: pathlib.Path) -> dict[str, Any]:
  """Return results.json of a run; 'settings' has everything that the runs of a group must share."""
  result = records.read_results_file(path, (*LABEL, 'model', 'metric'))
  settings: dict[str, Any] = {'data_hash': result.get('data_hash'), 'protocol': result.get('protocol')}
  known = records.exists(path.parent / records.CONFIG) and 'data_hash' in result
  settings |= _settings(path.parent) if known else {'path': str(path)}
  return result | {'path': str(path.parent), 'settings': settings}


def _settings(workdir: pathlib.Path, seen: tuple[pathlib.Path, ...] = ()) -> dict[str, Any]:
  """Return a run's flat settings except `FREE`, with the initial run's settings under 'train.init_from'.

  So runs initialised from seeds 0 and 1 of a pre-training have the same settings. Imported weights have no results.json
  and are identified by their path.
  """
  config = records.read_config(workdir)
  flat = dict(experiment.flatten(config))
  settings = {key: value for key, value in flat.items() if not key.startswith(FREE)}
  if flat.get('evaluation.which') == 'average':  # it sets which checkpoints are averaged
    settings['checkpoint.every_steps'] = flat.get('checkpoint.every_steps')
  start = flat.get('train.init_from')
  if start:
    source = pathlib.Path(paths.locate(config, workdir)['train']['init_from'])
    seen = (*seen, workdir)
    if source not in seen and all(records.exists(source / name) for name in (records.RESULTS, records.CONFIG)):
      settings['train.init_from'] = {
        'data_hash': records.read_results(source).get('data_hash'),
        **_settings(source, seen),
      }
    else:
      settings['train.init_from'] = str(start)
  return settings


def _label(result: Mapping[str, Any]) -> tuple[str, ...]:
  return tuple(str(result[key]) for key in LABEL)


def _differences(groups: Iterable[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
  """Return each group's settings that differ from other groups with the same label; {} if there are none."""
  differences = []
  every = [(_label(group[0]), dict(experiment.flatten(group[0]['settings']))) for group in groups]
  for label, settings in every:
    others = [other for other_label, other in every if other_label == label]
    names = dict.fromkeys(name for other in others for name in other)
    differences.append(
      {name: settings.get(name) for name in names if any(other.get(name) != settings.get(name) for other in others)}
    )
  return differences


def _row(group: Sequence[Mapping[str, Any]], differing: Mapping[str, Any], metric: str) -> dict[str, Any]:
  """Return a row of the table."""
  metric = metric or group[0]['metric']
  for one in group:
    if not records.is_number(one.get(metric)):
      numbers = [key for key, value in one.items() if records.is_number(value)]
      raise InputError(f'--metric: got "{metric}", which {one["path"]} does not have{nearest(metric, numbers)}')
  values = [float(one[metric]) for one in group]
  deviation = _deviation(values)
  seeds = [one.get('seed') for one in group]
  return dict(zip(LABEL, _label(group[0]), strict=True)) | {
    'model': group[0]['model'],
    'metric': metric,
    **({'positive': group[0]['positive']} if metric == 'f1' and 'positive' in group[0] else {}),
    'runs': len(values),
    'mean': statistics.fmean(values),
    'deviation': deviation,
    'interval': _interval(group, metric, values, deviation),
    'error': None if deviation is None else deviation / math.sqrt(len(values)),
    'least': min(values),
    'greatest': max(values),
    'seeds': seeds,
    'same_seed': len(set(seeds)) < len(seeds),
    'workdirs': [one['path'] for one in group],
    'differing': dict(differing),
    'uncharged': language.describe_uncharged(group[0], metric),
  }


def _interval(
  group: Sequence[Mapping[str, Any]], metric: str, values: Sequence[float], deviation: float | None
) -> dict[str, Any] | None:
  """Return the 95% interval: t over several runs, else the bootstrap interval of results.json; None without one."""
  if deviation is not None:
    interval = intervals.t_interval_of(statistics.fmean(values), deviation, len(values))
  elif 'interval' in group[0] and metric == group[0]['metric']:
    low, high = group[0]['interval']
    interval = intervals.Interval(low, high, group[0]['rows']['count'], 'bootstrap')
  else:
    return None
  return interval._asdict()


def _deviation(values: Sequence[float]) -> float | None:
  """Return the sample standard deviation: NaN if a value is not finite, None for a single value."""
  if len(values) < 2:
    return None
  return statistics.stdev(values) if all(map(math.isfinite, values)) else math.nan


def _text(differing: Mapping[str, Any]) -> str:
  """Return the differences as text, such as 'data 8f31c2a0, optim.lr=0.001': the data first, then the config."""
  cells = [
    f'data {str(x)[:8]}' if name == 'data_hash' else f'{name}={x}' for name, x in differing.items() if name != 'path'
  ]
  shown = cells[:MAX_DIFFERENCES]
  return ', '.join(shown + ([f'{len(cells) - len(shown)} more'] if len(cells) > len(shown) else []))


def _curves(
  groups: Iterable[Sequence[Mapping[str, Any]]], differences: Sequence[Mapping[str, Any]], metric: str
) -> dict[str, list[list[tuple[int, float]]]]:
  """Return (step, metric) of each run, by the name of its group and the settings in which other groups differ."""
  curves: dict[str, list[list[tuple[int, float]]]] = {}
  for group, differing in zip(groups, differences, strict=True):
    name = f'{group[0]["name"]} {_text(differing)}'.strip()
    curves[f'{name} {group[0]["path"]}' if name in curves else name] = [_curve(one, metric) for one in group]
  return curves


def _curve(result: Mapping[str, Any], metric: str) -> list[tuple[int, float]]:
  valid = [record for record in records.read_metrics(result['path']) if record['split'] == 'valid']
  if not any(metric in record for record in valid):
    names = {name for record in valid for name in record} - {'step', 'split', 'seconds'}
    advice = f'{nearest(metric, names)}; choose one with --metric' if names else ''
    raise InputError(
      f'--metric: got "{metric}", which {result["path"]} does not have of the validation split during training{advice}'
    )
  return [(record['step'], record[metric]) for record in valid if metric in record]


def _lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
  metrics = [f'{row["metric"]} of {row["positive"]}' if 'positive' in row else row['metric'] for row in rows]
  width, wide = max(len(row['name']) for row in rows), max(14, *map(len, metrics))
  names = ('sd', 8), ('se', 8), ('min', 10), ('max', 10)
  head = ' '.join(f'{name:>{size}}' for name, size in names)
  lines = [f'{"":{width}}  {"metric":{wide}} {"runs":>4} {"mean":>10} {"95% interval":22} {head}']
  for row, metric in zip(rows, metrics, strict=True):
    spread = [f'{"":8}' if row[key] is None else f'{row[key]:8.3f}' for key in ('deviation', 'error')]
    cells = [f'{row["name"]:{width}}  {metric:{wide}} {row["runs"]:4} {row["mean"]:10.3f}', _span(row['interval'])]
    cells += [*spread, f'{row["least"]:10.3f}', f'{row["greatest"]:10.3f}']
    about = [row['model'], f'{row["dataset"]}/{row["split"]}', row['uncharged']]
    lines.append(f'{" ".join(cells)}  {", ".join(filter(None, about))}')
    if row['same_seed']:
      lines.append(f'{"":{width}}  some of these runs have the same seed')
    if row['differing']:
      differing = _text(row['differing'])
      lines.append(f'  {", ".join(row["workdirs"])}{": " if differing else ""}{differing}')
  return lines


def _span(interval: Mapping[str, Any] | None) -> str:
  """Return an interval as text of the width of its column."""
  text = '' if interval is None else f'{interval["low"]:.3f} to {interval["high"]:.3f}'
  return f'{text:22}'
