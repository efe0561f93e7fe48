"""GPT (Radford et al. 2018) in miniature on the embedded English prose, with its own byte-level BPE.

  lmx train --config=experiments/gpt/quickstart.py --workdir=runs/gpt            11 minutes on one core
  lmx train --config=experiments/gpt/quickstart.py:tiny --workdir=runs/tiny      seconds: a smoke test

The corpus ships with Python, so no metric is published; measured.csv has measured ones. For your own text add
--config.data.dataset=text_files --config.data.manual_dir=DIR.
"""

from __future__ import annotations

from experiments import config
from experiments.gpt import recipe

VARIANTS = ('fast', 'tiny')


@config.arguments(VARIANTS, fidelity=('paper', 'released'))
def get_config(variant, options):
  base = {
    'name': 'gpt_quickstart',
    'model': {'name': 'gpt', 'variant': 'base', 'T': 128, 'fidelity': options.fidelity},
    'data': {
      'dataset': 'embedded',
      'tokenizer': 'bpe',
      'vocab_size': 4096,
      'batching': {'name': 'windows', 'stride': 64},
      'batch_size': 16,
      'length': 128,
      'eval_length': 128,
    },
    'optim': {
      'optimizer': 'adamw',
      'lr': 1e-3,
      'weight_decay': 0.01,
      'clip_norm': 1.0,
      'schedule': 'cosine',
      'warmup_steps': 100,
      'groups': config.DECAY_MATRICES_ONLY,
    },
    'samples': {'default_prompts': ('', 'The method returns'), 'count': 1},
  }
  changes: dict[str, dict] = {
    'fast': {
      'model': {'D': 192, 'H': 6, 'N': 4, **recipe.dropout(0.0)},
      'train': {'steps': 900, 'eval_every': 300},
    },
    'tiny': config.merge(config.tiny(), {'data': {'batching': 'windows'}}).to_dict(),
  }
  return config.merge(base, changes[variant])


def sweep():
  yield from config.grid(optim__lr=[5e-4, 1e-3, 2e-3])
