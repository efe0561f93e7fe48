"""Transformer (Vaswani et al. 2017) on any pair of parallel text files.

  lmx train --config=experiments/transformer/parallel.py:small --workdir=runs/mine --config.data.manual_dir=DIR \\
    --config.data.source=xx --config.data.target=yy

DIR holds train.xx and train.yy, with one sentence per line and its translation on the same line. It may hold valid.*
and test.*, else a share of train is held out. Metrics depend on the text.

  variant   model                                  suits                              hardware
  small     4 + 4 layers of 256, dropout 0.3       ten to two hundred thousand lines   one GPU, or hours on a CPU
  base      the paper's base                       a million lines and more            one GPU or several
"""

from __future__ import annotations

from typing import Any

from experiments import config, spaces, translation
from experiments.transformer import recipe

VARIANTS = ('small', 'base', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  base = {
    'name': f'transformer_{variant}',
    'model': {'name': 'transformer', 'variant': 'base'},
    'objective': {'smoothing': 0.1},
    'data': {
      'dataset': 'parallel_files',
      'tokenizer': 'unigram',
      'vocab_size': 10_000,
      'batching': {'name': 'translation', 'tokens': 4096, 'buckets': (16, 24, 32, 48)},
      'length': 96,
    },
    'optim': {**recipe.ADAM, 'lr': 1e-3, 'warmup_steps': 4000},
    'train': {'steps': 50_000, 'eval_every': 1000, 'log_every': 100},
    'checkpoint': {'every_steps': 1000, 'keep_last': 5},
    'evaluation': {'which': 'average', 'average': 5, 'beam': 4, 'baselines': False},
  }
  small: dict[str, Any] = {
    'model': {'D': 256, 'F': 1024, 'H': 4, 'encoder_layers': 4, 'decoder_layers': 4, 'norm': 'pre', 'dropout': 0.3},
    'train': {'steps': 20_000},
  }
  large = {'data': {'vocab_size': 32_000}}
  changes: dict[str, dict[str, Any]] = {'small': small, 'base': large, 'tiny': translation.tiny()}
  return config.merge(base, changes[variant])


def sweep():
  return spaces.space(
    optim__lr=spaces.log_range(3e-4, 3e-3),
    model__dropout=spaces.linear_range(0.0, 0.4),
    objective__smoothing=[0.0, 0.1],
  )
