"""BERT (Devlin et al. 2019, arXiv 1810.04805) in miniature on the embedded English prose, with its own WordPiece.

  lmx train --config=experiments/bert/quickstart.py --workdir=runs/bert            about 4 minutes on two cores
  lmx train --config=experiments/bert/quickstart.py:full --workdir=runs/bert-full  within 40 minutes there
  lmx train --config=experiments/bert/quickstart.py:tiny --workdir=runs/tiny       seconds: a smoke test

Masked LM and next-sentence prediction as in the released data code. The corpus ships with Python, so no metric
is published; measured.csv has the expected ones.
"""

from __future__ import annotations

from experiments import config

VARIANTS = ('fast', 'full', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  base = {
    'name': 'bert_quickstart',
    'model': {'name': 'bert', 'variant': 'mini'},
    'data': {
      'dataset': 'embedded',
      'tokenizer': 'wordpiece',
      'lower_case': True,
      'vocab_size': 4096,
      'batching': {'name': 'pairs', 'masking': 'dynamic', 'max_predictions': 10},
      'batch_size': 32,
      'length': 64,
    },
    'optim': {
      'optimizer': 'bert_adam',
      'lr': 1e-3,
      'weight_decay': 0.01,
      'clip_norm': 1.0,
      'schedule': 'linear',
      'warmup_steps': 100,
      'groups': config.DECAY_MATRICES_ONLY,
    },
  }
  changes: dict[str, dict] = {
    'fast': {
      'model': {'D': 192, 'H': 6, 'N': 3, 'dropout_hidden': 0.0, 'dropout_attention': 0.0},
      'train': {'steps': 1000, 'eval_every': 250},
    },
    'full': {'train': {'steps': 8000, 'eval_every': 500}},
    'tiny': config.tiny(),
  }
  return config.merge(base, changes[variant])


def sweep():
  yield from config.grid(optim__lr=[5e-4, 1e-3, 2e-3], data__batching__masking=['static', 'dynamic'])
