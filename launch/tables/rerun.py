"""Run lines of measured.csv again and compare: `python -m launch.tables [TABLE] --rows=IDS --rerun`.

The runs are in DIR/rerun/ID/seedK of the first of `--runs`, those of tables in DIR/rerun/tables; lines with the same
commands share them. A run that a line starts from is run first, or given by `--start=DIR`. Finished commands are not
repeated.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import pathlib
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from experiments.tables import DATA
from launch.command import PREEMPTED
from launch.tables import (
  check,
  collection,
  evaluations,
  measured,
  options,
  printed,
  recorded,
  runner,
  trainings,
  verdict,
)
from launch.tables import plan as plans
from lmx import records, storage
from lmx.cli.main import split_overrides
from lmx.errors import InputError
from lmx.redaction import redact

_WRITES = ('evaluate', 'ngrams', 'vectors', 'describe')  # commands whose metrics go to a JSON file given by --output


_Commands = Sequence[Sequence[str]]


class Value(NamedTuple):
  """Metric of a seed, and the hash of the data that it was measured on, '' if the file has none."""

  value: float
  data_hash: str


@dataclasses.dataclass
class Rerun:
  """Commands of a line, as tasks in an order that respects their dependencies, and a reader of the metric by seed."""

  line: measured.Measurement
  tasks: list[runner.Task]
  read: Callable[[], list[Value]]

  def leave_finished(self) -> None:
    """Remove the commands that are finished, and the tasks that have no others."""
    for task in self.tasks:
      task.commands = [command for command in task.commands if not command.proof.exists()]
    self.tasks = [task for task in self.tasks if task.commands]


def run(args: argparse.Namespace, plan: plans.Plan, notify: Callable[[str], None]) -> int:
  """Run the selected lines and print how each compares; return 0 if all are within, 1 if not or if a run failed."""
  root = plan.runs[0] / 'rerun'
  planner = Planner(root, plan.data, args.start)
  reruns = [planner.plan(one) for one in selected(args.table or '', args.rows)]
  for one in reruns:
    one.leave_finished()
    if not one.tasks:
      notify(f'{one.line.id}: nothing to run: its runs in {root} are finished; another --runs=DIR runs it anew')
  tasks = {task.key: task for one in reruns for task in one.tasks}
  if args.dry_run:
    for task in tasks.values():
      for command in task.commands:
        print(f'lmx {redact(shlex.join(command.words))}')
    return 0
  code = runner.Runner(args.jobs, notify).run(list(tasks.values()))
  if code == PREEMPTED:
    notify('launch.tables: stopped; the same command resumes')
  if code:
    return code
  return max(_compare(one) for one in reruns)


def _compare(one: Rerun) -> int:
  """Print how a line compares; return 0 if it is within what was recorded, 1 if not, 2 if its metric cannot be read."""
  try:
    return 0 if compare(one.line, one.read()) else 1
  except InputError as error:
    print(f'launch.tables: {redact(str(error))}', file=sys.stderr)
    return 2


def selected(table: str, rows: str) -> list[measured.Measurement]:
  """Return the lines to run again. Raises InputError if there are none, with the reason."""
  if not rows and not table:
    raise InputError('--rerun: got no table and no --rows; expected the lines to run again, such as --rows=ID')
  lines = [one for _, one in check.select(table, rows)]
  if not lines:
    raise InputError(f'--rerun: {measured.FILE} has no line of a row of {table}')
  reasons = {one: _reason(one) for one in lines}
  for one, reason in reasons.items():
    if reason:
      print(f'launch.tables: {one.id}: cannot be run again: {reason}', file=sys.stderr)
  lines = [one for one, reason in reasons.items() if not reason]
  if not lines:
    raise InputError('--rerun: none of these lines can be run again')
  return lines


def _reason(one: measured.Measurement) -> str:
  """Return why a line cannot be run again by a program; '' if it can."""
  if one.kept or not one.is_lmx:
    return one.kept or f'another program measured it ({one.command})'
  printing = recorded.printing(recorded.commands(one))
  return f'no file has the metric that is printed by `{shlex.join(printing)}`; run it by hand' if printing else ''


def compare(one: measured.Measurement, values: Sequence[Value]) -> bool:
  """Print the recorded metric, the new one and their difference; return whether it is within what was recorded."""
  digits = len(one.value.partition('.')[2])
  metric = evaluations.metrics_of(one)[0]
  value, recorded_value = collection.summarize([each.value for each in values], one.statistic, metric), float(one.value)
  tolerance, what = _tolerance(one)
  difference = value - recorded_value
  within = abs(difference) <= tolerance + 1e-9 * abs(recorded_value)
  shown = f'{value:.{digits}f}' + (f' ({measured.of_seeds(one.statistic, len(values))})' if len(values) > 1 else '')
  _check_data(one, values, shown)
  print(
    f'{one.id}: recorded {measured.text(one)}, now {shown}, difference {difference:+.{digits}f}: '
    f'{"within" if within else "outside"} {what}'
  )
  return within


def _check_data(one: measured.Measurement, values: Sequence[Value], shown: str) -> None:
  """Raise InputError, with the new metric, if it is of other data than recorded, where both hashes are known."""
  known, found = one.data_hash.split(), sorted({each.data_hash for each in values if each.data_hash})
  if other := [key[:8] for key in found if known and not key.startswith(tuple(known))]:
    raise InputError(
      f'{one.id}: recorded {measured.text(one)}, now {shown}, of other data: data_hash: got {", ".join(other)}; '
      f'expected {", ".join(known)}; give the recorded files by --data'
    )


def _tolerance(one: measured.Measurement) -> tuple[float, str]:
  """Return the largest difference that counts as the same metric, and its description."""
  rounding = 0.5 * 10.0 ** -len(one.value.partition('.')[2])
  metric = evaluations.metrics_of(one)[0]
  if metric.key.startswith('parameters') or _is_ngrams(one):
    return rounding, 'the rounding of the recorded value'
  if one.spread:
    return 2 * float(one.spread) + rounding, f'two standard deviations of {one.count} seeds'
  if one.interval:
    low, high = map(float, one.interval.split())
    return max(float(one.value) - low, high - float(one.value)) + rounding, 'the 95% interval of the recorded run'
  if metric.whole:
    return rounding, 'equality'
  band = metric.band * abs(float(one.value)) if metric.relative else metric.band
  return max(band, rounding), f'the band of a single run (±{band:.3g})'


def _is_ngrams(one: measured.Measurement) -> bool:
  """Return whether a line is of n-gram models, whose metrics are the same each time."""
  found = recorded.commands(one)
  if tuple(found[0][:3]) == recorded.TABLES:
    run, _ = trainings.table_run(one.id, found[0][3:])
    return not run.config and all(text.startswith('ngrams ') for text in run.then)
  return found[-1][:2] == ['lmx', 'ngrams']


class Planner:
  """Plan of the commands of lines.

  Args:
    root: directory of all runs.
    data: name in DATA, or a word in capitals of a command -> directory or file.
    start: work directory in place of the run that a line starts from; '' runs that line first.
  """

  def __init__(self, root: pathlib.Path, data: Mapping[str, str], start: str = ''):
    self._root, self._data, self._start = root, data, start

  def plan(self, one: measured.Measurement) -> Rerun:
    """Return how a line is run again. Raises InputError if it does not say how, or data are not given."""
    found = recorded.commands(one)
    if tuple(found[0][:3]) == recorded.TABLES:
      return self._table(one, found[0][3:])
    return self._commands(one, found)

  def _table(self, one: measured.Measurement, words: Sequence[str]) -> Rerun:
    rest, settings = split_overrides(list(words))
    args = options.parser().parse_args(rest)
    table, given = trainings.table_of(words), trainings.table_plan(words)
    if one.id not in {row.id for row in table.rows}:
      raise InputError(f'{one.id}: table {args.table} has no such row')
    rows = options.select_rows(table, one.id)
    data = {name: path for name, path in self._data.items() if name in DATA}
    plan = plans.Plan((self._root / 'tables',), data, args.seeds, given.options, tuple(settings))
    runs = {run.name: run for run in table.runs}
    collection.collect(table, rows, plan)
    tasks = runner.plan_tasks([runs[name] for name in plans.read_from(rows)], runs, plan)
    for name in filter(DATA.__contains__, recorded.data_of(one) if tasks else []):
      self._given(one, name, name)
    for missing in filter(None, (task.missing for task in tasks)):
      raise plans.Missing(missing)

    def read() -> list[Value]:
      [result] = collection.collect(table, rows, plan)
      if result.state != collection.DONE:
        raise InputError(f'{one.id}: {result.state}: {"; ".join(result.problems) or "its runs left no metric"}')
      return [Value(seed.value, seed.data_hash) for seed in result.seeds]

    return Rerun(one, tasks, read)

  def _commands(self, one: measured.Measurement, found: _Commands) -> Rerun:
    tasks, filled = self._before(one), self._filled(one, found)
    commands = list(dict.fromkeys(command for each in filled for command in each))
    log = self._folder(one) / 'rerun.log'
    task = runner.Task((same_commands(one).id, None), commands, [before.key for before in tasks], log)
    files = dict.fromkeys(command.proof for command in filled[-1])
    return Rerun(one, [*tasks, task], lambda: [read_metric(one, file) for file in files])

  def _before(self, one: measured.Measurement) -> list[runner.Task]:
    """Return the tasks of the runs that a line starts from, unless they are given."""
    tasks: list[runner.Task] = []
    for name in recorded.starts(one) if self._start else ():
      check_start(storage.path('--start', self._start), name)
    for name in [] if self._start else recorded.starts(one):
      if weights := recorded.weights(name):
        where = self._root / 'imported' / weights
        source = self._given(one, weights, weights)
        command = plans.Command(('import', f'--from={source}', f'--workdir={where}'), where / 'config.json')
        tasks.append(runner.Task((name, None), [command], [], where.with_suffix('.log')))
      else:
        tasks += self.plan(measured.by_id()[name]).tasks
    return tasks

  def _filled(self, one: measured.Measurement, found: _Commands) -> list[list[plans.Command]]:
    """Return each command of a line for each seed, with directories in place of its words in capitals."""
    has_seed = any(recorded.SEED in word for words in found for word in words)
    made = []
    for number, words in enumerate(found):
      by_seed = []
      for seed in seeds(one):
        values = self._values(one, found, seed)
        filled = [self._fill(one, word, values) for word in words[1:]]
        is_own = words[1] in ('train', 'pipeline') and recorded.option(words, '--workdir') == 'DIR'
        if is_own and not has_seed and seed and not recorded.option(words, '--config.seed'):
          filled.append(f'--config.seed={seed}')
        by_seed.append(filled)
      is_same = all(filled == by_seed[0] for filled in by_seed)
      for seed, filled in zip(seeds(one), by_seed, strict=True):
        if words[1] in _WRITES and not recorded.option(words, '--output'):
          end = '' if is_same else f'-seed{seed or 0}'
          filled.append(f'--output={self._folder(one)}/metrics-{number}{end}.json')
      made.append([plans.Command(tuple(filled), _proof(filled)) for filled in by_seed])
    return made

  def _fill(self, one: measured.Measurement, word: str, values: dict[str, str]) -> str:
    """Return a word with directories in place of those in capitals; outputs go into the line's own directory."""
    if not recorded.is_output(word):
      return recorded.fill(word, values)
    name, _, value = word.partition('=')
    return f'{name}={self._folder(one)}/outputs/seed{values[recorded.SEED]}/{value}'

  def _values(self, one: measured.Measurement, found: _Commands, seed: str | None) -> dict[str, str]:
    """Return the directory of each word in capitals for a seed."""
    used = recorded.roles(found)
    begins = dict(zip([word.name for word in used if word.role == recorded.START], recorded.starts(one), strict=False))
    names = dict(zip([word.name for word in used if word.role == recorded.GIVEN], recorded.data_of(one), strict=False))
    values = {recorded.SEED: seed or '0'}
    for word in used:
      if word.role == recorded.OWN:
        values[word.name] = str(self._own(one, found, word.name, seed))
      elif word.role == recorded.START:
        if not self._start and word.name not in begins:
          raise InputError(f'{one.id}: start: got {one.start or "none"}; expected the run for {word.name}: --start=DIR')
        values[word.name] = self._start or str(self._started(begins[word.name], seed))
      else:
        values[word.name] = self._given(one, word.name, names.get(word.name, ''))
    return values

  def _own(self, one: measured.Measurement, found: _Commands, name: str, seed: str | None) -> pathlib.Path:
    """Return the directory of a word for the line's own runs, of all seeds where its command has SEED in the path."""
    maker = next((words for words in found if recorded.option(words, '--workdir').partition('/')[0] == name), [])
    folder = self._folder(one) / ('' if name == 'DIR' else name.lower())
    if recorded.SEED in recorded.option(maker, '--workdir'):
      return folder
    is_repeated = name == 'DIR' or any(recorded.SEED in word for word in maker)
    return folder / f'seed{seed or 0}' if is_repeated else folder

  def _started(self, name: str, seed: str | None) -> pathlib.Path:
    """Return the work directory of a run that a line starts from, of the same seed if it has that."""
    if weights := recorded.weights(name):
      return self._root / 'imported' / weights
    start = measured.by_id()[name]
    found = recorded.commands(start)
    its_seed = seed if seed in seeds(start) else seeds(start)[0]
    if tuple(found[0][:3]) == recorded.TABLES:
      run, _ = trainings.table_run(name, found[0][3:])
      number = int(its_seed or 0) if run.seeds else None
      return plans.default_directory(run, number, self._root / 'tables')
    made = [words for words in found if recorded.is_training(words)]
    if not made:
      return self._started(recorded.starts(start)[0], its_seed)
    return pathlib.Path(recorded.fill(recorded.option(made[-1], '--workdir'), self._values(start, found, its_seed)))

  def _folder(self, one: measured.Measurement) -> pathlib.Path:
    return self._root / same_commands(one).id

  def _given(self, one: measured.Measurement, word: str, name: str) -> str:
    """Return the directory for a word in capitals, which --data gives under that word or under its name in DATA."""
    for key in filter(None, (word, name)):
      if key in self._data:
        return self._data[key]
    about = f'{DATA[name].files} ({DATA[name].terms})' if name in DATA else name or one.data
    key = name if name in DATA else word
    raise plans.Missing(f'{one.id} needs {key}, {about}: --data={key}=DIR')


