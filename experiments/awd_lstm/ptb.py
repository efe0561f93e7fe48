"""AWD-LSTM (Merity, Keskar and Socher 2018, arXiv 1708.02182, tables 1 and 4) on Penn Treebank.

  lmx train --config=experiments/awd_lstm/ptb.py:released --workdir=runs/awd --config.data.manual_dir=DIR
  lmx train --config=experiments/awd_lstm/ptb.py:finetune --workdir=runs/tuned --config.train.init_from=runs/awd
  lmx evaluate --workdir=runs/tuned --cache=500,0.1,1.0

DIR holds ptb.train.txt, ptb.valid.txt and ptb.test.txt of Mikolov's version (929,589 / 73,760 / 82,430 tokens with one
<eos> per line, vocabulary 10,000). 24,221,600 parameters.

  variant   valid / test  fine-tuned   with cache   hardware and time
  released  61.2 / 58.8   58.8 / 56.5  53.2 / 52.5  one GPU, hours: 500 epochs (65 s each on a Quadro GP100)
  paper     60.7 / 58.8   60.0 / 57.3  53.9 / 52.8  one GPU, hours: 750 epochs (45 s each there)
  qrnn      60.6 / 58.3   59.1 / 56.7  53.4 / 52.6  one GPU, hours: 550 epochs (28 s each there)
  finetune  the second run of averaged SGD, from the best parameters of the first; option `:finetune,of=paper`

The README's metrics are approximate; its authors report that they vary with the PyTorch version and the GPU. Shared by
both recipes (section 5): 3 layers of 1150, 1150 and 400; SGD at 30, gradient norm at most 0.25, windows of N(70, 5)
tokens (N(35, 5) one time in 20) with a proportional learning rate. Averaging starts when the validation loss, measured
every epoch, exceeds the best one more than 5 epochs ago. AR 2 and TAR 1. `released` is the code's README for PyTorch
0.2 and later: batch 20 instead of 40, other dropout rates (the first code dropped other units than the paper says),
weight decay 1.2e-6, and an ASGD with rate and mean delayed by one step. Its cache has window 500, the paper's 2000
(both lambda 0.1, theta 1). Table 4's ablations are settings of experiments/tables/awd_lstm_words.py.

Deviations: validation counts every token once and divides by the token count (the code by one more); the cache starts
at the first word; fine-tuning takes the best of its own validations, the code also the initial one.

Option `pod` (`config.pod`) is for a TPU slice, as in experiments/awd_lstm/wikitext2.py.
"""

from __future__ import annotations

from experiments import config
from experiments.awd_lstm import recipe

VARIANTS = ('released', 'paper', 'qrnn', 'finetune', 'tiny')
CHANGES: dict[str, dict] = {
  'released': {},
  'paper': {  # section 5
    'model': {'dropout_hidden': 0.3},
    'data': {'batch_size': 40},
    'optim': {'asgd_lag': False},
    'train': {'epochs': 750},
    'evaluation': {'cache': (2000, 0.1, 1.0)},
  },
  'qrnn': {  # README of the released code
    'model': {'variant': 'ptb_qrnn'},
    'optim': {'clip_norm': 0.2},
    'train': {'epochs': 550},
  },
}
FINETUNE: dict[str, dict] = {'qrnn': {'train': {'epochs': 300}}}  # README; the others train as long as the first run


@config.arguments(VARIANTS, of=('released', 'paper', 'qrnn'), pod=False)
def get_config(variant, options):
  start = options.of if variant == 'finetune' else 'released' if variant == 'tiny' else variant
  base = {
    'name': f'awd_lstm_ptb_{variant}',
    'model': {'variant': 'ptb'},
    'data': {'dataset': 'ptb', 'vocab_size': 10000, 'batch_size': 20},
    'train': {'epochs': 500},
    'evaluation': {'cache': (500, 0.1, 1.0)},
  }
  tuned = {'optim': {'asgd': 'start'}, **FINETUNE.get(start, {})} if variant == 'finetune' else {}
  pod = config.pod(model={}) if options.pod else {}
  return config.merge(recipe.BASE, base, CHANGES[start], tuned, pod, config.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(seed=[141, 0, 1, 2, 3])
