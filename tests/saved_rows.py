"""Check of the rows that a run saved: every metric that they determine is that of its results."""

from __future__ import annotations

import json
import pathlib

import pytest

from lmx.errors import InputError
from lmx.evaluation import rows


def check(folder, *metrics) -> list[dict]:
  """Return the rows in a folder, whose metrics equal those of results.json; `metrics` are among them."""
  folder = pathlib.Path(folder)
  results = json.loads((folder / 'results.json').read_text())
  found = rows.read(folder, results)
  assert [row['row'] for row in found] == list(range(results['rows']['count']))
  measured = set()
  for metric in (name for name, value in results.items() if isinstance(value, float)):
    try:
      measure = rows.measure(metric, found, results)
    except InputError:
      continue
    assert len(measure.values) == len(found)
    assert measure.statistic(measure.values) == pytest.approx(results[metric], rel=1e-5, abs=1e-9), metric
    measured.add(metric)
  assert {*metrics, results['metric']} <= measured
  low, high = results['interval']
  assert low <= results[results['metric']] <= high
  return found
