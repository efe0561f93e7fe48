"""Transformer (Vaswani et al. 2017) on generated numbers: English number words to digits, or digits to words.

  lmx train --config=experiments/transformer/quickstart.py --workdir=runs/numbers          under 2 minutes on two cores
  lmx train --config=experiments/transformer/quickstart.py:digits --workdir=runs/numbers   the other direction
  lmx train --config=experiments/transformer/quickstart.py:tiny --workdir=runs/tiny        seconds: a smoke test
  echo 'three hundred and twelve' | lmx translate --workdir=runs/numbers

`words` reads words and writes digits, `digits` the reverse. The numbers are generated, so no metric is published; the
test numbers do not occur in training, and nearly all are translated correctly.
"""

from __future__ import annotations

from experiments import config, translation
from experiments.transformer import recipe

VARIANTS = ('words', 'digits', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  base = {
    'name': 'transformer_numbers',
    'model': {'name': 'transformer', 'variant': 'tiny', 'D': 64, 'F': 128, 'norm': 'pre', 'biases': 'none'},
    'objective': {'smoothing': 0.1},
    'data': {
      'dataset': 'embedded_numbers',
      'source': 'digits' if variant == 'digits' else 'words',
      'tokenizer': 'words',
      'batching': {'name': 'translation', 'buckets': (8,)},
      'batch_size': 64,
      'length': 16,
    },
    'optim': {**recipe.ADAM, 'lr': 3e-3, 'warmup_steps': 200},
    'train': {'steps': 800, 'eval_every': 400},
    'evaluation': {'beam': 4, 'baselines': False},
  }
  return config.merge(base, translation.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[1e-3, 3e-3, 1e-2])
