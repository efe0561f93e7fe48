"""Transformer-XL (Dai et al. 2019, arXiv 1901.02860) over enwik8 and text8, as released."""

from __future__ import annotations

import ml_collections

from experiments import config


def characters(dataset: str, size: str, tokenizer: str, *, small: bool) -> ml_collections.ConfigDict:
  """Return the config of enwik8.py or text8.py.

  Args:
    dataset: 'enwik8' or 'text8'.
    size: ending of the model's variant, '12l', '18l' or '24l'.
    tokenizer: 'bytes' or 'characters'.
    small: the tiny variant, seconds on a laptop.
  """
  large = size == '24l'
  far, clamp = (3800, 1000) if large else (2100, 820)
  base = {
    'name': f'transformer_xl_{dataset}_{"tiny" if small else size}',
    'model': {'name': 'transformer_xl', 'variant': f'{dataset}_{size}'},
    'data': {
      'dataset': dataset,
      'tokenizer': tokenizer,
      'batching': 'streams',
      'batch_size': 64 if large else 24,
      'length': 768 if large else 512,
      'eval_batch_size': 16,
      'eval_length': 128 if large else 80,
    },
    'optim': {
      'optimizer': 'adam',
      'lr': 2.5e-4,
      'clip_norm': 0.25,
      'schedule': 'cosine',
      'warmup_steps': 4000 if large else 0,
      'end_fraction': 0.01 if large else 0.004,
    },
    'train': {'steps': 400_000, 'eval_every': 4000, 'log_every': 200},
    'checkpoint': {'every_steps': 4000},
    'evaluation': {'baselines': False, 'model': {'M': far, 'clamp': clamp, 'same_length': True}},
  }
  evaluation = {'evaluation': {'model': {'M': 24, 'clamp': 12}}}
  return config.merge(base, *((config.tiny(), evaluation) if small else ()))
