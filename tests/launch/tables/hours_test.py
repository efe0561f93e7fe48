"""Estimated hours of trainings, against those that recorded runs took."""

from __future__ import annotations

import pytest

from experiments.tables import Run
from launch.tables import hours, needs, operations
from launch.tables import plan as plans


def test_held_out_estimates_are_within_a_factor_of_three_or_five_seconds():
  lines = hours.timed()
  ratios = hours.held_out(lines)
  assert len(ratios) >= 40 and len({model for line in lines for model in line.models}) >= 20
  short = {line.id for line in lines if abs(ratios[line.id] - 1) * line.seconds < 5}  # a run of seconds, by its start
  assert {key: round(ratio, 2) for key, ratio in ratios.items() if not 1 / 3 <= ratio <= 3 and key not in short} == {}
  assert hours.fit(lines) == pytest.approx(hours.TWO_CORES, rel=0.1), 'run python -m launch.tables.hours'


def test_held_out_estimates_do_not_see_their_model():
  taken = {'a': 100.0, 'b': 1e4}
  works = [hours.Work(name, 1, 1e6 * n, 1e12, 128, False) for name in taken for n in (1, 2)]
  lines = [hours.Timed(f'{work.model}{i}', taken[work.model], (work,)) for i, work in enumerate(works)]
  ratios = hours.held_out(lines)
  assert min(ratios['a0'], ratios['a1']) > 10 and max(ratios['b2'], ratios['b3']) < 0.1, 'by the other model only'
  assert all(1 / 3 < line.ratio(hours.fit(lines[:2])) < 3 for line in lines[:2])


def test_estimate_follows_the_sizes_of_the_run():
  runs = {run.name: run for run in plans.table('gpt2_webtext').runs}
  small = hours.of_run(runs['gpt2/shakespeare_cpu'], runs)
  assert 0.02 < small < 0.2, '4 layers of 128, not 12 of 768'
  count = operations.counts()[operations.digest(operations.sizes(runs['gpt2/webtext_124m'], runs)[''])]
  assert count.parameters == 124_439_808 - (12 * 11 + 1) * 768 and count.width == 768, 'without biases'
  assert hours.of_run(runs['gpt2/webtext_124m']._replace(gpu_hours=0), runs) == pytest.approx(
    (30 + 600_000 * (count.equations * 1e-6 + 480 * 1024 * count.operations / (0.35 * 989e12))) / 3600
  )


@pytest.mark.parametrize(
  'name, most', [('lineage', 30), ('nplm_brown', 500), ('self_attention', 1), ('word2vec', 5_000)]
)
def test_every_training_on_two_cores_has_an_estimate(name, most):
  runs = {run.name: run for run in plans.table(name).runs}
  each = [hours.of_run(run, runs) for run in runs.values() if run.config]
  assert all(each) and sum(each) < most


def test_stated_hours_win():
  run = Run('run', 'experiments/rnn_lm/ptb.py:small', needs=needs.GPU, gpu_hours=4)
  assert needs.of_run(run, {'run': run}, 2).gpu_hours == 8


def test_every_training_of_the_tables_is_counted():
  missing = [
    run.name
    for name in plans.names()
    for runs in [{run.name: run for run in plans.table(name).runs}]
    for run in runs.values()
    if run.config
    and not {operations.digest(one) for one in operations.sizes(run, runs).values()} <= operations.counts().keys()
  ]
  assert not missing, 'run python -m launch.tables.operations'


def test_counts_match_the_models():
  run = Run('run', 'experiments/ntm/tasks.py:copy')
  settings = operations.sizes(run, {})['']
  assert operations.count(settings) == operations.counts()[operations.digest(settings)]


@pytest.mark.slow
def test_counts_file_is_current():
  for _, settings in operations.all_sizes():
    one, counted = operations.counts()[operations.digest(settings)], operations.count(settings)
    assert one == counted
