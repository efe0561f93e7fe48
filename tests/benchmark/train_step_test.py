"""Turns of a training step with the peer."""

from __future__ import annotations

import pytest

from lmx import engine
from lmx.benchmark import task as task_lib
from lmx.benchmark import train_step
from lmx.errors import InputError


def test_peer_requires_batches_of_one_shape(peer):
  task, _ = task_lib.build_task('gpt2:tiny', [])
  for parts in ([((2, 4),), ((2, 8),)], [((1, 4), (1, 8))]):  # of the batches, and in groups within a batch
    steps = lambda k, parts=parts: ([train_step.Step(1.0, each) for each in parts], 0.0)
    subject = train_step.Subject('x', task, 2, 8, 'adamw', 1.0, 1, train_step.Programs(None), steps)
    with pytest.raises(InputError, match='batches of one shape'):
      train_step.measure(subject, peer=peer, warmup=1, steps=2, rounds=1)


def test_changes_of_the_step_are_separated_from_those_of_the_model():
  changes = ['dtype=bfloat16', "parallel.equations=('activate','layer_norm')", 'parallel.logits_dtype=float32', 'N=1']
  model, parallel = task_lib.split_changes(changes)
  assert model == ['dtype=bfloat16', 'N=1']
  assert parallel == engine.Config(equations=('activate', 'layer_norm'), logits_dtype='float32')
  with pytest.raises(InputError, match='parallel.logits: got'):
    task_lib.split_changes(['parallel.logits=float32'])
