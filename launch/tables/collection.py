"""Metrics of a table, from work directories of any machine.

A run is at DIR/NAME/seedK, or else in any work directory below DIR whose config.json matches, so that directories may
keep their names from another machine. A run with another config than the table's, or one that cannot be read, is
reported and not counted.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import pathlib
import statistics
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from experiments.tables import BEST, MEDIAN, METRICS, Metric, Row, Run, Table
from launch.tables import plan as plans
from lmx import documents, records
from lmx import statistics as intervals
from lmx.config import experiment, renames
from lmx.errors import InputError, InputWarning

_SUBFOLDERS = ('checkpoints', 'tensorboard', 'tokenizer')  # folders of a work directory that contain no other one
_SECTIONS = ('model', 'objective', 'data', 'optim', 'train', 'evaluation')  # not names of a pipeline's stages
_SPLITS = {'dev': 'valid', 'newstest2014': 'test', 'held-out': 'test'}  # names of papers
_Workdir = tuple[pathlib.Path, dict[str, Any]]
DONE, PART, ABSENT, WRONG = 'done', 'unfinished', 'not run', 'not counted'


@dataclasses.dataclass(frozen=True)
class SeedResult:
  """Metric of one seed in the paper's unit, with its run's validation loss, device, work directory and data hash.

  Device and data hash are '' if none is recorded. `interval` is the 95% bootstrap interval over rows in the same unit,
  () if the run saved none of this metric.
  """

  value: float
  seed: int | None
  seconds: float
  device: str
  loss: float
  workdir: pathlib.Path
  data_hash: str
  interval: tuple[float, ...] = ()


@dataclasses.dataclass
class RowResult:
  """Metrics of a row by seed, the expected number of seeds, problems, and the run of the metrics.

  With several tries `seeds` are those of the chosen one; until all are done, none is chosen.
  """

  row: Row
  expected_seeds: int
  seeds: list[SeedResult]
  problems: list[str]
  begun: bool = False
  run: str = ''

  @property
  def state(self) -> str:
    """One of DONE, PART, ABSENT, WRONG."""
    if len(self.seeds) >= self.expected_seeds:
      return DONE
    return WRONG if self.problems else PART if self.begun or self.seeds else ABSENT

  @property
  def value(self) -> float:
    """Return the row's statistic over seeds; NaN without one."""
    return summarize([one.value for one in self.seeds], self.row.statistic, METRICS[self.row.metric])

  @property
  def deviation(self) -> float:
    """Return the standard deviation over seeds (n - 1); NaN for fewer than two."""
    return statistics.stdev(one.value for one in self.seeds) if len(self.seeds) > 1 else math.nan

  @property
  def interval(self) -> tuple[float, ...]:
    """Return the 95% interval of a single run or of the best one over its rows, or of the median over seeds.

    () without one. The interval of a mean follows from the standard deviation and the number of seeds.
    """
    if self.row.statistic == MEDIAN and len(self.seeds) > 1:
      found = intervals.median_interval([one.value for one in self.seeds])
      return () if math.isnan(found.low) else (found.low, found.high)
    if self.row.statistic == BEST:
      return next((one.interval for one in self.seeds if one.value == self.value), ())
    return self.seeds[0].interval if len(self.seeds) == 1 else ()


def summarize(values: Sequence[float], statistic: str, metric: Metric) -> float:
  """Return the mean, the best or the median of the values of seeds; NaN without one."""
  if not values:
    return math.nan
  if statistic == BEST:
    return min(values) if metric.lower else max(values)
  return statistics.median(values) if statistic == MEDIAN else statistics.fmean(values)


