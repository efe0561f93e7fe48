"""Quaternion Transformer (Tay et al. 2019) against the real-valued one: language models on the embedded English prose.

  lmx train --config=experiments/quaternion_transformer/quickstart.py --workdir=runs/quaternion       minutes on a core
  lmx train --config=experiments/quaternion_transformer/quickstart.py:none --workdir=runs/none        the same, ordinary
  lmx train --config=experiments/quaternion_transformer/quickstart.py:tiny --workdir=runs/tiny        a smoke test

Variants: `full` (all matrices are quaternion), `partial` (only attention's) and `none`; option `whole` has one softmax
per head instead of one per score component. The paper has no language model, and the corpus ships with Python, so no
metric is published; measured.csv has measured ones.
"""

from __future__ import annotations

from experiments import config

VARIANTS = ('full', 'partial', 'none', 'tiny')


@config.arguments(VARIANTS, whole=False)
def get_config(variant, options):
  base = {
    'name': f'quaternion_quickstart_{variant}',
    'model': {
      'name': 'quaternion_text',
      'variant': {'none': 'base', 'tiny': 'full'}.get(variant, variant),
      'scores': 'whole' if options.whole else 'component',
      'D': 128,
      'F': 512,
      'H': 4,
      'N': 4,
      'dropout': 0.0,
      'dropout_attention': 0.0,
      'dropout_relu': 0.0,
    },
    'data': {
      'dataset': 'embedded',
      'tokenizer': 'bpe',
      'vocab_size': 4096,
      'batching': {'name': 'windows', 'stride': 32},
      'batch_size': 16,
      'length': 64,
    },
    'optim': {
      'optimizer': 'adamw',
      'lr': 2e-3,
      'b2': 0.95,
      'weight_decay': 0.1,
      'clip_norm': 1.0,
      'schedule': 'cosine',
      'warmup_steps': 50,
      'end_fraction': 0.1,
      'groups': config.DECAY_MATRICES_ONLY,
    },
    'train': {'steps': 500, 'eval_every': 250},
    'samples': {'default_prompts': ('', 'The method returns'), 'count': 1},
  }
  small = config.merge(config.tiny(D=32, F=48, N=2), {'data': {'batching': 'windows'}}).to_dict()
  return config.merge(base, small if variant == 'tiny' else {})


def sweep():
  yield from config.grid(model__quaternion=['full', 'partial', 'none'], optim__lr=[2e-3, 4e-3])
