"""Trainings of the lines of measured.csv, as runs of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from experiments.tables import CORES, Run, Table
from launch.tables import measured, recorded
from launch.tables import plan as plans

Lines = Mapping[str, measured.Measurement]
Training = tuple[Run, dict[str, Run]]  # a run, and the runs by name that it may start from


def measured_run(one: measured.Measurement, lines: Lines | None = None) -> Training | None:
  """Return the run that a line measures: the last one that it trains, else the one that it starts from.

  None for imported weights and for other programs. `lines` are all lines by id, those of measured.csv without it.
  """
  lines = measured.by_id() if lines is None else lines
  if not one.is_lmx:
    return None
  if made := runs_of(one, lines):
    return made[-1]
  found = recorded.commands(one)
  if tuple(found[0][:3]) == recorded.TABLES:
    run, runs = table_run(one.id, found[0][3:])
    return next(((other, runs) for other in plans.dependencies(run, runs) if other.config), None)
  start = lines.get(next(iter(recorded.starts(one)), ''))
  return measured_run(start, lines) if start else None


def runs_of(one: measured.Measurement, lines: Lines | None = None) -> list[Training]:
  """Return the trainings and pipelines of a line in order, each with the runs that it starts from."""
  lines = measured.by_id() if lines is None else lines
  found = recorded.commands(one)
  if found and tuple(found[0][:3]) == recorded.TABLES:
    run, runs = table_run(one.id, found[0][3:])
    row = next(row for row in table_of(found[0][3:]).rows if row.id == one.id)
    return [(runs[name], runs) for name in (*row.tries, run.name) if runs[name].config]
  first = measured_run(lines[one.start], lines) if one.start in lines and one.start != one.id else None
  runs = {one.start: first[0]} if first else {}
  trainings = []
  for words in found:
    if words[:2] in (['lmx', 'train'], ['lmx', 'pipeline']):
      config = recorded.option(words, '--config').removesuffix(':')
      changes = tuple(_settings(words, one.start if runs else ''))
      trainings.append((Run(one.id, config, changes, kind=words[1], needs=CORES), runs))
  return trainings


def _settings(words: Sequence[str], start: str = '') -> Iterator[str]:
  """Yield the settings of a command; the run that it starts from in braces."""
  for name, value in recorded.options(words):
    key = name.removeprefix('--config.')
    if key != name:
      text = recorded.fill(value, {recorded.SEED: '0'})
      yield f'{key}={{{start}}}' if start and key == 'train.init_from' else f'{key}={text}'


def table_of(words: Sequence[str]) -> Table:
  """Return the table of a command of launch.tables; `words` are those after `launch.tables`."""
  return plans.table(words[0], recorded.option(words, '--options'))


def table_plan(words: Sequence[str]) -> plans.Plan:
  """Return the options and settings of a command of launch.tables for its experiments, without its seeds."""
  given = '' if plans.is_study(words[0]) else recorded.option(words, '--options')
  return plans.Plan(options=given, settings=tuple(_settings(words)))


def table_run(key: str, words: Sequence[str]) -> Training:
  """Return the run of the row `key` as a command of launch.tables changes it, and all runs of its table.

  `words` are those after `launch.tables`.
  """
  table, plan = table_of(words), table_plan(words)
  changed = lambda run: run._replace(config=plans.argument(run, plan), settings=(*run.settings, *plan.settings))
  runs = {run.name: changed(run) if run.config else run for run in table.runs}
  return runs[next(row.run for row in table.rows if row.id == key)], runs