def seeds(one: measured.Measurement) -> list[str | None]:
  """Return the seeds of a line. Raises InputError if it has several that are not known."""
  if re.fullmatch(r'\d+( \d+)*', one.seeds):
    return list(one.seeds.split())
  if one.count > 1:
    raise InputError(f'{one.id}: seeds: got {one.seeds}; expected the seeds themselves to run it again')
  return [None]


def check_start(folder: epath.Path, name: str) -> None:
  """Raise InputError unless `folder` is a work directory with the model of the run `name`, a line or imported weights.

  The model of imported weights is not known. An older config.json may lack settings.
  """
  training = None if recorded.weights(name) else trainings.measured_run(measured.by_id()[name])
  for part, settings in (plans.configs(training[0], plans.Plan()) if training else {'': {}}).items():
    file = folder / part / 'config.json'
    expected = f'expected the work directory of {name if recorded.weights(name) else f"a run of the line {name}"}'
    if not records.exists(file):
      raise InputError(f'--start={folder}: got no {file}; {expected}')
    found = collection.flat_config(file)
    model = {key: value for key, value in settings.items() if key in found and key.startswith('model.')}
    model['model.name'] = settings.get('model.name', found.get('model.name'))
    if unlike := collection.compare_settings(found, model, None):
      raise InputError(f'--start={folder}: got another model ({"; ".join(unlike)}); {expected}')


