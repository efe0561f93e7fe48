"""Parts of a results page that list what was measured: figures against print, own rows, other programs, and runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

from launch.tables import hours, measured, names, printed, recorded, verdict

_KEPT = '†'  # mark of lines that cannot be run again


def sections(name: str, lines: list[measured.Measurement], elsewhere: Collection[str] = ()) -> dict[str, Any]:
  """Return the values of the template for the lines of a page; the ids `elsewhere` are shown by a matrix."""
  runs: dict[tuple[str, ...], int] = {}
  for one in lines:
    runs.setdefault(_run_key(one), len(runs) + 1)
  ours = [one for one in lines if one.is_lmx]
  compared = sorted((one for one in ours if verdict.printed(one.id)), key=lambda one: bool(one.differs))
  own = [one for one in ours if not verdict.printed(one.id) and one.id not in elsewhere]
  others = [one for one in lines if not one.is_lmx]
  link = lambda one: f'[{runs[_run_key(one)]}](#run-{runs[_run_key(one)]}){_KEPT if one.kept else ""}'
  return {
    'compared': [(*_about(one, name), _printed(one), measured.text(one), _verdict(one), link(one)) for one in compared],
    'own': [(*_about(one, name), measured.text(one), link(one)) for one in own],
    'others': [(*_about(one, name), measured.text(one), link(one)) for one in others],
    'runs': [_run(number, [one for one in lines if _run_key(one) == key]) for key, number in runs.items()],
    'kept': _KEPT if any(one.kept for one in lines) else '',
  }


def _run_key(one: measured.Measurement) -> tuple[str, ...]:
  """Return what the lines of a run share."""
  shared = (one.command, one.start, one.data, one.data_hash, one.seeds, one.commit, one.hours, one.hardware, one.date)
  return (*shared, one.kept)


def _about(one: measured.Measurement, name: str) -> tuple[str, ...]:
  """Return the row of a line, and its metric with the data."""
  return names.label(one.row or one.id, name), ', '.join(filter(None, (one.metric, one.dataset, one.split)))


def _printed(one: measured.Measurement) -> str:
  line = verdict.printed(one.id)
  return printed.figure(line) if line else ''


def _verdict(one: measured.Measurement) -> str:
  found = verdict.of(one, verdict.printed(one.id))
  if found.kind == verdict.REPRODUCED and verdict.is_count(one.id):
    return f'{found.kind}: the same count'
  return found.kind + (f': {found.why}' if found.why else '')


def _run(number: int, lines: list[measured.Measurement]) -> dict[str, Any]:
  """Return what a reader needs to run the lines of a run again."""
  one = lines[0]
  data = ', '.join(filter(None, (one.data, one.data_hash and f'hash `{one.data_hash}`')))
  start = ', '.join(name if recorded.weights(name) else f'line `{name}`' for name in recorded.starts(one))
  facts = {
    'Cannot be run again': one.kept,
    'Starts from': start,
    'Data': data,
    'Seeds': one.seeds,
    'Hours': _hours(one),
    'Code, hardware, date': ', '.join(filter(None, (one.commit, one.hardware, one.date))),
    'Protocol': '; '.join(_unique(line.protocol for line in lines)),
    'Lines': ', '.join(f'`{key}`' for key in _unique(line.id for line in lines)),
  }
  commands = one.command.replace('; lmx ', '\nlmx ')
  return {'number': number, 'command': commands, 'facts': {key: text for key, text in facts.items() if text}}


def _hours(one: measured.Measurement) -> str:
  if one.hours and not one.hours.startswith('~'):
    return one.hours
  estimate = hours.of_line(one) or math.nan
  return f'not recorded; about {estimate:.2g}' if math.isfinite(estimate) else ''


def _unique(texts: Iterable[str]) -> list[str]:
  return [text for text in dict.fromkeys(texts) if text]
