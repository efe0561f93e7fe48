"""Trainings of the lines of measured.csv, as runs of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.tables import CORES, Run
from launch.tables import measured, recorded
from launch.tables import plan as plans


def runs_of(one: measured.Measurement) -> list[tuple[Run, dict[str, Run]]]:
  """Return the trainings of a line of measured.csv, each with the runs that it starts from."""
  found = recorded.commands(one)
  if found and tuple(found[0][:3]) == recorded.TABLES:
    return _runs_of_table(one, found[0][3:])
  runs: dict[str, Run] = {}
  if one.start and one.start != one.id:
    first = [run for line in measured.by_id().get(one.start, []) for run, _ in runs_of(line)]
    runs |= dict(zip([one.start], first, strict=False))
  trainings = []
  for words in found:
    if words[:2] == ['lmx', 'train']:
      changes = tuple(_settings(words, one.start if runs else ''))
      trainings.append((Run(one.id, recorded.option(words, '--config').removesuffix(':'), changes, needs=CORES), runs))
  return trainings


def _settings(words: Sequence[str], start: str = '') -> Iterator[str]:
  """Yield the settings of a command; the run that it starts from in braces."""
  for name, value in recorded.options(words):
    key = name.removeprefix('--config.')
    if key != name:
      yield f'{key}={{{start}}}' if start and key == 'train.init_from' else f'{key}={value}'


def _runs_of_table(one: measured.Measurement, words: Sequence[str]) -> list[tuple[Run, dict[str, Run]]]:
  table = plans.table(words[0])
  plan = plans.Plan(options=recorded.option(words, '--options'))
  changes = tuple(_settings(words))
  runs = {
    run.name: run._replace(config=plans.argument(run, plan), settings=(*run.settings, *changes)) if run.config else run
    for run in table.runs
  }
  names = [name for row in table.rows if row.id == one.id for name in row.runs]
  return [(runs[name], runs) for name in names if runs[name].config]
