"""Settings of XLNet's experiments (Yang et al. 2019, arXiv 1906.08237, and the released zihangdai/xlnet)."""

from __future__ import annotations

from typing import Any

from experiments import config

# The last token's state, a layer with tanh, a linear layer.
HEAD = {
  'pooling': 'last',
  'head': (0,),
  'activation': 'tanh',
  'normalize': False,
  'bptt': 0,
  'init_std': 0.02,
  'dropout_pooled': 0.0,
  'dropout_head': 0.1,
}
SUBWORDS = {'tokenizer': 'unigram', 'vocab_size': 31_998, 'special_tokens': ('<cls>', '<sep>')}


def optimizer(adam: str, *, decay: bool = True) -> dict[str, Any]:
  """Return the optimizer as released (model_utils.py): clipping at 1, linear decay, and Adam of one of two forms.

  Args:
    adam: 'released' has no bias correction if there is weight decay; 'corrected' always has it.
    decay: weight decay 0.01; without, Adam is TensorFlow's.
  """
  return {
    'optimizer': 'bert_adam' if decay and adam == 'released' else 'adamw',
    'eps': 1e-6,
    'eps_form': 'corrected' if decay else 'uncorrected',
    'weight_decay': 0.01 if decay else 0.0,
    'clip_norm': 1.0,
    'schedule': 'linear',
    'groups': config.DECAY_MATRICES_ONLY,
  }


def fine_tuning(lr: float, steps: int, warmup: int, epochs: float, *, decay: bool, adam: str) -> dict[str, Any]:
  """Return the `optim` and `train` sections of fine-tuning, as released (model_utils.py).

  Args:
    lr: highest learning rate.
    steps: updates; 0 trains for `epochs`.
    warmup: updates of warm-up; 0 is a tenth of all.
    epochs: number of training epochs if `steps` is 0.
    decay: see `optimizer`.
    adam: see `optimizer`.

  Raises:
    ValueError: `adam` is 'corrected' without weight decay.
  """
  if adam == 'corrected' and not decay:
    raise ValueError('option "adam": got "corrected" with recipe=v1, whose Adam is corrected; add recipe=v2')
  optim = {
    **optimizer(adam, decay=decay),
    'lr': lr,
    **({'warmup_steps': warmup} if warmup else {'warmup_fraction': 0.1}),
  }
  length = {'steps': steps} if steps else {'epochs': epochs}
  return {'optim': optim, 'train': {**length, 'init_parts': ('model',), 'like_init': True}}


def tiny() -> dict[str, Any]:
  """Return the changes of the tiny variant: rows of 32 tokens, of which the memory caches 16."""
  rows = {'vocab_size': 500, 'batching': {'reuse': 16}}
  return config.merge(config.tiny(M=16, reuse=16), {'data': rows}).to_dict()
