"""Contents of the page of several runs: their results side by side, and the config keys that differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lmx.reporting.html_report import formats, sections

if TYPE_CHECKING:
  from lmx.reporting.html_report import Report

Table = tuple[list[Any], list[list[Any]]]  # head and rows


def names(reports: Sequence[Report]) -> list[str]:
  """Return the name of each run; where runs share it, with the folder, or its whole path where folders share theirs."""
  found = [report.name for report in reports]
  folders = [report.run.rstrip('/').rpartition('/')[2] for report in reports]
  folders = folders if len({*folders}) == len(folders) else [report.run for report in reports]
  return [name if found.count(name) == 1 else f'{name} ({folder})' for name, folder in zip(found, folders, strict=True)]


def results(titles: Sequence[str], reports: Sequence[Report]) -> Table:
  """Return the table of what was evaluated and of every metric, the headline metrics first."""
  rows: list[list[Any]] = [
    ['model', *(report.model for report in reports)],
    ['split', *(f'{report.results["dataset"]}/{report.results["split"]}' for report in reports)],
  ]
  metrics = dict.fromkeys(report.metric for report in reports)
  metrics |= dict.fromkeys(name for report in reports for name in sections.metric_names(report))
  for name in metrics:
    values = [(report, report.results.get(name)) for report in reports]
    rows.append(
      [formats.words(name), *(sections.shown(report, name, x) if x is not None else '' for report, x in values)]
    )
  rows.append(['updates', *(formats.number(report.step) for report in reports)])
  seconds = [report.results.get('training_seconds') for report in reports]
  rows.append(['training time', *('' if x is None else formats.duration(x) for x in seconds)])
  return ['', *titles], rows


def settings(titles: Sequence[str], reports: Sequence[Report]) -> Table:
  """Return the table of the config keys whose values differ; '' where a run lacks the key."""
  values = [{one.key: one.value for part in report.settings.values() for one in part} for report in reports]
  keys = dict.fromkeys(key for each in values for key in each)
  rows = [[formats.breakable(key), *(each.get(key, '') for each in values)] for key in keys]
  return ['key', *titles], [row for row in rows if len({*row[1:]}) > 1]
