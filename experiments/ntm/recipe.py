"""Tiny variant of the Neural Turing Machine (Graves et al. 2014), on generated data."""

from __future__ import annotations

from typing import Any


def tiny() -> dict[str, Any]:
  """Return the changes of the tiny variant, in place of `config.tiny`."""
  return {
    'model': {'variant': 'tiny'},
    'objective': {'lengths': (2, 4)},
    'data': {
      'batching': {'task': 'copy', 'bits': 4, 'min_length': 1, 'eval_sequences': 8, 'test_lengths': (2, 4)},
      'batch_size': 4,
      'eval_batch_size': 0,
      'length': 3,
    },
    'train': {'steps': 20, 'eval_every': 10, 'log_every': 5},
    'optim': {'warmup_steps': 0},
    'samples': {'count': 2},
  }
