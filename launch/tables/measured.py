"""Metrics that lmx has measured, from experiments/tables/measured.csv."""

from __future__ import annotations

import csv
import functools
from typing import NamedTuple

from launch.tables import plan as plans
from lmx.errors import InputError

FILE = plans.FOLDER / 'measured.csv'


class Measurement(NamedTuple):
  """Line of measured.csv.

  Attributes:
    id: id of the printed figure in published.csv, of a row of a table, or a name of its own.
    system: model whose page shows it.
    row: label.
    dataset: data set.
    split: split.
    metric: metric, named as in published.csv.
    value: mean over seeds, as text.
    spread: standard deviation over seeds, '' for one seed.
    seeds: number of seeds.
    protocol: what else decides the figure.
    differs: why the printed figure measures something else; '' if it may be compared.
    command: what was run.
    commit: of the code.
    hardware: device.
    date: YYYY-MM-DD.
  """

  id: str
  system: str
  row: str
  dataset: str
  split: str
  metric: str
  value: str
  spread: str
  seeds: str
  protocol: str
  differs: str
  command: str
  commit: str
  hardware: str
  date: str


@functools.cache
def measurements() -> tuple[Measurement, ...]:
  """Return all lines of measured.csv in order; none without the file.

  Raises:
    InputError: the head or a line has other cells.
  """
  if not FILE.exists():
    return ()
  with FILE.open(newline='', encoding='utf-8') as file:
    reader = csv.reader(file)
    head = tuple(next(reader, ()))
    if head != Measurement._fields:
      raise InputError(f'{FILE}: got the columns {", ".join(head)}; expected {", ".join(Measurement._fields)}')
    found = []
    for cells in reader:
      if len(cells) != len(head):
        raise InputError(f'{FILE}, line {reader.line_num}: got {len(cells)} cells; expected {len(head)}')
      found.append(Measurement(*cells))
  return tuple(found)


def text(one: Measurement) -> str:
  """Return a figure with its spread and seeds."""
  spread = f' ± {one.spread}' if one.spread else ''
  seeds = f' ({one.seeds} seeds)' if one.seeds != '1' else ''
  return f'{one.value}{spread}{seeds}'


def by_id() -> dict[str, list[Measurement]]:
  """Return the measurements of each id."""
  found: dict[str, list[Measurement]] = {}
  for one in measurements():
    found.setdefault(one.id, []).append(one)
  return found


def by_figure() -> dict[str, Measurement]:
  """Return the measurement that is shown beside each printed figure: one of its protocol, else the first."""
  chosen: dict[str, Measurement] = {}
  for one in measurements():
    if one.id in plans.published() and (one.id not in chosen or (chosen[one.id].differs and not one.differs)):
      chosen[one.id] = one
  return chosen