def same_commands(one: measured.Measurement) -> measured.Measurement:
  """Return the first line with the same commands, starts, data and seeds, whose runs this line shares."""
  key = lambda line: (line.command, line.start, line.data, line.seeds)
  return next((other for other in measured.measurements() if key(other) == key(one)), one)


def _proof(words: Sequence[str]) -> pathlib.Path:
  """Return the file that a finished command has written."""
  if words[0] in ('train', 'pipeline'):
    return pathlib.Path(recorded.option(words, '--workdir'), 'results.json')
  if output := recorded.option(words, '--output'):
    path = pathlib.Path(output)
    return path / 'context.json' if words[0] == 'context' and path.suffix != '.json' else path
  return pathlib.Path(recorded.option(words, '--workdir'), 'config.json')


def read_metric(one: measured.Measurement, file: pathlib.Path) -> Value:
  """Return the metric of a line from a JSON file of metrics, in the line's unit.

  The row of a table says which record of a file it is. Of another line, a file with several metrics of that name
  (n-gram models, data sets, lengths) must have one whose place in the file is in the line's id or label.

  Raises:
    InputError: the file has no such metric, several that fit, or those of another split.
  """
  content, row = collection.read_json(file), verdict.rows().get(one.id)
  if row and row.pick:
    content = collection.pick_record(content, row, file)
  _check_file(one, content, file)
  found: dict[_Place, float] = {}
  for metric in evaluations.metrics_of(one):
    size = metric.key.count('.') + 1
    places = {path: value for path, value in _leaves(content) if '.'.join(path[-size:]) == metric.key}
    found |= _pick(one, {(path[:-size], path[-size:]): value for path, value in places.items()})
  if len(set(found.values())) == 1:
    [value, *_] = found.values()
    first = content[0] if isinstance(content, list) and content else content
    return Value(value * _scale(one, value), str(first.get('data_hash', '')))
  names = ', '.join('.'.join((*place, *key)) for place, key in found)
  what = f'several metrics that may be the {one.metric}: {names}' if found else f'no {one.metric}'
  raise InputError(f'{file}: has {what} of {one.id}')


