"""Memory-compressed attention (Liu et al. 2018) in miniature: windows of 1,024 subwords of the embedded English prose.

  lmx train --config=experiments/memory_compressed/quickstart.py --workdir=runs/dmca       about 2 minutes on two cores
  lmx train --config=experiments/memory_compressed/quickstart.py:full --workdir=runs/full  all attention full
  lmx train --config=experiments/memory_compressed/quickstart.py:tiny --workdir=runs/tiny  seconds: a smoke test

`fast` is L M L M with blocks of 64, `full` attends to the whole window in every layer. The corpus ships with Python, so
no metric is published.
"""

from __future__ import annotations

from experiments import config
from experiments.transformer import recipe as transformer

VARIANTS = ('fast', 'full', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  base = {
    'name': 'memory_compressed_quickstart',
    'model': {
      'name': 'memory_compressed',
      'variant': 't_dmca',
      'D': 128,
      'F': 256,
      'H': 4,
      'norm': 'pre',
      'dropout': 0.0,
      'pattern': 'FFFF' if variant == 'full' else 'LMLM',
      'window': 64,
    },
    'data': {
      'dataset': 'embedded',
      'tokenizer': 'bpe',
      'vocab_size': 4096,
      'batching': {'name': 'windows', 'stride': 512},
      'batch_size': 2,
      'length': 1024,
    },
    'optim': {**transformer.ADAM, 'lr': 3e-3, 'warmup_steps': 50, 'clip_norm': 1.0},
    'train': {'steps': 400, 'eval_every': 200},
    'samples': {'count': 1},
  }
  tiny = {**config.tiny(pattern='LMF', window=8), 'data': {**config.tiny()['data'], 'batching': 'windows'}}
  return config.merge(base, tiny if variant == 'tiny' else {})


def sweep():
  yield from config.grid(model__window=[32, 64, 128], model__stride=[2, 3, 5])
