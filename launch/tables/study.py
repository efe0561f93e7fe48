"""Tables whose runs depend on earlier results: tries first, then the runs with what the tries choose.

The file of such a table has `build(options, chosen, seeds)` (experiments/tables/lineage.py). `--options` and `--seeds`
are its arguments. A command runs what is known to be needed, chooses, and continues until nothing is missing. Runs are
kept, so the same command continues where it was stopped.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from experiments.tables import Choice, Run, Table
from launch.tables import collection, hours, report, runner
from launch.tables import plan as plans
from lmx import records
from lmx.errors import InputError
from lmx.metrics import bag_of_words


class Stage(NamedTuple):
  """State of a study.

  Attributes:
    table: its rows and runs as far as they are known.
    chosen: the run that each choice has given.
    tries: names of the runs that choices wait for, of each choice; those that start from most other runs first.
    failed: names of the tries that choices were made without.
  """

  table: Table
  chosen: Mapping[str, str]
  tries: list[list[str]]
  failed: list[str]


def build(name: str, plan: plans.Plan, chosen: Mapping[str, str], *, assume: bool = False) -> Table:
  """Return the table of a command line's options.

  Args:
    name: its name.
    plan: options of the command line.
    chosen: the run that each choice has given.
    assume: assume a run where none is chosen.

  Raises:
    InputError: unknown option or value.
  """
  make = importlib.import_module(f'experiments.tables.{name}').build
  try:
    return make(plan.options, chosen, plan.seeds or 1, assume=assume)
  except ValueError as error:
    raise InputError(f'--options: {error}') from None


def of_runs(plan: plans.Plan) -> plans.Plan:
  """Return the plan of a study's runs: its options and seeds are part of the table."""
  return dataclasses.replace(plan, options='', seeds=0)


def resolve(name: str, plan: plans.Plan, failed: Collection[runner.Key] = ()) -> Stage:
  """Return the study with the choices that the results so far allow.

  Args:
    name: name of the table.
    plan: options of the command line.
    failed: runs that failed in this command; a choice is made among the others.
  """
  chosen: dict[str, str] = {}
  own = of_runs(plan)
  while True:
    table = build(name, plan, chosen)
    runs = {run.name: run for run in table.runs}
    waiting: list[list[str]] = []
    found: dict[str, str] = {}
    for choice in table.choices:
      losses = {run: _loss(runs[run], own) for run in choice.tries}
      best, missing = choose(choice, losses, {run for run, seed in failed if seed == 0})
      waiting += [missing] if missing else []
      found |= {choice.name: best} if best else {}
    if found.keys() == chosen.keys():
      waiting.sort(key=lambda names: -len(plans.sort_by_dependency(names[:1], runs)))
      tries = {run for choice in table.choices for run in choice.tries}
      return Stage(table, chosen, waiting, sorted({run for run, seed in failed if seed == 0 and run in tries}))
    chosen = found


def choose(choice: Choice, losses: Mapping[str, float], failed: Collection[str] = ()) -> tuple[str, list[str]]:
  """Return the run with the least validation loss, or '' and the runs that the choice waits for.

  While the best run is the first or the last of those tried, the next one is tried too.
  """
  first, stop = choice.first, choice.stop
  while True:
    tried = choice.tries[first:stop]
    missing = [run for run in tried if math.isnan(losses[run]) and run not in failed]
    done = [run for run in tried if not math.isnan(losses[run])]
    if missing or not done:
      return '', missing
    best = min(done, key=losses.__getitem__)
    if best == tried[0] and first > 0:
      first -= 1
    elif best == tried[-1] and stop < len(choice.tries):
      stop += 1
    else:
      return best, []


def _loss(run: Run, plan: plans.Plan) -> float:
  """Return the validation loss of a finished run at seed 0, infinity if it is not a number, NaN before the end.

  Raises:
    InputError: the directory has a run of another config.
  """
  where = plans.directory(run, 0, plan)
  if problems := collection.differences(where, plans.configs(run, plan)[''], 0):
    raise InputError(f'{problems[0]}; move it elsewhere, or choose another --runs')
  if not (where / records.RESULTS).exists():
    return math.nan
  loss = records.read_results(where).get('validation_loss')
  return float(loss) if isinstance(loss, (int, float)) and not math.isnan(loss) else math.inf


class Cost(NamedTuple):
  """Name of a run, its seeds that are not finished, the estimated hours of one (NaN: not known), and its hardware."""

  name: str
  seeds: int
  hours: float
  needs: str


def _planned(name: str, plan: plans.Plan) -> Table:
  """Return a study with all of its runs; where nothing is chosen yet, a run is assumed."""
  return build(name, plan, resolve(name, plan).chosen, assume=True)


def costs(name: str, plan: plans.Plan) -> list[Cost]:
  """Return the costs of the runs of a study that are not finished."""
  table = _planned(name, plan)
  runs, plan = {run.name: run for run in table.runs}, of_runs(plan)
  found = []
  for run in table.runs:
    planned = [plans.commands(run, seed, runs, plan, shown=True) for seed in plans.seeds(run, plan)]
    missing = sum(any(not command.proof.exists() for command in commands) for commands in planned)
    if missing:
      each = hours.of_run(run, runs)
      found.append(Cost(run.name, missing, each or (math.nan if run.config else 0.0), run.needs))
  return found


