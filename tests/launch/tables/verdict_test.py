"""Verdicts on recorded lines and on runs: t interval over seeds, bootstrap of a single run, band, and no comparison."""

from __future__ import annotations

import dataclasses
import math
import pathlib

import pytest

from experiments.tables import Row
from launch.tables import collection, measured, verdict
from launch.tables import plan as plans

PTB = 'rnn_lm/ptb/small/test'  # printed: 114.5, band 2%
LINE = measured.Measurement(
  **dict.fromkeys(measured.Measurement._fields, '') | {'id': PTB, 'metric': 'ppl', 'value': '115.6', 'seeds': '0'}
)


def of(**cells: str) -> verdict.Verdict:
  line = LINE._replace(**cells)
  return verdict.of(line, plans.published().get(line.id))


def test_single_run_is_compared_by_its_band():
  one = of()
  assert (one.kind, one.why, one.is_band) == (verdict.REPRODUCED, 'within the band of a single run', True)
  assert (one.low, one.high) == pytest.approx((115.6 - 2.29, 115.6 + 2.29))
  assert of(value='116.9').kind == verdict.OUTSIDE


def test_seeds_are_compared_by_the_t_interval():
  one = of(value='115.6', spread='0.5', seeds='0 1 2')
  half = 4.302653 * 0.5 / math.sqrt(3)  # 97.5% point of Student's t with two degrees of freedom, from its tables
  assert (one.low, one.high) == pytest.approx((115.6 - half, 115.6 + half), rel=1e-6)
  assert one == one._replace(kind=verdict.REPRODUCED, why='95% interval over 3 seeds')
  assert of(value='115.8', spread='0.5', seeds='3 seeds').kind == verdict.OUTSIDE, 'although within the band'
  assert of(value='120', spread='0.9', seeds='0 1').kind == verdict.REPRODUCED, 'two seeds: 12.7 deviations of the mean'
  assert 'spread of 2 seeds is unknown' in of(seeds='2 seeds').why


def test_saved_interval_of_a_single_run_comes_before_the_band():
  found = of(interval='114.4 116.9')
  assert found == (verdict.REPRODUCED, 114.4, 116.9, '95% interval over the rows of a single run', False)
  outside = of(interval='114.6 116.9')
  assert outside[0:4:3] == (verdict.OUTSIDE, '+1.1 from the printed figure')


def test_best_and_median_have_their_own_intervals():
  best = of(value='115.6', spread='0.5', seeds='0 1 2', statistic='best')
  assert (best.kind, best.why, best.is_band) == (verdict.REPRODUCED, 'within the band of the best of 3 seeds', True)
  assert of(value='116.9', spread='9.0', seeds='0 1 2', statistic='best').kind == verdict.OUTSIDE, 'no t interval'
  saved = of(value='115.6', spread='0.5', seeds='0 1 2', statistic='best', interval='114.4 116.9')
  assert saved[1:4] == (114.4, 116.9, '95% interval over the rows of the best of 3 seeds')
  median = of(value='115.6', spread='0.5', seeds='0 1 2 3 4 5', statistic='median', interval='114.6 116.9')
  assert median[:4] == (verdict.OUTSIDE, 114.6, 116.9, '+1.1 from the printed figure')
  few = of(value='115.6', spread='0.5', seeds='0 1 2', statistic='median')
  assert (few.kind, few.why) == (verdict.REPRODUCED, 'within the band of the median of 3 seeds')


def test_lines_that_are_not_compared():
  assert of(differs='other data')[0:4:3] == (verdict.NOT_COMPARABLE, 'other data')
  assert of(id='rnn_lm/own').kind == verdict.OWN


def test_known_reason_of_a_difference_is_said():
  counts = {'metric': 'parameters', 'id': 'ntm/params_feedforward/copy', 'value': '16317'}
  assert of(**counts)[0:4:3] == (verdict.OUTSIDE, verdict.rows()['ntm/params_feedforward/copy'].outside)
  assert of(**counts | {'value': '17162'}).kind == verdict.REPRODUCED
  assert of(**counts | {'value': '17163'}).kind == verdict.OUTSIDE
  assert verdict.is_count('ntm/params_feedforward/copy') and not verdict.is_count(PTB)


def test_runs_have_the_verdict_of_their_line():
  def result(*values: float, **change) -> collection.RowResult:
    seeds = [collection.SeedResult(x, i, 1.0, '', 0.0, pathlib.Path(), '') for i, x in enumerate(values)]
    return collection.RowResult(verdict.rows()[PTB]._replace(**change), len(seeds), seeds, [])

  printed = plans.published()[PTB]
  assert verdict.of(result(115.6), printed) == of()
  saved = result(115.6)
  saved.seeds[0] = dataclasses.replace(saved.seeds[0], interval=(114.6, 116.9))
  assert verdict.of(saved, printed) == of(interval='114.6 116.9') and of(interval='114.6 116.9').kind == verdict.OUTSIDE
  line = of(value='115.6', spread='0.5', seeds='0 1 2')
  assert verdict.of(result(115.1, 115.6, 116.1), printed) == pytest.approx(line)
  saved = result(116.9, 115.6, 118.0, statistic='best')
  saved.seeds[1] = dataclasses.replace(saved.seeds[1], interval=(114.4, 116.9))
  best = {'value': '115.6', 'spread': '1.2', 'seeds': '0 1 2', 'statistic': 'best', 'interval': '114.4 116.9'}
  assert verdict.of(saved, printed) == of(**best) and of(**best).kind == verdict.REPRODUCED
  median = verdict.of(result(*range(113, 121), statistic='median'), printed)
  assert median[1:4] == (113, 120, '95% interval of the median of 8 seeds')
  assert verdict.of(result(116.9, outside='the release differs'), printed).why == 'the release differs'
  assert verdict.of(result(116.9, differs='other data'), printed).kind == verdict.NOT_COMPARABLE
  assert verdict.of(collection.RowResult(Row('own', 'run', 'ppl'), 1, [], []), None).kind == verdict.OWN


def test_every_recorded_line_has_a_verdict():
  for one in measured.measurements():
    found = verdict.of(one, plans.published().get(one.id))
    assert found.kind == verdict.OWN or found.why
