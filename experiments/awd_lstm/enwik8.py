"""AWD-LSTM over bytes (Merity, Keskar and Socher 2018, arXiv 1803.08240, section 4) on enwik8.

  lmx train --config=experiments/awd_lstm/enwik8.py:released --workdir=runs/awd-enwik8

enwik8 (the first 10^8 bytes of Wikipedia, Hutter; 90 / 5 / 5 million) is downloaded, or read from
--config.data.manual_dir=DIR. Three layers of 1840, 1840 and 400, embeddings 400; 47M parameters.

  variant  test bits per character  hardware and time
  released  1.232                   one GPU, a day; 50 epochs

Released recipe: Adam at 1e-3, divided by 10 after 25 and 35 of 50 epochs; windows of about 200 with a proportional
learning rate; no activation penalties and no averaging. Deviation: milestones count steps of the first epoch, because
epochs of random windows differ by a few steps. The vocabulary has all bytes; the paper's has the 205 that occur.
"""

from __future__ import annotations

from experiments import config
from experiments.awd_lstm import recipe

VARIANTS = ('released', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  base = {
    'name': f'awd_lstm_enwik8_{variant}',
    'model': {'variant': 'enwik8'},
    'data': {'dataset': 'enwik8', 'tokenizer': 'bytes', 'batch_size': 128, 'length': 200, 'eval_length': 200},
    'optim': {
      'optimizer': 'adam',
      'lr': 1e-3,
      'asgd': 'off',
      'asgd_lag': False,
      'schedule': 'milestones',
      'milestones': (25.0, 35.0),
      'decay_rate': 10.0,
    },
    'train': {'epochs': 50},
    'evaluation': {'baselines': False},
  }
  return config.merge(recipe.BASE, base, config.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(seed=[0, 1, 2])
