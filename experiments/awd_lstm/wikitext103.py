"""AWD-LSTM and its predecessor on WikiText-103, with an adaptive softmax over 267,735 words.

  lmx train --config=experiments/awd_lstm/wikitext103.py:qrnn --workdir=runs/qrnn
  lmx train --config=experiments/awd_lstm/wikitext103.py:lstm --workdir=runs/lstm
  lmx evaluate --workdir=runs/lstm --cache=2000,0.1,0.3

WikiText-103 (vocabulary 267,735 of the train split, <eos> at the end of a line counted) is downloaded, or read from
--config.data.manual_dir=DIR.

  variant  paper                                       test perplexity   hardware and time
  qrnn     Merity, Keskar and Socher 2018 (1803.08240)  33.0              one GPU, 12 hours
  lstm     Grave, Joulin and Usunier 2017 (1612.04426)  48.7; cache 40.8  one GPU, hours

`qrnn` follows the released README: four layers of 2500, 2500, 2500 and 400, embeddings 400, windows of about 140, 60
rows, Adam at 1e-3, divided by 10 after 12 of 14 epochs, dropout 0.1. 153,886,638 parameters. Deviation: the milestone
counts steps of the first epoch, because epochs of random windows differ by a few steps.

`lstm` is the baseline of the continuous cache: one layer of 1024 units, Adagrad from rate 0.2, gradient norm at most
0.1, windows of 30, 128 rows, dropout 0.25, all parameters uniform in +-0.05 except the LSTM's. The paper gives no
clusters or epochs, and no lambda and theta of its cache, which it chose on the validation split. Ours are `qrnn`'s
clusters, 10 epochs, 0.1 and 0.3 (choose on --split=valid). Deviations: dropout is locked; rare words have embeddings as
wide as frequent ones.
"""

from __future__ import annotations

from typing import Any

from experiments import config
from experiments.awd_lstm import recipe

VARIANTS = ('qrnn', 'lstm', 'tiny')
LSTM: dict[str, Any] = {
  'model': {'variant': 'wt103_lstm'},
  'data': {'batch_size': 128, 'length': 30, 'eval_length': 30, 'batching': {'random_length': False}},
  'optim': {'optimizer': 'adagrad', 'lr': 0.2, 'clip_norm': 0.1, 'schedule': 'constant'},
  'train': {'epochs': 10},
  'evaluation': {'cache': (2000, 0.1, 0.3)},
}


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  base = {
    'name': f'awd_lstm_wikitext103_{variant}',
    'model': {'variant': 'wt103_qrnn'},
    'data': {'dataset': 'wikitext103', 'batch_size': 60, 'length': 140, 'eval_length': 140},
    'optim': {
      'optimizer': 'adam',
      'lr': 1e-3,
      'weight_decay': 0.0,
      'asgd': 'off',
      'asgd_lag': False,
      'schedule': 'milestones',
      'milestones': (12.0,),
      'decay_rate': 10.0,
    },
    'train': {'epochs': 14, 'log_every': 200},
    'evaluation': {'baselines': False},
  }
  tiny = {**config.tiny(cell='qrnn', cutoffs=(20, 40))} if variant == 'tiny' else {}
  return config.merge(recipe.BASE, base, LSTM if variant == 'lstm' else {}, tiny)


def sweep():
  yield from config.grid(seed=[0, 1, 2])
