"""Settings shared by all experiments that fine-tune a pre-trained model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments import config

TESTED = ('snli', 'scitail', 'race', 'story_cloze')  # tasks whose test files have labels
LINEAR_HEAD = {'head': (), 'normalize': False, 'bptt': 0, 'init_std': 0.02, 'dropout_pooled': 0.1}  # BERT's and GPT's
# A batch mixes rows of any length, as released; a step processes them in four groups of similar length, which halves
# the time of fine-tuning on a CPU.
ANY_LENGTH = {'pool': 0, 'groups': 4}

# Two lengths of batches for up to 7,499 rows: compiling one more takes longer than their padding.
FEW_SHAPES = {'rows_per_bucket': 2500}


def measured_split(variant: str, tested: Sequence[str] = TESTED) -> str:
  """Return `evaluation.split` of a task: the test split if its labels are public, else the validation split.

  For the user's own data it is the first of the two that has labels (docs/fine_tune.md).
  """
  if variant.startswith('own'):
    return 'test,valid'
  return 'test' if variant in tested else 'valid'


def word_vectors(source: str, *, elmo: bool = False) -> dict[str, Any]:
  """Return the settings of option `vectors`, the word vectors of a user's model.

  Args:
    source: run of word2vec, or file of GloVe, word2vec or fastText; '' for none.
    elmo: `train.init_from` is a run of ELMo's language model; then only a text of vectors is read.
  """
  if not source:
    return {}
  return {'data': {'vectors': source}} if elmo else {'train': {'init_from': source}}


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
