"""Sparse Transformer (Child et al. 2019) in miniature: windows of 256 bytes of the embedded English prose.

  lmx train --config=experiments/sparse_transformer/quickstart.py --workdir=runs/sparse  15 minutes on a core
  lmx train --config=experiments/sparse_transformer/quickstart.py:strided --workdir=runs/strided  the other pattern
  lmx train --config=experiments/sparse_transformer/quickstart.py:dense --workdir=runs/dense  full attention
  lmx train --config=experiments/sparse_transformer/quickstart.py:tiny --workdir=runs/tiny  seconds: a smoke test

`fast` is the fixed pattern, both sets in every head: 4 layers of 128, stride 16, c = 4. `strided` and `dense` have as
many parameters. `merge` (merged, alternate, heads) sets how the two sets are combined. The corpus ships with Python, so
no metric is published; measured.csv has the measured one. For about 1,000 updates the model is little better than byte
bigrams. Factorized attention saves time with longer windows, see `lmx bench --attention=1024,4096`.
"""

from __future__ import annotations

from experiments import config

VARIANTS = ('fast', 'strided', 'dense', 'tiny')


@config.arguments(VARIANTS, merge=('merged', 'alternate', 'heads'))
def get_config(variant, options):
  base = {
    'name': 'sparse_transformer_quickstart',
    'model': {
      'name': 'sparse_transformer',
      'variant': 'enwik8',
      'T': 256,
      'D': 128,
      'H': 4,
      'N': 4,
      'stride': 16,
      'summary': 4,
      'dropout': 0.0,
      'merge': options.merge,
      'init': 'released',
      'pattern': variant if variant in ('strided', 'dense') else 'fixed',
    },
    'data': {
      'dataset': 'embedded',
      'tokenizer': 'bytes',
      'batching': {'name': 'windows', 'stride': 128},
      'batch_size': 8,
      'length': 256,
    },
    'optim': {
      'optimizer': 'adamw',
      'lr': 2e-3,
      'clip_norm': 1.0,
      'weight_decay': 0.01,
      'schedule': 'cosine',
      'warmup_steps': 100,
      'groups': config.DECAY_MATRICES_ONLY,
    },
    'train': {'steps': 3000, 'eval_every': 500},
    'samples': {'count': 1},
  }
  tiny = {'model': {'stride': 4, 'summary': 1}, 'data': {'batching': {'stride': 16}}}
  return config.merge(base, *((config.tiny(T=32, D=32, N=2), tiny) if variant == 'tiny' else ()))


def sweep():
  yield from config.grid(model__stride=[8, 16, 32], model__summary=[2, 4])