def collect(table: Table, rows: list[Row], plan: plans.Plan) -> list[RowResult]:
  """Return the result of each row; fill in `plan.directories` for runs in other directories."""
  runs = {run.name: run for run in table.runs}
  problems: dict[tuple[str, int | None], list[str]] = {}
  begun, workdirs = set(), functools.cache(lambda: _find_workdirs(plan.runs))
  for name, seeds in plans.planned_seeds(plans.read_from(rows), runs, plan).items():
    run = runs[name]
    for seed in seeds:
      problems[run.name, seed] = _locate(run, seed, runs, plan, workdirs)
      where = plans.directory(run, seed, plan)
      if (where / 'config.json').exists() or any(where.glob('*.json')) or any(where.glob('*/config.json')):
        begun.add((run.name, seed))

  def collect_run(row: Row, run: Run) -> RowResult:
    one = RowResult(row, len(plans.seeds(run, plan)), [], [], run=run.name)
    for seed in plans.seeds(run, plan):
      key = (run.name, seed)
      one.begun |= key in begun
      one.problems += problems[key]
      if not problems[key]:
        _read(row, seed, plans.directory(run, seed, plan), one)
    if unlike := _compare_seeds(one.seeds, plans.of_seed(run)):
      one.problems.append(unlike)
      one.seeds.clear()
    return one

  def collect_row(row: Row) -> RowResult:
    tries = [collect_run(row, runs[name]) for name in row.runs]
    if not row.tries or row.chosen in ('', row.file):
      return _choose_try(tries, tries)
    choice = row._replace(id='', file=row.chosen)  # of another split than the printed metric
    return _choose_try(tries, [collect_run(choice, runs[name]) for name in row.runs])

  return [collect_row(row) for row in rows]


def _compare_seeds(results: list[SeedResult], of_seed: Collection[str]) -> str:
  """Return a message on two seeds whose data or settings differ, so that they have no common mean; '' if none do.

  The settings `of_seed` are meant to differ, such as the fold of the data; then its vocabulary differs too. Settings
  that a table leaves at lmx's defaults may differ if the defaults have changed between two trainings. A setting that
  the older config.json lacks does not count as a difference, except a rule of `semantics`.
  """
  ignored = {*of_seed, 'model.V'} if of_seed else set()
  for other in results[1:]:
    first = results[0]
    if not of_seed and first.data_hash and other.data_hash and first.data_hash != other.data_hash:
      what = [f'data_hash {first.data_hash[:8]} and {other.data_hash[:8]}']
    else:
      one, two = _settings(first.workdir), _settings(other.workdir)
      what = [
        f'{key} {one.get(key)!r} and {two.get(key)!r}'
        for key in sorted((one.keys() | two.keys()) - ignored)
        if one.get(key) != two.get(key) and ('semantics.' in key or key in one and key in two)
      ]
    if what:
      return f'{first.workdir} and {other.workdir} have no common mean: {"; ".join(what)}; move one elsewhere'
  return ''


def _settings(where: pathlib.Path) -> dict[str, Any]:
  """Return the settings of a run, or of each stage of a pipeline, that change what is computed."""
  return {
    f'{file.parent.relative_to(where)}/{key}'.removeprefix('./'): value
    for file in sorted((*where.glob('config.json'), *where.glob('*/config.json')))
    for key, value in plans.computation_settings(flat_config(file)).items()
  }


def _choose_try(tries: list[RowResult], scores: list[RowResult]) -> RowResult:
  """Return the try with the best of `scores`, or the lowest mean validation loss over seeds, if all are done."""
  if len(tries) == 1:
    return tries[0]
  everything = list({id(one): one for one in (*tries, *scores)}.values())
  row = tries[0].row
  if all(one.state == DONE for one in everything):
    if not row.chosen:
      return min(tries, key=lambda one: statistics.fmean(result.loss for result in one.seeds))
    best = min if METRICS[row.metric].lower else max
    return tries[best(range(len(tries)), key=lambda i: scores[i].value)]
  problems = list(dict.fromkeys(problem for one in everything for problem in one.problems))
  begun = any(one.begun or one.seeds for one in everything)
  return RowResult(row, tries[0].expected_seeds, [], problems, begun, tries[0].run)


