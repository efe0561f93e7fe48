"""Regularised LSTM language models on Penn Treebank (Zaremba, Sutskever and Vinyals 2014, arXiv 1409.2329, table 1).

  lmx train --config=experiments/rnn_lm/ptb.py:medium --workdir=runs/ptb --config.data.manual_dir=DIR

DIR holds ptb.train.txt, ptb.valid.txt and ptb.test.txt of Mikolov's version (929,589 / 73,760 / 82,430 tokens with
one <eos> per line, vocabulary 10,000).

  variant  valid ppl  test ppl   hardware and time
  small    120.7      114.5      one GPU, minutes; 13 epochs
  medium   86.2       82.7       one GPU, under an hour; 39 epochs
  large    82.2       78.4       one GPU, hours ("about a day" in 2014); 55 epochs

Section 4.1: two layers; uniform initialisation; batch 20 with the state carried over between windows; SGD at 1, divided
after the first epochs by 2, 1.2 or 1.15 in each further one; gradient norm at most 5 (large: 10). Metrics are from the
last epoch, so `evaluation.which` is 'last'.

The paper's loss is the sum over the window's T steps and the mean over rows; ours is the mean per token, T times
smaller. So the learning rate is T times theirs and the clipping norm T times smaller; the updates are equal. Option:
`:medium,fidelity=released` has the two biases of the authors' Torch code; 'paper' has one.
"""

from __future__ import annotations

from experiments import config

VARIANTS = ('small', 'medium', 'large', 'tiny')
# Section 4.1: window T, epochs at the full rate, divisor after those, epochs in all, clipping norm.
RECIPES = {
  'small': (20, 4, 2.0, 13, 5.0),
  'medium': (35, 6, 1.2, 39, 5.0),
  'large': (35, 14, 1.15, 55, 10.0),
}
BIAS = {'paper': 'single', 'released': 'double'}


@config.arguments(VARIANTS, fidelity=tuple(BIAS))
def get_config(variant, options):
  size = 'small' if variant == 'tiny' else variant
  T, full_epochs, divisor, epochs, clip = RECIPES[size]
  base = {
    'name': f'rnn_lm_ptb_{variant}',
    'model': {'name': 'rnn_lm', 'variant': size, 'bias': BIAS[options.fidelity]},
    'data': {
      'dataset': 'ptb',
      'tokenizer': 'words',
      'vocab_size': 10000,
      'batching': 'streams',
      'batch_size': 20,
      'length': T,
      'eval_batch_size': 1,
      'eval_length': 350,  # one stream: the carry is kept, so this changes only the speed
    },
    'optim': {
      'optimizer': 'sgd',
      'lr': 1.0 * T,
      'clip_norm': clip / T,
      'schedule': 'step_decay',
      'decay_after_epochs': full_epochs,
      'decay_rate': divisor,
    },
    'train': {'epochs': epochs, 'log_every': 100},
    'evaluation': {'which': 'last'},
  }
  return config.merge(base, config.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(seed=[0, 1, 2, 3, 4])
