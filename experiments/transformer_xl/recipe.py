"""Transformer-XL (Dai et al. 2019, arXiv 1901.02860): enwik8 and text8 as released, and the rows of table 6."""

from __future__ import annotations

from typing import Any

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


def ablation(
  row: str, length: int, attention: int, *, distances: int, clamp: int, stride: int = 1, rows: int = 64
) -> dict[str, Any]:
  """Return the settings of a row in table 6: recurrence, positional encoding and loss.

  With recurrence, the evaluation reads segments with a memory of the attention length. Without, it reads overlapping
  windows, so that a prediction sees `attention` to `attention` + `stride` - 1 tokens, not half of that on average.

  Args:
    row: 'ours', 'shaw', 'half'; without recurrence 'alone', 'alone_half', 'alone_shaw', 'alone_shaw_half',
      'vaswani_half' (absolute sinusoids) or 'alrfou_half' (a learned vector for each position and layer).
    length: tokens of a segment in training, and of its memory.
    attention: attention length of the evaluation.
    distances: maximum distance of Shaw's vectors.
    clamp: maximum distance in the evaluation with recurrence; larger ones are clamped.
    stride: tokens from one window to the next in the evaluation without recurrence; 1 as in the paper.
    rows: windows per batch in that evaluation.
  """
  recurrent = row in ('ours', 'shaw', 'half')
  positions = {'vaswani_half': 'absolute', 'alrfou_half': 'layers'}.get(row, 'shaw' if 'shaw' in row else 'sinusoids')
  own = {'shaw': distances, 'layers': length}.get(positions, 0)
  model = {'M': length if recurrent else 0, 'positions': positions, 'clamp': own}
  data: dict[str, Any] = {'length': length, 'batching': {'counted': 0.5 if row.endswith('half') else 1.0}}
  if recurrent:
    context = {'M': attention, 'clamp': own or clamp, 'same_length': True}
    return {'model': model, 'data': data, 'evaluation': {'model': context}}
  context = {'M': 0, 'clamp': own or (length if positions == 'sinusoids' else 0), 'same_length': False}
  data['eval_length'] = attention + stride - 1
  return {'model': model, 'data': data, 'evaluation': {'stride': stride, 'batch_size': rows, 'model': context}}
