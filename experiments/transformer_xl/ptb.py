"""Transformer-XL (Dai et al. 2019, arXiv 1901.02860) on the Penn Treebank, by word.

  lmx train --config=experiments/transformer_xl/ptb.py:24m --workdir=runs/txl-ptb --config.data.manual_dir=DIR

DIR has Mikolov's ptb.train.txt, ptb.valid.txt and ptb.test.txt (929,589 / 73,760 / 82,430 tokens with <eos>).

  variant  parameters   test perplexity (table 5)  hardware and time
  24m      24 million   54.52                      one GPU, hours

The paper prints neither sizes nor a recipe except "variational dropout and weight average", and no configuration was
released. This one is ours: 13 layers of 400, dropout 0.5, an exponential average of the parameters; its dropout is not
variational. Its perplexity has not been measured.
"""

from __future__ import annotations

from experiments import config

VARIANTS = ('24m', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  base = {
    'name': f'transformer_xl_ptb_{variant}',
    'model': {'name': 'transformer_xl', 'variant': 'ptb', 'dropout': 0.5, 'dropout_attention': 0.2},
    'data': {
      'dataset': 'ptb',
      'tokenizer': 'words',
      'vocabulary_splits': ('train', 'valid', 'test'),
      'batching': 'streams',
      'batch_size': 20,
      'length': 70,
      'eval_batch_size': 10,
      'eval_length': 70,
    },
    'optim': {
      'optimizer': 'adam',
      'lr': 2.5e-4,
      'clip_norm': 0.25,
      'schedule': 'cosine',
      'warmup_steps': 1000,
      'ema': 0.999,
    },
    'train': {'steps': 60_000, 'eval_every': 1000, 'log_every': 100},
    'evaluation': {'batch_size': 1, 'model': {'M': 210, 'clamp': 140, 'same_length': True}},
  }
  return config.merge(base, config.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(model__dropout=[0.4, 0.5, 0.6], seed=[0, 1])
