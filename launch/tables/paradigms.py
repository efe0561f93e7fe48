"""Accuracies on minimal pairs by paradigm: of runs, and recorded in experiments/tables/paradigms.csv. Imports no JAX.

A line of the file has the id of a row of measured.csv, a seed, and the accuracy of each paradigm in percent; the
columns are named 'phenomenon/paradigm'.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from experiments.tables import Table
from launch.tables import collection
from launch.tables import plan as plans
from lmx.errors import InputError

FILE = plans.FOLDER / 'paradigms.csv'
COUNT = 67  # paradigms of BLiMP
_KEYS = ('id', 'seed')


class Accuracies(NamedTuple):
  """Accuracies of a row.

  Attributes:
    seeds: the seeds, '' of a run without one.
    paradigms: 'phenomenon/paradigm' of each column.
    values: percent, a tuple of all paradigms for each seed.
  """

  seeds: tuple[str, ...]
  paradigms: tuple[str, ...]
  values: tuple[tuple[float, ...], ...]


def of_results(results: Iterable[collection.RowResult]) -> dict[str, Accuracies]:
  """Return the accuracies of rows whose runs are all done and have them by paradigm, by id."""
  found: dict[str, Accuracies] = {}
  for one in results:
    if one.state == collection.DONE and one.seeds:
      files = [collection.files(one.row, seed.workdir)[0] for seed in one.seeds]
      lists = [_paradigms(collection.read_json(file)) for file in files]
      if all(lists):
        names = tuple(lists[0])
        if any(tuple(each) != names for each in lists):
          raise InputError(
            f'{files[0].parent.parent}: got seeds with different paradigms; evaluate them on the same pairs'
          )
        seeds = tuple('' if seed.seed is None else str(seed.seed) for seed in one.seeds)
        found[one.row.id] = Accuracies(seeds, names, tuple(tuple(each.values()) for each in lists))
  return found


def _paradigms(record: Any) -> dict[str, float]:
  """Return the accuracies of an evaluation by 'phenomenon/paradigm', in percent; {} of another one."""
  listed = record.get('paradigms', []) if isinstance(record, Mapping) else []
  return {f'{one["phenomenon"]}/{one["name"]}': 100 * one['accuracy'] for one in listed if 'phenomenon' in one}


def of_table(table: Table, known: Mapping[str, Accuracies]) -> dict[str, dict[str, Accuracies]]:
  """Return the accuracies of a table's matrix by group and by the name in its first column.

  Raises:
    InputError: two systems were evaluated on other paradigms.
  """
  found: dict[str, dict[str, Accuracies]] = {}
  first = ''
  for row in table.matrix.rows if table.matrix else ():
    if key := next((cell for cell in row.cells if cell in known), ''):
      first = first or key
      if known[key].paradigms != known[first].paradigms:
        raise InputError(
          f'{key}: got {len(known[key].paradigms)} paradigms, others than the {len(known[first].paradigms)} of '
          f'{first}; evaluate all systems on the same pairs'
        )
      found.setdefault(row.group, {})[row.cells[0]] = known[key]
  return found


def recorded() -> dict[str, Accuracies]:
  """Return the recorded accuracies by id.

  Raises:
    InputError: a line has other columns, or an accuracy is no number.
  """
  if not FILE.exists():
    return {}
  lines: dict[str, list[tuple[str, tuple[float, ...]]]] = {}
  with FILE.open(newline='', encoding='utf-8') as opened:
    reader = csv.reader(opened)
    head = next(reader, [])
    for cells in reader:
      try:
        (key, seed), values = cells[:2], tuple(map(float, cells[2:]))
      except ValueError as error:
        raise InputError(f'{FILE}, line {reader.line_num}: {error}; expected an id, a seed and numbers') from None
      if len(cells) != len(head):
        raise InputError(f'{FILE}, line {reader.line_num}: got {len(cells)} cells; expected {len(head)}')
      lines.setdefault(key, []).append((seed, values))
  names = tuple(head[2:])
  return {
    key: Accuracies(tuple(seed for seed, _ in each), names, tuple(values for _, values in each))
    for key, each in lines.items()
  }


def record(new: Mapping[str, Accuracies]) -> None:
  """Write accuracies into the file; those of the same rows are replaced.

  Raises:
    InputError: they are of a part of BLiMP, or of other paradigms than the file's.
  """
  if not new:
    return
  if part := next((key for key, one in new.items() if len(one.paradigms) != COUNT), ''):
    raise InputError(f'--record: {part}: got {len(new[part].paradigms)} paradigms; expected the {COUNT} of BLiMP')
  known = recorded() | dict(new)
  names = next(iter(known.values())).paradigms
  if other := next((key for key, one in known.items() if one.paradigms != names), ''):
    raise InputError(
      f'--record: {other}: got {len(known[other].paradigms)} paradigms, others than the {len(names)} of {FILE}; '
      'evaluate on the same pairs'
    )
  with FILE.open('w', newline='', encoding='utf-8') as opened:
    writer = csv.writer(opened, lineterminator='\n')
    writer.writerow((*_KEYS, *names))
    for key, one in known.items():
      for seed, values in zip(one.seeds, one.values, strict=True):
        writer.writerow((key, seed, *(f'{value:.2f}' for value in values)))