def _locate(
  run: Run, seed: int | None, runs: Mapping[str, Run], plan: plans.Plan, workdirs: Callable[[], list[_Workdir]]
) -> list[str]:
  """Find the work directory of a run; return its problems."""
  if not run.config:
    for root in plan.runs:
      if plans.default_directory(run, seed, root).is_dir():
        plan.directories[run.name, seed] = plans.default_directory(run, seed, root)
        break
    return []
  for root in plan.runs:
    where = plans.default_directory(run, seed, root)
    if not where.is_dir():
      continue
    expected = plans.configs(run, plan)
    if any((where / part / 'config.json').exists() for part in expected):
      plan.directories[run.name, seed] = where
      return [text for part, flat in expected.items() for text in differences(where / part, flat, seed)]
  if run.kind == 'train' and workdirs():
    starts, flat = plans.starts(run, seed, runs, plan), plans.configs(run, plan)['']
    for where, settings in workdirs():
      fits = not compare_settings(settings, flat, seed) and not _has_added_settings(where, flat)
      if fits and _same_start(settings, starts) and where not in plan.directories.values():
        plan.directories[run.name, seed] = where
        return []
  return []


def flat_config(file: Any) -> dict[str, Any]:
  """Return the settings of a config.json, a renamed model under its current name. Raises InputError."""
  content = records.read_config(file.parent)
  if isinstance(content.get('model'), dict):
    with warnings.catch_warnings(action='ignore', category=InputWarning):
      content = {**content, 'model': renames.model(content['model'])}
  return dict(experiment.flatten(content))


def differences(where: pathlib.Path, flat: Mapping[str, Any], seed: int | None) -> list[str]:
  """Return how the config of a run, if there is one, differs from the table's."""
  file = where / 'config.json'
  if not file.exists():
    return []
  try:
    unlike = compare_settings(flat_config(file), flat, seed) or _added_settings(where, flat)
  except ValueError as error:
    return [str(error)]
  return [f'{where} is a run of another config: {"; ".join(unlike)}'] if unlike else []


def compare_settings(settings: Mapping[str, Any], flat: Mapping[str, Any], seed: int | None) -> list[str]:
  """Return settings of a config.json that differ from the table's, with both values; any file fits {data.NAME}."""
  expected = {**flat, **({} if seed is None else {'seed': seed})}
  expected = {key: seed if value == '{seed}' else value for key, value in expected.items()}
  fits = lambda value, wanted: bool(value) if str(wanted).startswith('{data.') else value == wanted
  return [
    f'{key} {settings.get(key)!r} there, {value!r} here'
    for key, value in expected.items()
    if not fits(settings.get(key), value)
  ]


def _has_added_settings(where: pathlib.Path, flat: Mapping[str, Any]) -> bool:
  try:
    return bool(_added_settings(where, flat))
  except ValueError:
    return False  # an unreadable file is reported when its metrics are needed


def _added_settings(where: pathlib.Path, flat: Mapping[str, Any]) -> list[str]:
  """Return settings of the command that trained a run that are not in the table."""
  words = records.read_results(where).get('command', [])
  texts = [str(word).removeprefix('--config.') for word in words if str(word).startswith('--config.')]
  keys = [text.partition('=')[0] for text in texts]
  return [
    f'{text} there, not set here'
    for key, text in zip(keys, texts, strict=True)
    if key not in flat and key.partition('.')[0] in _SECTIONS and not plans.is_free(key)
  ]


def _same_start(settings: Mapping[str, Any], starts: list[pathlib.Path] | None) -> bool:
  """Return whether a run started from a directory with the same end of its name; with None, newly initialised."""
  parts = pathlib.PurePath(settings.get('train.init_from') or '').parts
  if starts is None:
    return not parts
  return not starts or any(parts[-2:] == start.parts[-2:] for start in starts)


