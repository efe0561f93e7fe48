"""AWD-LSTM over characters (Merity, Keskar and Socher 2018, arXiv 1803.08240, section 4) on Penn Treebank.

  lmx train --config=experiments/awd_lstm/ptb_characters.py:released --workdir=runs/awd-ptb_characters

The characters of Mikolov's Penn Treebank (5,017,482 / 393,042 / 442,423, vocabulary 50 with the line end), from the
same files as experiments/awd_lstm/ptb.py: --config.data.manual_dir=DIR. Three layers of 1000, 1000 and 200, embeddings
200; 13.8M parameters.

  variant  test bits per character  hardware and time
  released  1.175                   one GPU, hours; 500 epochs
  qrnn      1.187                   the same; six QRNN layers of 1000, the last of 200, 13.8M parameters

Released recipe: Adam at 2e-3, divided by 10 after 300 and 400 of 500 epochs; windows of about 150 with a proportional
learning rate; no activation penalties and no averaging. The release has no QRNN command: it uses the LSTM's, with its
dropout rates. Deviation: milestones count steps of the first epoch, because epochs of random windows differ by a few
steps.
"""

from __future__ import annotations

from experiments import config
from experiments.awd_lstm import recipe

VARIANTS = ('released', 'qrnn', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  base = {
    'name': f'awd_lstm_ptb_characters_{variant}',
    'model': {'variant': 'ptb_characters', **({'cell': 'qrnn', 'N': 6} if variant == 'qrnn' else {})},
    'data': {
      'dataset': 'ptb_characters',
      'tokenizer': 'characters',
      'batch_size': 128,
      'length': 150,
      'eval_length': 150,
    },
    'optim': {
      'optimizer': 'adam',
      'lr': 2e-3,
      'asgd': 'off',
      'asgd_lag': False,
      'schedule': 'milestones',
      'milestones': (300.0, 400.0),
      'decay_rate': 10.0,
    },
    'train': {'epochs': 500},
    'evaluation': {'baselines': False},
  }
  return config.merge(recipe.BASE, base, config.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(seed=[0, 1, 2])
