"""Figures that follow from others: by the paper's rule from printed, recorded and live metrics."""

from __future__ import annotations

import pytest

from launch.tables import collection, computed, counts, measured, pages, printed, verdict
from launch.tables import plan as plans

_SPLIT = "printed: GLUE's test server; ours: the validation split, on which the rate is chosen"


def recorded(*lines: tuple[str, str, str]) -> tuple[measured.Measurement, ...]:
  empty = dict.fromkeys(measured.Measurement._fields, '') | {'system': 'elmo', 'seeds': '0', 'command': 'lmx train'}
  return tuple(measured.Measurement(**empty | {'id': key, 'value': x, 'differs': why}) for key, x, why in lines)


def test_rule_gives_the_printed_figure_from_the_printed_ones():
  lines, found = plans.published(), []
  for table in map(plans.table, plans.names()):
    for one in table.computed:
      value = computed.apply(one, {key: lines[key].value for group in one.of for key in group})
      last_digit = 10.0 ** -len(lines[one.id].text.partition('.')[2])
      assert value == pytest.approx(lines[one.id].value, abs=1.001 * last_digit), one.id
      assert printed.roles(table)[one.id] == printed.MEASURED
      found.append(one.id)
  assert len(found) == len(set(found)) == 24
  assert counts.runnable_anywhere().issuperset(found)


def test_figure_is_computed_once_all_parts_are_measured(monkeypatch):
  snli = ('elmo/main/snli/baseline', '88.0', ''), ('elmo/main/snli/elmo', '88.9', '')
  monkeypatch.setattr(measured, 'measurements', lambda: recorded(snli[0]))
  assert not computed.figures()
  monkeypatch.setattr(measured, 'measurements', lambda: recorded(*snli))
  found = computed.figures()
  assert {key: one.text for key, one in found.items()} == {
    'elmo/main/snli/delta/increase': '0.9 (computed)',
    'elmo/main/snli/delta/relative_increase': '7.5 (computed)',
  }
  one = found['elmo/main/snli/delta/increase'].verdict
  assert (one.kind, one.why) == (verdict.REPRODUCED, 'within the band of a figure computed from 2 others')
  assert one.low == pytest.approx(0.9 - 1.0)
  text = pages.pages()['elmo.md']
  assert '| 0.9 (computed) ✓ | 7.5 (computed) ✓ |' in text


def test_finished_runs_come_first_and_a_part_that_is_not_comparable_counts(monkeypatch, tmp_path):
  monkeypatch.setattr(measured, 'measurements', tuple)
  rows = [row for row in plans.table('bert_glue').rows if row.id.startswith('bert/glue_test/base/')]
  results = [
    collection.RowResult(row, 1, [collection.SeedResult(80.0 + i, 0, 1.0, '', 0.0, tmp_path, '')], [])
    for i, row in enumerate(rows)
  ]
  assert not computed.figures(results[1:])
  [(key, one)] = computed.figures(results).items()
  assert (key, one.text) == ('bert/glue_test/base/avg', '84.0 (computed)')
  assert one.verdict == verdict.Verdict(verdict.NOT_COMPARABLE, why=_SPLIT)
  assert counts.verdicts(results)[key] == one.verdict
