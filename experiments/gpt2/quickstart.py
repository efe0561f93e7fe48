"""GPT-2 (Radford et al. 2019) in miniature on the embedded English prose, with its own byte-level BPE.

  lmx train --config=experiments/gpt2/quickstart.py --workdir=runs/gpt2            about 4 minutes on two cores
  lmx train --config=experiments/gpt2/quickstart.py:full --workdir=runs/gpt2-full  within 40 minutes there
  lmx train --config=experiments/gpt2/quickstart.py:tiny --workdir=runs/tiny       seconds: a smoke test

The corpus ships with Python, so no metric is published; measured.csv has measured ones. For your own text add
--config.data.dataset=text_files --config.data.manual_dir=DIR.
"""

from __future__ import annotations

from experiments import config, spaces
from experiments.gpt import recipe as gpt

VARIANTS = ('fast', 'full', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  base = {
    'name': 'gpt2_quickstart',
    'model': {'name': 'gpt2', 'variant': '124m', 'T': 128},
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
      'lr': 2e-3,
      'b2': 0.95,
      'weight_decay': 0.1,
      'clip_norm': 1.0,
      'schedule': 'cosine',
      'warmup_steps': 100,
      'end_fraction': 0.1,
      'groups': config.DECAY_MATRICES_ONLY,
    },
    'samples': {'default_prompts': ('', 'The method returns'), 'count': 1},
  }
  changes: dict[str, dict] = {
    'fast': {
      'model': {'D': 192, 'H': 6, 'N': 4, **gpt.dropout(0.0)},
      'train': {'steps': 900, 'eval_every': 300},
    },
    'full': {
      'model': {'D': 256, 'H': 8, 'N': 6, **gpt.dropout(0.2)},
      'train': {'steps': 6000, 'eval_every': 500},
    },
    'tiny': config.merge(config.tiny(), {'data': {'batching': 'windows'}}).to_dict(),
  }
  return config.merge(base, changes[variant])


def sweep():
  return spaces.space(
    optim__lr=spaces.log_range(5e-4, 8e-3), optim__weight_decay=spaces.log_range(1e-3, 0.3), optim__b2=[0.95, 0.99]
  )
