"""NT-ASGD over windows of random length, as released (Merity et al. 2018, arXiv 1708.02182, sections 4.1 and 5).

Validation reads 10 streams, the final evaluation one.
"""

from __future__ import annotations

from typing import Any

BASE: dict[str, Any] = {
  'model': {'name': 'awd_lstm'},
  'data': {
    'tokenizer': 'words',
    'batching': {'name': 'streams', 'random_length': True, 'length_multiple': 8},
    'length': 70,
    'eval_batch_size': 10,
    'eval_length': 70,
  },
  'optim': {
    'optimizer': 'sgd',
    'lr': 30.0,
    'clip_norm': 0.25,
    'weight_decay': 1.2e-6,
    'asgd': 'triggered',
    'nonmono': 5,
    'asgd_lag': True,
  },
  'train': {'log_every': 50},
  'evaluation': {'batch_size': 1},
}
