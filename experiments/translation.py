"""Settings shared by the translation experiments of all models."""

from __future__ import annotations

from typing import Any

from experiments import config
from experiments.transformer import recipe as transformer

# Multi30k (Elliott et al. 2016, 2017): text, vocabulary and search.
MULTI30K = {
  'data': {
    'dataset': 'multi30k',
    'source': 'en',
    'target': 'de',
    'tokenizer': 'bpe',
    'lower_case': True,
    'prefix_space': True,
    'vocab_size': 10_000,
  },
  'evaluation': {'beam': 5, 'alpha': 1.0, 'penalty': 'power', 'stop': 'full', 'baselines': False},
}
_EPOCH = 57  # batches of `transformer_tiny`


def transformer_tiny() -> dict[str, Any]:
  """Return the recipe of Transformer-Tiny on Multi30k, as in Wu et al. 2021 (github.com/LividWo/Revisit-MMT).

  Differences are in experiments/transformer/multi30k.py.
  """
  recipe = {
    'objective': {'smoothing': 0.1, 'validation': 'smoothed'},
    'data': {
      'batching': {
        'name': 'translation',
        'tokens': 8192,
        'groups': 8,
        'buckets': (8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 40, 48),
      },
      'length': 64,
    },
    'optim': {**transformer.ADAM, 'eps': 1e-8, 'lr': 5e-3, 'warmup_steps': 2000},
    'train': {'steps': 8000, 'eval_every': _EPOCH, 'patience': 10, 'log_every': 50},
    'checkpoint': {'every_steps': _EPOCH, 'keep_last': 10},
    'evaluation': {'which': 'average', 'average': 10},
  }
  return config.merge(MULTI30K, recipe).to_dict()


def tiny(**model: Any) -> dict[str, Any]:
  """Return translation's tiny variant: generated numbers, in words and in digits."""
  data = {
    'dataset': 'embedded_numbers',
    'source': 'words',
    'target': 'digits',
    'tokenizer': 'words',
    'vocab_size': 0,
    'target_vocab_size': 0,
    'prefix_space': False,
    'length': 24,
    'manual_dir': '',
    'batching': {'name': 'translation', 'tokens': 0, 'buckets': (), 'groups': 1},
  }
  return config.merge(config.tiny(**model), {'data': data}).to_dict()
