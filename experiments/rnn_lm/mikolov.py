"""Recurrent language model with a sigmoid unit and a class-factored output (Mikolov et al. 2010, Interspeech, and 2011,
"Extensions of Recurrent Neural Network Language Model", ICASSP) on Penn Treebank or on the embedded English prose.

  lmx train --config=experiments/rnn_lm/mikolov.py:ptb --workdir=runs/mikolov --config.data.manual_dir=DIR
  lmx train --config=experiments/rnn_lm/mikolov.py:embedded --workdir=runs/mikolov        minutes on two cores
  lmx train --config=experiments/rnn_lm/mikolov.py:tiny --workdir=runs/tiny               seconds: a smoke test

s(t) = sigmoid(U w(t) + W s(t - 1)) with 200 units (2010, section 2). The words have 100 classes with equal shares of
the square roots of their frequencies, as Mikolov's toolkit assigns them (rnnlmlib.cpp, `initNet`). Options after the
variant:
  classes=N       number of classes; 0 is the softmax over all words of 2010
  mass=frequency  equal shares of the frequencies (2011, section 3)
  steps=N         time steps of truncated back-propagation, and words of an update; 1 is section 2 of 2010

SGD from rate 0.1 on the sum over the words of an update (objective.reduction 'rows'), without regularisation (2010,
section 2). One stream of text is read, updated every 10 words, the toolkit's default with back-propagation through time
(bptt_block). After an epoch in which the validation loss falls by less than 0.3% the best parameters are restored and
the rate is halved (the toolkit's min_improvement 1.003).

Deviations: the toolkit compares an epoch with the one before it, here it is compared with the last good one.
The toolkit halves the rate in every epoch after the first reduction and stops at the second such epoch; here it is
halved six times. The toolkit also reads bptt further steps before each block, limits errors to 15, and updates the
output after every word. `embedded` reads 10 streams. No metric of the papers is compared.
"""

from __future__ import annotations

from experiments import config

VARIANTS = ('embedded', 'ptb', 'tiny')


@config.arguments(VARIANTS, classes=100, mass=('root', 'frequency'), steps=10)
def get_config(variant, options):
  rows = 1 if variant == 'ptb' else 10
  base = {
    'name': f'rnn_lm_mikolov_{variant}',
    'model': {'name': 'rnn_lm', 'variant': 'mikolov', 'classes': options.classes, 'class_mass': options.mass},
    'data': {
      'tokenizer': 'words',
      'batching': 'streams',
      'batch_size': rows,
      'length': options.steps,
      'eval_batch_size': 1,
      'eval_length': 350,  # one stream: the carry is kept, so this changes only the speed
    },
    'objective': {'reduction': 'rows'},
    'optim': {
      'optimizer': 'sgd',
      'lr': 0.1,
      'schedule': 'plateau',
      'patience': 0,
      'factor': 0.5,
      'threshold': 0.003,
      'restore_best': True,
      'max_reductions': 6,
    },
    'train': {'epochs': 30, 'log_every': 500},
    'samples': {'count': 1},
  }
  data = {'dataset': 'ptb', 'vocab_size': 10_000} if variant == 'ptb' else {'dataset': 'embedded', 'min_count': 2}
  return config.merge(base, {'data': data}, config.tiny(D=16, E=16, **_CELL) if variant == 'tiny' else {})


# Of the variant mikolov, on the size of 'tiny'.
_CELL = {'N': 1, 'cell': 'rnn_sigmoid', 'input': 'one_hot', 'bias': 'none', 'classes': 8, 'init_scale': 0.173}


def sweep():
  yield from config.grid(model__classes=[0, 30, 100, 400], seed=[0, 1, 2])
