"""Character Transformer (Al-Rfou et al. 2018) in miniature: the bytes of the embedded English prose.

  lmx train --config=experiments/character_transformer/quickstart.py --workdir=runs/char         minutes on two cores
  lmx train --config=experiments/character_transformer/quickstart.py:alone --workdir=runs/alone  only the usual loss
  lmx train --config=experiments/character_transformer/quickstart.py:tiny --workdir=runs/tiny    a smoke test

`fast`: 4 layers of 128, windows of 128, two predictions after every layer as in the paper; `alone`: the only loss is
the last layer's next-byte prediction. It uses Adam and pre-layer normalisation, because with the paper's momentum SGD
and post-layer normalisation, 6 layers are still at byte unigrams after 1,000 updates. The corpus ships with Python, so
no metric is published; measured.csv has measured ones. loss.png shows the sum of all training terms, and in validation
the last layer's next-byte loss.
"""

from __future__ import annotations

from experiments import config

VARIANTS = ('fast', 'alone', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  alone = variant == 'alone'
  base = {
    'name': 'character_transformer_quickstart',
    'model': {
      'name': 'character_transformer',
      'variant': 't12',
      'N': 4,
      'D': 128,
      'F': 512,
      'T': 128,
      'norm': 'pre',
      'dropout': 0.0,
    },
    'objective': {'every_layer': not alone, 'second_target': not alone},
    'data': {
      'dataset': 'embedded',
      'tokenizer': 'bytes',
      'batching': {'name': 'windows', 'second': not alone},
      'batch_size': 16,
      'length': 128,
      'eval_batch_size': 64,
    },
    'optim': {'optimizer': 'adam', 'lr': 2e-3, 'clip_norm': 1.0, 'schedule': 'cosine', 'warmup_steps': 50},
    'train': {'steps': 1500, 'eval_every': 500},
    'evaluation': {'stride': 32},
    'samples': {'default_prompts': ('The method returns',), 'count': 1},
  }
  small = {'evaluation': {'stride': 16, 'batch_size': 64}}
  sizes = {'N': 2, 'D': 16, 'F': 32}
  return config.merge(base, *((config.tiny(**sizes), small) if variant == 'tiny' else ()))


def sweep():
  yield from config.grid(optim__lr=[1e-3, 3e-3], model__N=[2, 4, 6])
