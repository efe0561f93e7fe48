"""Turns of a training step with the peer."""

from __future__ import annotations

import pytest

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
