"""Evaluation with a memory and by windows: what is timed, and seconds of a token."""

from __future__ import annotations

import dataclasses

import numpy as np

from lmx.benchmark import evaluation
from lmx.benchmark import task as task_lib


def test_timing_covers_context_and_sliding_window():
  task, _ = task_lib.build_task('transformer_xl:tiny', ['N=1', 'M=3'])
  remembering, windowed = evaluation.build_configs(task.cfg, 6)
  assert (remembering.M, remembering.same_length, windowed.M, windowed.positions) == (6, True, 0, 'absolute')
  assert {
    field.name
    for field in dataclasses.fields(task.cfg)
    if getattr(windowed, field.name) != getattr(task.cfg, field.name)
  } == {'M', 'positions'}
  step = evaluation._reuse(dataclasses.replace(task, cfg=remembering), 2, 4)
  nll_BT, state = step()
  assert nll_BT.shape == (2, 4) and state['layers'][0].shape[:2] == (2, 6) and state['filled_B'].tolist() == [4, 4]
  after, state = step()  # the second segment sees the first
  assert state['filled_B'].tolist() == [6, 6] and not np.allclose(after, nll_BT)
  assert evaluation._slide(dataclasses.replace(task, cfg=windowed), 2, 6)().shape == (2, 1)


def test_reported_seconds_are_per_token(monkeypatch):
  """A call that predicts 2 x 4 tokens and one that predicts 2, of a second each."""
  task, _ = task_lib.build_task('transformer_xl:tiny', ['N=1'])
  monkeypatch.setattr(evaluation, '_reuse', lambda *given: 'reuse')
  monkeypatch.setattr(evaluation, '_slide', lambda *given: 'slide')
  seconds = lambda step, count, calls=1: [1.0 if step == 'reuse' else 3.0] * count
  monkeypatch.setattr(evaluation, '_measure_times', seconds)
  found = evaluation.measure(task, 1800, 4, batch=2, steps=3, rounds=2, warmup=1)
  assert (found['memory_seconds'], found['window_seconds'], found['ratio']) == (1 / 8, 3 / 2, 12)
  assert found['ratio_of_rounds'] == [12, 12] and found['paper'] == 773
  assert found['segments_of_a_turn'] == 3  # as long as a window
