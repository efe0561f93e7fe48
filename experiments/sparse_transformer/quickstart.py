"""Sparse Transformer (Child et al. 2019) in miniature: windows of 1,024 bytes of the embedded English prose.

  lmx train --config=experiments/sparse_transformer/quickstart.py --workdir=runs/sparse  minutes on a core
  lmx train --config=experiments/sparse_transformer/quickstart.py:strided --workdir=runs/strided  the other pattern
  lmx train --config=experiments/sparse_transformer/quickstart.py:dense --workdir=runs/dense  looks at all
  lmx train --config=experiments/sparse_transformer/quickstart.py:tiny --workdir=runs/tiny  seconds: does it run at all

`fast` is the fixed pattern, both sets in every head: 4 layers of 128, stride 32, c = 8. `strided` and `dense` have as
many parameters. `merge` (merged, alternate, heads) says how the two sets are taken. The corpus comes with Python
itself, so no figure is published.
"""

from __future__ import annotations

from experiments import common

VARIANTS = ('fast', 'strided', 'dense', 'tiny')


def get_config(arg: str = ''):
  variant, options = common.parse_arg(arg, VARIANTS, merge=('merged', 'alternate', 'heads'))
  base = {
    'name': 'sparse_transformer_quickstart',
    'model': {
      'name': 'sparse_transformer', 'variant': 'enwik8', 'T': 1024, 'D': 128, 'H': 4, 'N': 4, 'stride': 32,
      'summary': 8, 'dropout': 0.0, 'merge': options.merge, 'init': 'released',
      'pattern': variant if variant in ('strided', 'dense') else 'fixed',
    },
    'data': {
      'dataset': 'embedded', 'tokenizer': 'bytes', 'batching': {'name': 'windows', 'stride': 512}, 'batch_size': 2,
      'length': 1024,
    },
    'optim': {
      'optimizer': 'adamw', 'lr': 2e-3, 'clip_norm': 1.0, 'weight_decay': 0.01, 'schedule': 'cosine',
      'warmup_steps': 50, 'groups': common.DECAY_MATRICES_ONLY,
    },
    'train': {'steps': 500, 'eval_every': 250},
    'samples': {'count': 1},
  }  # fmt: skip
  tiny = {'model': {'stride': 4, 'summary': 1}, 'data': {'batching': {'stride': 16}}}
  return common.config(base, *((common.tiny(T=32, D=32, N=2), tiny) if variant == 'tiny' else ()))


def sweep():
  yield from common.grid(model__stride=[16, 32, 64], model__summary=[4, 8])
