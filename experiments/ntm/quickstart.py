"""Neural Turing Machine (Graves et al. 2014, arXiv 1410.5401) that learns to copy sequences of bits.

  lmx train --config=experiments/ntm/quickstart.py --workdir=runs/ntm              about a minute on two cores
  lmx train --config=experiments/ntm/quickstart.py:baseline --workdir=runs/lstm    the LSTM without a memory
  lmx train --config=experiments/ntm/quickstart.py:tiny --workdir=runs/tiny        seconds: a smoke test

Variants: lstm (an LSTM as the controller), ff (a feed-forward one), baseline (three LSTM layers, no memory; minutes).
Sequences of 1 to 20 vectors of 8 bits, 16,000 of them; the test split has lengths 10, 20 and 30. There are no published
metrics for such a short training. `lstm` stays at 80 to 90 bits per sequence, little better than chance, for about half
of the time, until it learns to use the memory; then it falls to 1 or less. memory_<length>.png shows the heads.
"""

from __future__ import annotations

from experiments import config
from experiments.ntm import recipe

VARIANTS = ('lstm', 'ff', 'baseline', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  base = {
    'name': f'ntm_quickstart_{variant}',
    'model': {'name': 'ntm', 'variant': f'copy_{"lstm" if variant == "tiny" else variant}'},
    'objective': {'lengths': (10, 20, 30)},
    'data': {
      'dataset': 'generated',
      'tokenizer': 'bytes',
      'batching': {'name': 'algorithmic', 'task': 'copy', 'eval_sequences': 192, 'test_lengths': (10, 20, 30)},
      'batch_size': 4,
      'eval_batch_size': 64,
      'length': 20,
    },
    'optim': {'optimizer': 'adam', 'lr': 1e-3, 'warmup_steps': 100, 'clip_norm': 10.0},
    'train': {'steps': 4000, 'eval_every': 500, 'log_every': 50},
    'evaluation': {'baselines': False},
    'samples': {'count': 3},
  }
  return config.merge(base, recipe.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[1e-3, 3e-3], model__memory=['constant', 'learned', 'random'])
