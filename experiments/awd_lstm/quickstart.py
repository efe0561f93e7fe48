"""AWD-LSTM (Merity, Keskar and Socher 2018, arXiv 1708.02182) on the embedded English prose, word by word.

  lmx train --config=experiments/awd_lstm/quickstart.py --workdir=runs/awd                  20 minutes on one core
  lmx train --config=experiments/awd_lstm/quickstart.py:finetune --workdir=runs/tuned --config.train.init_from=runs/awd
  lmx train --config=experiments/awd_lstm/quickstart.py:tiny --workdir=runs/tiny            seconds: a smoke test

The corpus ships with Python, so no metric is published. The recipe is complete, at a width that two cores can
train: all five dropouts, AR and TAR, windows of random length, NT-ASGD (a validation every half epoch) and the cache.
Averaging begins after update 4,250 (docs/notes/awd_lstm.md). Expect 58.48 on test, with the cache 52.47. Option:
`:fast,cell=qrnn`.
"""

from __future__ import annotations

from experiments import config
from experiments.awd_lstm import recipe

VARIANTS = ('fast', 'finetune', 'tiny')


@config.arguments(VARIANTS, cell=('lstm', 'qrnn'))
def get_config(variant, options):
  base = {
    'name': 'awd_lstm_quickstart',
    'model': {
      'variant': 'ptb',
      'cell': options.cell,
      'E': 200,
      'D': 320,
      'N': 2,
      'dropout_input': 0.3,
      'dropout_hidden': 0.2,
      'dropout_output': 0.3,
      'dropout_weight': 0.3,
    },
    'data': {
      'dataset': 'embedded',
      'min_count': 2,
      'batch_size': 20,
      'length': 40,
      'eval_length': 40,
      'batching': {'length_multiple': 16},
    },
    'optim': {'nonmono': 2},
    'train': {'steps': 9000, 'eval_every': 250},
    'evaluation': {'cache': (500, 0.1, 1.0)},
    'samples': {'default_prompts': ('', 'The method returns'), 'count': 1},
  }
  tuned = {'optim': {'asgd': 'start'}, 'train': {'steps': 1500}} if variant == 'finetune' else {}
  return config.merge(recipe.BASE, base, tuned, config.tiny(E=24, D=32) if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[10.0, 20.0, 30.0], model__dropout_weight=[0.0, 0.3, 0.5])
