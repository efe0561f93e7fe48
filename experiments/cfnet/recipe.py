"""Parts of the experiments of CFNet (Zhang et al. 2019): generated scenes, and the tiny variant."""

from __future__ import annotations

from typing import Any


def scenes() -> dict[str, Any]:
  """Return the settings of generated scenes: model `mini` on pictures of 96 pixels, in minutes on two cores."""
  return {
    'model': {'name': 'cfnet', 'variant': 'mini'},
    'objective': {'distances': (24.0,)},
    'data': {
      'dataset': 'generated',
      'tokenizer': 'bytes',
      'batching': {'name': 'scenes'},
      'batch_size': 16,
      'eval_batch_size': 50,
      'length': 96,
    },
    'optim': {'optimizer': 'sgd', 'lr': 0.05, 'momentum': 0.9, 'weight_decay': 1e-4, 'schedule': 'cosine'},
    'train': {'steps': 1000, 'eval_every': 250, 'log_every': 25},
    'evaluation': {'baselines': False},
    'samples': {'count': 4},
  }


def tiny() -> dict[str, Any]:
  """Return the changes of the tiny variant, in place of `config.tiny`."""
  return {
    'model': {'variant': 'tiny'},
    'objective': {'distances': (8.0,)},
    'data': {
      'batching': {'name': 'scenes', 'size': 8, 'eval_examples': 6},
      'dataset': 'generated',
      'tokenizer': 'bytes',
      'batch_size': 4,
      'eval_batch_size': 0,
      'length': 32,
      'eval_length': 0,
    },
    'train': {'steps': 20, 'eval_every': 10, 'log_every': 5},
    'optim': {'warmup_steps': 0},
    'samples': {'count': 2},
  }