def _find_workdirs(roots: Iterable[pathlib.Path]) -> list[_Workdir]:
  """Return every work directory below `roots` with its settings; warn of those that cannot be read."""
  workdirs = []
  for root in roots:
    for name, folders, files in os.walk(root):
      if 'config.json' in files:
        folders[:] = [folder for folder in folders if folder not in _SUBFOLDERS]
        try:
          workdirs.append((pathlib.Path(name), flat_config(pathlib.Path(name, 'config.json'))))
        except InputError as error:
          warnings.warn(f'{error}; the run is left out', InputWarning, stacklevel=2)
  return sorted(workdirs, key=lambda one: one[0])


def read_json(file: pathlib.Path) -> Any:
  """Return the content of a JSON file, an object or a list of objects. Raises InputError."""
  content = records.from_json(records.read_json(file), str(file))
  for one in content if isinstance(content, list) else [content]:
    documents.convert(one, dict, str(file))
  return content


def _read(row: Row, seed: int | None, where: pathlib.Path, result: RowResult) -> None:
  """Add the metric of a seed, or its problem."""
  paths = files(row, where)
  if not all(file.exists() for file in paths):
    return
  try:
    measured = [pick_record(read_json(file), row, file) for file in paths]
    value = statistics.fmean(_measure(one, row, file) for one, file in zip(measured, paths, strict=True))
    record, results = measured[0], where / records.RESULTS
    about = records.read_results(where) if results != paths[0] and results.exists() else record
  except ValueError as error:
    result.problems.append(str(error))
    return
  loss = _number(about.get('validation_loss'))
  if row.tries and not row.chosen and math.isnan(loss):
    result.problems.append(f'{results} has no validation loss, by which the try that counts is chosen')
    return
  seconds, device = _number(about.get('training_seconds')), str(about.get('device', ''))
  data_hash = str(record.get('data_hash', ''))
  interval = _interval(record, METRICS[row.metric]) if len(paths) == 1 else ()
  result.seeds.append(SeedResult(value, seed, seconds, device, loss, where, data_hash, interval))


def files(row: Row, where: pathlib.Path) -> list[pathlib.Path]:
  """Return the files in the work directory `where` that have a row's metric."""
  return [where / f'{name}.json' for name in row.file.split(',')]


def pick_record(record: Any, row: Row, file: pathlib.Path) -> Mapping[str, Any]:
  """Return the record of a row from the content of its file. Raises InputError if there is none."""
  if row.pick and isinstance(record, Mapping):
    record = record.get('records', record)
  if not isinstance(record, list):
    return documents.convert(record, dict, str(file))
  expected = dict(part.partition('=')[::2] for part in row.pick.split(','))
  for one in record:
    if all(str(documents.convert(one, dict, str(file)).get(key)) == value for key, value in expected.items()):
      return one
  raise InputError(f'{file} has no record of {row.pick.replace(",", ", ")}')


def _measure(record: Mapping[str, Any], row: Row, file: pathlib.Path) -> float:
  printed = plans.published().get(row.id)
  split = _SPLITS.get(printed.split, printed.split) if printed else ''
  measured = record.get('split', '')
  if split in ('train', 'valid', 'test') and measured and not row.differs and not str(measured).startswith(split):
    raise ValueError(f'{file} is of the split {measured}; {row.id} is of {split}')
  metric, content = METRICS[row.metric], record
  for key in metric.key.split('.'):
    content = content.get(key) if isinstance(content, Mapping) else None  # type: ignore[assignment]
  value = _number(content)
  if math.isnan(value):
    raise ValueError(f'{file} has no metric "{metric.key}"')
  return metric.scale * value


def _interval(record: Mapping[str, Any], metric: Metric) -> tuple[float, ...]:
  """Return the saved interval of a metric, which is that of the headline metric; () without one."""
  bounds = record.get('interval')
  if not isinstance(bounds, list) or record.get('metric') != metric.key:
    return ()
  return tuple(metric.scale * _number(bound) for bound in bounds)


def _number(value: Any) -> float:
  return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
