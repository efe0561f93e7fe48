"""Estimated hours of trainings, against those that recorded runs took."""

from __future__ import annotations

import pytest

from experiments.tables import Run
from launch.tables import hours, measured, needs, operations
from launch.tables import plan as plans

# Lines whose own run was timed. Of others, `hours` is a share of the time of several runs.
TIMED = (
  'awd_lstm/embedded/quickstart',
  'awd_lstm/ptb/released/epoch1',
  'awd_lstm/readme/lstm_ptb/base/valid',
  'awd_lstm/readme/lstm_wt2/base/valid',
  'bahdanau/numbers/digits/exact',
  'bahdanau/numbers/words/exact',
  'cfnet/scenes/fcn/far',
  'cfnet/scenes/m4/far',
  'character_transformer/embedded/quickstart',
  'elmo/wikipedia/mini/never_reset',
  'gpt/embedded/quickstart',
  'gpt2/embedded/quickstart',
  'gpt2/nanogpt_shakespeare/cpu_4l/valid',
  'nplm/brown/mlp5/test',
  'ntm/bits/copy_lstm/length_10',
  'quaternion_text/embedded/full',
  'quaternion_text/embedded/none',
  'rnn_encdec/numbers/digits/exact',
  'rnn_encdec/numbers/words/exact',
  'rnn_lm/embedded/fast',
  'rnn_lm/embedded/full',
  'rnn_lm/ptb/small/test',
  'sparse_transformer/embedded/quickstart',
  'transformer/multi30k/nll/seed0/test2016',
  'transformer/numbers/digits/exact',
  'transformer/numbers/words/exact',
  'transformer_xl/embedded/quickstart',
)


def test_estimates_are_within_a_factor_of_three():
  lines = measured.by_row()
  ratios = {key: hours.of_line(lines[key]) / float(lines[key].hours) for key in TIMED if key in lines}
  assert len(ratios) >= 20
  assert {key: round(ratio, 2) for key, ratio in ratios.items() if not 1 / 3 <= ratio <= 3} == {}


def test_estimate_follows_the_sizes_of_the_run():
  runs = {run.name: run for run in plans.table('gpt2_webtext').runs}
  small = hours.of_run(runs['gpt2/shakespeare_cpu'], runs)
  assert 0.02 < small < 0.2, '4 layers of 128, not 12 of 768'
  count = operations.counts()[operations.digest(operations.sizes(runs['gpt2/webtext_124m'], runs)[''])]
  assert count.parameters == 124_439_808 and count.width == 768
  assert hours.of_run(runs['gpt2/webtext_124m']._replace(gpu_hours=0), runs) == pytest.approx(
    (30 + 600_000 * (0.005 + 480 * 1024 * count.operations / (0.35 * 989e12))) / 3600
  )


@pytest.mark.parametrize(
  'name, most', [('lineage', 15), ('nplm_brown', 500), ('self_attention', 1), ('word2vec', 5_000)]
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
    assert (one.parameters, one.width, one.operations) == (counted.parameters, counted.width, round(counted.operations))
