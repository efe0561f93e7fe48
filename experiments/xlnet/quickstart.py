"""XLNet (Yang et al. 2019) in miniature: subwords of the embedded English prose, predicted in random orders.

  lmx train --config=experiments/xlnet/quickstart.py --workdir=runs/xlnet         minutes on two cores
  lmx train --config=experiments/xlnet/quickstart.py:tiny --workdir=runs/tiny     seconds: a smoke test

`fast`: 4 layers of 128, rows of 128 of which 64 are cached in the memory, 21 predicted in each. The corpus ships with
Python, so no metric is published.
"""

from __future__ import annotations

from experiments import config
from experiments.xlnet import recipe

VARIANTS = ('fast', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  base = {
    'name': 'xlnet_quickstart',
    'model': {
      'name': 'xlnet',
      'variant': 'base',
      'D': 128,
      'F': 512,
      'H': 4,
      'N': 4,
      'M': 64,
      'reuse': 64,
      'dropout': 0.0,
      'dropout_attention': 0.0,
    },
    'data': {
      'dataset': 'embedded',
      'tokenizer': 'unigram',
      'vocab_size': 4096,
      'marks': 'xlnet',
      'batching': {'name': 'permutations', 'reuse': 64},
      'batch_size': 16,
      'length': 128,
      'eval_batch_size': 4,
    },
    'optim': {
      'optimizer': 'adamw',
      'lr': 1e-3,
      'eps': 1e-6,
      'weight_decay': 0.01,
      'groups': config.DECAY_MATRICES_ONLY,
      'schedule': 'linear',
      'warmup_steps': 200,
      'clip_norm': 1.0,
    },
    'train': {'steps': 1500, 'eval_every': 500},
    'samples': {'count': 1},
  }
  return config.merge(base, recipe.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[5e-4, 1e-3], data__batching__context=[5, 6, 7])
