"""Counts of figures and rows: printed, runnable, run, comparable and reproduced, by the verdicts of all runs."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from experiments.tables import Table
from launch.tables import collection, computed, measured, needs, verdict
from launch.tables import plan as plans
from launch.tables.verdict import Verdict

_COMPARED = (verdict.REPRODUCED, verdict.OUTSIDE)


class Count(NamedTuple):
  """Counts of figures, and of rows of our own.

  Attributes:
    printed: figures that a paper prints.
    runnable: figures and rows that lmx can run on some hardware.
    run: figures and rows that lmx has run.
    comparable: figures of these whose run measures the same as the paper.
    reproduced: figures of these in our 95% interval, or within the band of a single run.
  """

  printed: int
  runnable: int
  run: int
  comparable: int
  reproduced: int


def verdicts(results: Iterable[collection.RowResult] = ()) -> dict[str, Verdict]:
  """Return the verdict on each figure and row that lmx has run; `results` that are done replace recorded ones."""
  live = {one.row.id: one for one in results if one.state == collection.DONE and one.seeds}
  printed = plans.published()
  found = {key: verdict.of(one, printed.get(key)) for key, one in live.items()}
  follow = {key: one.verdict for key, one in computed.figures(live.values()).items()}
  return _recorded(measured.measurements()) | follow | found


@functools.cache
def _recorded(lines: tuple[measured.Measurement, ...]) -> dict[str, Verdict]:
  """Return the verdicts of recorded lines, the argument being what the cache is kept for."""
  del lines
  return {key: verdict.of(one, plans.published().get(key)) for key, one in measured.by_row().items()}


def count(ids: Iterable[str], possible: set[str], run: Mapping[str, Verdict]) -> Count:
  """Return the counts of figures and rows."""
  ids = set(ids)
  kinds = [run[key].kind for key in ids & run.keys()]
  comparable = sum(kind in _COMPARED for kind in kinds)
  return Count(
    len(ids & plans.published().keys()), len(ids & possible), len(kinds), comparable, kinds.count(verdict.REPRODUCED)
  )


def runnable(table: Table, key: str) -> set[str]:
  """Return the ids of the rows that the hardware `key` of needs.HARDWARE can run, and of what follows from them."""
  runs = {run.name: run for run in table.runs}
  found = {row.id for row in table.rows if needs.hardware(row, runs) in needs.HARDWARE[key]}
  return found | {one.id for one in table.computed if found.issuperset(key for group in one.of for key in group)}


def runnable_anywhere() -> set[str]:
  """Return the ids of the rows of all tables, and of what follows from them."""
  return set(verdict.rows()) | {one.id for name in plans.names() for one in plans.table(name).computed}
