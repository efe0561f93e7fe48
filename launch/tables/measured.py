"""Metrics that lmx has measured, from experiments/tables/measured.csv."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

from experiments.tables import BEST, MEAN
from launch.tables import plan as plans
from lmx.errors import InputError

FILE = plans.FOLDER / 'measured.csv'


class Measurement(NamedTuple):
  """Line of measured.csv.

  Attributes:
    id: id of the printed figure in published.csv, of a row of a table, or a name of its own; no two lines share one.
    system: model whose page shows it.
    row: label.
    dataset: data set.
    split: split.
    metric: metric, named as in published.csv.
    value: mean over seeds, or their statistic, as text.
    spread: standard deviation over seeds (n - 1), '' for one seed.
    seeds: '0 1 2', or their number, '3 seeds', where it is not known which.
    statistic: 'best' or 'median' over the seeds; '' is the mean.
    interval: 'low high', the 95% bootstrap interval over rows of a single run, or of the best one, '' if none was
      saved; of a median, the interval over seeds. That of a mean over several seeds follows from `value`, `spread` and
      `seeds`.
    protocol: what else decides the figure.
    differs: why the printed figure measures something else; '' if it may be compared.
    command: what was run; several commands with semicolons between. `recorded.py` has its words in capitals.
    start: id of the line whose run this one starts from or evaluates, or 'imported NAME' of weights in DATA; several in
      the order of their words in capitals, with spaces between. '' if the command itself trains from newly
      initialised parameters.
    data: names in DATA of what the command reads, in the order of their words in capitals, with spaces between;
      'embedded', 'generated', or the files that make the text.
    data_hash: hash of the prepared data that the metric was measured on, as in results.json; several, with spaces
      between, where files of other names or compression give the same tokens; '' of unprepared files.
    commit: of the code.
    hours: of training and evaluation, all seeds; '~0.4' if the time was not recorded, by updates and similar runs.
    hardware: device.
    date: YYYY-MM-DD.
    kept: why the line is kept although it cannot be run again; '' if it can.
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
  statistic: str
  interval: str
  protocol: str
  differs: str
  command: str
  start: str
  data: str
  data_hash: str
  commit: str
  hours: str
  hardware: str
  date: str
  kept: str

  @property
  def count(self) -> int:  # type: ignore[override]  # shadows tuple.count, which no line needs
    """Number of seeds. Raises InputError if `seeds` has neither seeds nor their number."""
    if fit := re.fullmatch(r'(\d+) seeds?', self.seeds):
      return int(fit[1])
    if not re.fullmatch(r'\d+( \d+)*', self.seeds):
      raise InputError(f"{FILE}: {self.id}: seeds: got '{self.seeds}'; expected '0 1 2' or '3 seeds'")
    return len(self.seeds.split())

  @property
  def is_lmx(self) -> bool:
    """Return whether lmx gave the value, not a program that it is compared with."""
    return self.command.startswith(('lmx ', 'python -m launch.', 'python -m pytest '))


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
  spread = f' ± {one.spread}' if one.spread and one.statistic != BEST else ''
  seeds = f' ({of_seeds(one.statistic, one.count)})' if one.count > 1 else ''
  return f'{one.value}{spread}{seeds}'


def of_seeds(statistic: str, count: int) -> str:
  """Return '3 seeds' for a mean, else 'best of 3 seeds' or 'median of 3 seeds'."""
  seeds = f'{count} seed{"s" * (count != 1)}'
  return seeds if statistic in ('', MEAN) else f'{statistic} of {seeds}'


def by_id() -> Mapping[str, Measurement]:
  """Return the line of each id. Raises InputError if two lines share one."""
  return _by_id(measurements())


@functools.cache
def _by_id(lines: tuple[Measurement, ...]) -> Mapping[str, Measurement]:
  found: dict[str, Measurement] = {}
  for number, one in enumerate(lines, 2):
    if found.setdefault(one.id, one) is not one:
      raise InputError(f'{FILE}, line {number}: got the id {one.id} a second time; expected one line per id; rename it')
  return found


def by_row() -> dict[str, Measurement]:
  """Return lmx's line of each figure or row."""
  return {key: one for key, one in by_id().items() if one.is_lmx}