def describe(found: Sequence[Cost]) -> list[str]:
  """Return the lines of a cost: the hours of each run, and of all."""
  if not found:
    return ['nothing is missing']
  width = max(len(one.name) for one in found)
  times = lambda one: f' x {one.seeds} seeds' if one.seeds > 1 else ''
  lines = [f'  {one.name:{width}} {_hours(one.hours):>10}{times(one)}' for one in found]
  known = [one for one in found if not math.isnan(one.hours)]
  total, count = sum(one.seeds * one.hours for one in known), sum(one.seeds for one in found)
  needed = ', '.join(dict.fromkeys(one.needs for one in known if one.hours))
  about = f'about {_hours(total)} on {needed}' if needed else 'of unknown hours'
  others = sum(one.seeds for one in found) - sum(one.seeds for one in known)
  rest = f'; {others} of them without an estimate' if others and needed else ''
  return [*lines, f'{count} runs, {about}{rest}; wider grids of rates are not counted']


def _hours(value: float) -> str:
  return 'not known' if math.isnan(value) else report.duration(3600 * value) if value else 'seconds'


class Progress:
  """Messages of a study: how many of its runs are done, with the estimated and the taken hours of these.

  Args:
    found: costs of the runs.
    say: printer.
  """

  def __init__(self, found: Sequence[Cost], say: Callable[[str], None]):
    self._hours = {one.name: one.hours for one in found}
    self._count, self._say = sum(one.seeds for one in found), say
    self._done, self._start = dict[str, float](), time.monotonic()

  def estimate(self, runs: Sequence[Run]) -> None:
    """Estimate the hours of runs again: those that a choice has given were assumed before, with another rate."""
    by_name = {run.name: run for run in runs}
    self._hours |= {run.name: hours.of_run(run, by_name) for run in runs}

  def __call__(self, text: str) -> None:
    """Print a message of the runner; one that ends a run has the progress before it."""
    name, _, rest = text.partition(': ')
    if not rest.startswith('done in'):
      self._say(text)
      return
    self._done[name] = self._hours.get(name.partition(' seed ')[0], 0.0)  # a chosen run is evaluated later: once
    taken, count = (time.monotonic() - self._start) / 3600, len(self._done)
    known = [value for value in self._done.values() if not math.isnan(value)]
    more = f'in all {_hours(taken)}, estimated {_hours(sum(known))}'
    self._say(f'[{count} of {max(self._count, count)}] {text}; {more}')


def run(
  name: str, plan: plans.Plan, jobs: int, say: Callable[[str], None], program: Sequence[str] = ()
) -> tuple[Stage, int]:
  """Run a study until nothing is missing, or what is missing failed; return its state and the exit code.

  The hours of all runs are printed before the first. A system is run as far as its choices allow before the next.

  Raises:
    InputError: data are missing that a later run needs.
  """
  own = of_runs(plan)
  _check_data(name, plan)
  found = costs(name, plan)
  for line in describe(found):
    say(line)
  progress = Progress(found, say)
  failed: dict[runner.Key, str] = {}
  while True:
    stage = resolve(name, plan, failed)
    progress.estimate(stage.table.runs)
    todo = next_tasks(stage, own, jobs, failed)
    if not todo:
      return stage, 1 if failed else 0
    local = runner.Runner(jobs, progress, program)
    code = local.run(todo)
    failed |= local.failed
    if code == runner.PREEMPTED:
      return resolve(name, plan, failed), code


def _check_data(name: str, plan: plans.Plan) -> None:
  """Raise InputError if an unfinished run of a study needs data that are not given, or scikit-learn."""
  table = _planned(name, plan)
  runs = {run.name: run for run in table.runs}
  for task in runner.plan_tasks(table.runs, runs, of_runs(plan)):
    if task.missing:
      raise InputError(task.missing)
    words = [word for command in task.commands for word in command.words]
    if '--config.evaluation.bag_of_words=true' in words and not bag_of_words.is_installed():
      raise InputError(f"{task.title} needs scikit-learn: pip install 'lmx[baselines]'")


def next_tasks(stage: Stage, plan: plans.Plan, jobs: int, failed: Collection[runner.Key] = ()) -> list[runner.Task]:
  """Return the runs of the rows, and the tries of as many choices as `jobs` processes need."""
  for count in range(len(stage.tries) + 1):
    found = tasks(stage._replace(tries=stage.tries[:count]), plan, failed)
    if len(found) >= jobs:
      return found
  return found


def tasks(
  stage: Stage, plan: plans.Plan, failed: Collection[runner.Key] = (), *, shown: bool = False
) -> list[runner.Task]:
  """Return the tasks that can be planned now: the runs of the rows, and tries without a result."""
  runs = {run.name: run for run in stage.table.runs}
  names = [*plans.read_from(stage.table.rows), *(name for tries in stage.tries for name in tries)]
  todo = runner.plan_tasks([runs[name] for name in dict.fromkeys(names)], runs, plan, shown=shown)
  lost = set(failed)
  for task in todo:  # in an order that respects their dependencies
    lost |= {task.key} if lost & set(task.after) else set()
  return [task for task in todo if task.key not in lost]
