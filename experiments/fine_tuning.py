"""Parts of every experiment that fine-tunes a pre-trained model, whatever the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments import config

TESTED = ('snli', 'scitail', 'race', 'story_cloze')  # tasks whose test files have labels
LINEAR_HEAD = {'head': (), 'normalize': False, 'bptt': 0, 'init_std': 0.02, 'dropout_pooled': 0.1}  # BERT's and GPT's
# Rows of any length meet in a batch, as released; a step reads them in four groups of like length, so that on a CPU
# fine-tuning takes half the time.
ANY_LENGTH = {'pool': 0, 'groups': 4}


def measured_split(variant: str, tested: Sequence[str] = TESTED) -> str:
  """Return `evaluation.split` of a task: the test split where its labels are public, else the validation split.

  Of the user's own data it is the first of the two that has labels (README.md).
  """
  if variant.startswith('own'):
    return 'test,valid'
  return 'test' if variant in tested else 'valid'


def tiny(**data: Any) -> dict[str, Any]:
  """Return the tiny variant of fine-tuning: newly initialised, on a part of the embedded corpus.

  Args:
    **data: fields of the `data` section, among them the data set.
  """
  changes = {
    'data': {'vocab_size': 500, 'batching': {'groups': 1}},
    'optim': {'warmup_fraction': 0.0},
    'train': {'epochs': 0.0},
  }
  return config.merge(config.tiny(), changes, {'data': data}).to_dict()
