"""Utilisation in the log of a run."""

from __future__ import annotations

import types

import jax.numpy as jnp
import numpy as np
import pytest

from lmx.reporting import run_log, utilisation


@pytest.fixture
def clock(monkeypatch):
  """Seconds that the log reads; a test moves them on."""
  now = [0.0]
  monkeypatch.setattr(run_log.time, 'monotonic', lambda: now[0])
  return now


def make_meter(peak=200.0, chips=2):
  """Return a meter of steps whose work is the number of their positions, and the parts whose work was found."""
  found = []
  parts = lambda batch: (batch['tokens_BT'].shape,)
  work = lambda part: found.append(part) or float(np.prod(part))
  return utilisation.Meter(parts, work, lambda: peak, chips), found


def log(folder, clock, meter, seconds, *, every=10, long=(), pauses=()):
  """Log steps of the given seconds, with batches of 2 x 20 in the steps `long` and of 2 x 10 in the others."""
  shapes = {True: (2, 20), False: (2, 10)}
  with run_log.Logger(folder, len(seconds), tokens_per_step=20, every=every, meter=meter) as logger:
    for step, taken in enumerate(seconds, 1):
      with logger.compiling(step, {'tokens_BT': np.zeros(shapes[step in long])}):
        pass
      logger.train(step, {'loss': jnp.float32(1.0)})
      if step in pauses:
        clock[0] += 1000
        logger.evaluation(step, 'valid', {'loss': 1.0})
      clock[0] += taken
  return [record for record in run_log.read_metrics(folder) if record['split'] == 'train']


def test_work_is_that_of_the_steps_of_an_interval(tmp_path, clock):
  meter, found = make_meter()
  records = log(tmp_path, clock, meter, [0.5] * 60, long=range(45, 51))
  assert found == [(2, 10), (2, 20)]  # each counted once
  assert 'mfu' not in records[1] and 'model_flops_per_second' not in records[1]  # in the first ten seconds
  rates = {record['step']: record.get('model_flops_per_second') for record in records}
  assert rates[30] == pytest.approx(20 / 0.5) and rates[60] == pytest.approx(20 / 0.5)
  assert rates[50] == pytest.approx((4 * 20 + 6 * 40) / 5)
  assert [record['mfu'] for record in records if 'mfu' in record][-1] == pytest.approx(40 / 200)
  assert records[-1]['tokens_per_second_per_chip'] == records[-1]['tokens_per_second'] / 2 == pytest.approx(20)
  assert records[-1]['peak_memory_bytes'] > 2**20


def test_unknown_peak_has_no_mfu(tmp_path, clock):
  (*_, last) = log(tmp_path, clock, make_meter(peak=None)[0], [1.0] * 30)
  assert 'mfu' not in last and last['model_flops_per_second'] == pytest.approx(20)


def test_step_times_leave_out_validation(tmp_path, clock, monkeypatch):
  monkeypatch.setattr(utilisation, 'AFTER', 1e9)  # before counting, during which a step has no time either
  seconds = [1.0] * 9 + [1.0, 2.0] * 5 + [1.0] * 11
  records = {record['step']: record for record in log(tmp_path, clock, make_meter()[0], seconds, pauses=(24,))}
  assert records[20]['step_seconds'] == pytest.approx(1.5)
  assert records[20]['step_seconds_p99'] == pytest.approx(2.0)
  assert records[30]['step_seconds'] == records[30]['step_seconds_p99'] == pytest.approx(1.0)


def test_progress_line_has_the_mfu(tmp_path, clock, capsys):
  log(tmp_path, clock, make_meter()[0], [0.5] * 60)
  assert 'MFU' not in capsys.readouterr().err.splitlines()[0]
  log(tmp_path / 'next', clock, make_meter()[0], [0.5] * 60)
  assert '40 tokens/s, MFU 20.0%' in capsys.readouterr().err


def test_percentile_is_that_of_numpy():
  values = list(np.random.default_rng(0).random(37))
  assert utilisation.percentile(values, 0.99) == pytest.approx(np.percentile(values, 99))
  assert utilisation.percentile([3.0], 0.99) == 3.0


def test_summary_of_a_run():
  training = [{'split': 'train', 'step': i, 'loss': 1.0, 'mfu': 0.1 * i, 'step_seconds_p99': i} for i in (1, 2, 3)]
  found = utilisation.summarize([*training, {'split': 'valid', 'step': 3, 'loss': 1.0, 'mfu': 9.0}])
  assert found == {'mfu': 0.2, 'step_seconds_p99': 3}


def test_summary_has_rate_and_mfu_of_the_same_records():
  early = {'split': 'train', 'step': 1, 'tokens_per_second': 1.0, 'step_seconds_p99': 9}
  later = {'split': 'train', 'step': 2, 'tokens_per_second': 5.0, 'model_flops_per_second': 50.0, 'mfu': 0.5}
  found = utilisation.summarize([early, later | {'step_seconds_p99': 2}])
  assert found == {'tokens_per_second': 5.0, 'step_seconds_p99': 9, 'model_flops_per_second': 50.0, 'mfu': 0.5}
  assert utilisation.summarize([early]) == {'tokens_per_second': 1.0, 'step_seconds_p99': 9}


def test_chips_of_devices():
  device = lambda platform, number, **more: types.SimpleNamespace(platform=platform, id=number, process_index=0, **more)
  assert utilisation.count_chips([device('cpu', i) for i in range(8)]) == 1
  assert utilisation.count_chips([device('gpu', i) for i in range(8)]) == 8
  cores = [device('tpu', i, coords=(i // 2, 0, 0), slice_index=0) for i in range(8)]
  assert utilisation.count_chips(cores) == 4
  assert utilisation.count_chips([*cores, device('tpu', 8, coords=(0, 0, 0), slice_index=1)]) == 5