def _check_file(one: measured.Measurement, content: Any, file: pathlib.Path) -> None:
  """Raise InputError for the metrics of another split or data set than a line's."""
  if not isinstance(content, Mapping):
    return
  split, dataset = content.get('split', ''), content.get('dataset', '')
  if split and evaluations.split_of(one) not in (split, '', 'all'):
    raise InputError(f'{file}: got the split {split}; expected {one.split}, which {one.id} is of')
  expected = evaluations.of(one)
  if dataset and expected and expected.configs and dataset not in expected.datasets:
    raise InputError(f'{file}: got the data set {dataset}; expected {", ".join(expected.datasets)}, read by {one.id}')


def _scale(one: measured.Measurement, value: float) -> float:
  """Return the factor to the line's unit: a share and per cents may have one name."""
  scales = {metric.scale for metric in evaluations.metrics_of(one)}
  if len(scales) == 1 or not value or not float(one.value):
    return next(iter(scales))
  return min(scales, key=lambda scale: abs(math.log(abs(value * scale / float(one.value)))))


_Place = tuple[tuple[str, ...], tuple[str, ...]]  # where a metric is in its file, and its key


def _pick(one: measured.Measurement, places: Mapping[_Place, float]) -> dict[_Place, float]:
  """Return the metrics whose places the id or label of a line names, or those in no part of the file, or all."""
  about = f'{one.id} {one.row} {one.split} {one.dataset}'.lower()
  words, letters = set(re.findall(r'[a-z]+|[0-9]+', about)), printed.letters(about)

  def is_named(part: str) -> bool:
    name = printed.letters(pathlib.PurePath(part).stem)
    return name in words or (len(name) > 3 and name in letters)

  scores = {place: sum(map(is_named, place[0])) for place in places}
  best = max(scores.values(), default=0)
  named = {place: value for place, value in places.items() if best and scores[place] == best}
  return named or {place: value for place, value in places.items() if not place[0]} or dict(places)


def _leaves(content: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
  """Yield (path, value) of each number; of a list's objects, the path has their texts and whole numbers."""
  if isinstance(content, Mapping):
    if content.get('metric') and isinstance(content.get('value'), (int, float)):  # stage of a pipeline
      yield (*path, str(content['metric'])), float(content['value'])
    for key, value in content.items():
      if key not in ('validation_baselines', 'value'):
        yield from _leaves(value, (*path, str(key)))
  elif isinstance(content, list):
    for item in content:
      if isinstance(item, Mapping):
        texts = [str(value) for key, value in item.items() if isinstance(value, (str, int)) and key != 'data_hash']
        yield from _leaves(item, (*path, *texts))
  elif isinstance(content, (int, float)) and not isinstance(content, bool):
    yield path, float(content)
