"""Transformer-XL (Dai et al. 2019) in miniature: subwords of the embedded English prose, in segments with a memory.

  lmx train --config=experiments/transformer_xl/quickstart.py --workdir=runs/txl        minutes on two cores
  lmx train --config=experiments/transformer_xl/quickstart.py:alone --workdir=runs/no   the same without a memory
  lmx train --config=experiments/transformer_xl/quickstart.py:tiny --workdir=runs/tiny  seconds: does it run at all

`fast`: 4 layers of 128, segments of 64 over a memory of 64, evaluated with one of 192; an adaptive softmax over three
clusters. The corpus comes with Python itself, so no metric is published; see docs/results for those measured.
"""

from __future__ import annotations

from experiments import config

VARIANTS = ('fast', 'alone', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  alone = variant == 'alone'
  context = {} if alone else {'M': 192, 'clamp': 128, 'same_length': True}
  base = {
    'name': 'transformer_xl_quickstart',
    'model': {
      'name': 'transformer_xl',
      'variant': 'wt103_base',
      'D': 128,
      'F': 512,
      'H': 4,
      'N': 4,
      'M': 0 if alone else 64,
      'cutoffs': (1000, 2500),
      'dropout': 0.1,
      'fidelity': 'pytorch',
    },
    'data': {
      'dataset': 'embedded',
      'tokenizer': 'bpe',
      'vocab_size': 4096,
      'batching': 'streams',
      'batch_size': 16,
      'length': 64,
      'eval_batch_size': 4,
    },
    'optim': {
      'optimizer': 'adam',
      'lr': 1e-3,
      'clip_norm': 0.25,
      'schedule': 'cosine',
      'warmup_steps': 100,
    },
    'train': {'steps': 1500, 'eval_every': 300},
    'evaluation': {'model': context},
    'samples': {'count': 1},
  }
  return config.merge(base, config.tiny(cutoffs=(20, 40), M=16) if variant == 'tiny' else {})


def sweep():
  yield from config.grid(model__M=[32, 64, 128], optim__lr=[5e-4, 1e-3])
