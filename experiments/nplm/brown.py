"""Neural probabilistic language models on the Brown corpus (Bengio, Ducharme, Vincent and Jauvin 2003, table 1).

  lmx train --config=experiments/nplm/brown.py:mlp9 --workdir=runs/nplm/mlp9 --config.data.manual_dir=DIR
  python -m launch.tables nplm_brown --data=brown=DIR        every row of the table against the paper's

DIR holds train.txt, valid.txt, test.txt and index.tsv (each may be .gz), or cats.txt and the tagged files as in NLTK;
without DIR they are downloaded. Perplexities of the paper, and the settings of each row:

  variant  n  h    m   direct  mixed  train  valid  test
  mlp1     5  50   60  yes     no     182    284    268
  mlp2     5  50   60  yes     yes           275    257
  mlp3     5  0    60  yes     no     201    327    310
  mlp4     5  0    60  yes     yes           286    272
  mlp5     5  50   30  yes     no     209    296    279
  mlp6     5  50   30  yes     yes           273    259
  mlp7     3  50   30  yes     no     210    309    293
  mlp8     3  50   30  yes     yes           284    270
  mlp9     5  100  30  no      no     175    280    276
  mlp10    5  100  30  no      yes           265    252
  trigram (deleted interpolation)     31     352    336
  back-off Kneser-Ney, n = 3 / 4 / 5         334/332/332  323/321/321
  class-based back-off, n = 3, 500 classes   326          312           the best of seven

"Mixed" is the mean of the network's and the interpolated trigram's probabilities; even rows use the network of the
preceding odd row. The corpus is the paper's except for special tokens. Theirs, with special tokens for texts and
paragraphs, has 1,181,041 words, 47,578 types, and 16,383 types that occur more than three times. Ours, with special
tokens only for texts, has 1,161,692, 56,057 and 17,904. The splits at 800,000 and 1,000,000 words are the same.

Training (section 4.1): rate 1e-3 / (1 + 1e-8 t) after t examples, weight decay 1e-4 on everything but biases (section
2), early stopping on the validation words. The paper updates after every example; here a batch of B = 256 words makes
one update with the sum of their gradients: the loss is a mean, so the learning rate is B times the paper's. For small
rates both follow the same trajectory; tests/models/nplm_test.py measures the difference.

Options: `rate` per example and `epochs` at most. `:mlp9,rate=4e-3,epochs=6` makes as much progress as the paper's rate
in 24 epochs, in a quarter of the time; with a batch of 512 words 4e-3 was stable and 1.2e-2 was not. For the paper's
vocabulary size, and more comparable perplexities, set --config.data.vocab_size=16384 (16,383 and the unknown word).
"""

from __future__ import annotations

from experiments import config

VARIANTS = ('mlp1', 'mlp2', 'mlp3', 'mlp4', 'mlp5', 'mlp6', 'mlp7', 'mlp8', 'mlp9', 'mlp10', 'tiny')
BATCH, LENGTH = 32, 8


@config.arguments(VARIANTS, rate=1e-3, epochs=20)
def get_config(variant, options):
  number = 1 if variant == 'tiny' else int(variant.removeprefix('mlp'))
  base = {
    'name': f'nplm_brown_{variant}',
    'model': {'name': 'nplm', 'variant': f'mlp{number - (number % 2 == 0)}'},
    'data': {
      'dataset': 'brown_stream',
      'tokenizer': 'words',
      'min_count': 4,
      'vocabulary_splits': ('train', 'valid', 'test'),
      'batching': 'streams',
      'batch_size': BATCH,
      'length': LENGTH,
      'eval_batch_size': 1,
      'eval_length': 512,  # one stream, so that every window is complete; the length changes only the speed
    },
    'optim': {
      'optimizer': 'sgd',
      'lr': options.rate * BATCH * LENGTH,
      'schedule': 'inverse_time',
      'decrease': 1e-8 * BATCH * LENGTH,
      'weight_decay': 1e-4,
      'groups': config.DECAY_MATRICES_ONLY,
    },
    'train': {'epochs': options.epochs, 'patience': 3, 'log_every': 100},
    'evaluation': {'baselines': False, 'mixture': '' if number % 2 else 'trigram'},
    'samples': {'default_prompts': ('The', 'He said')},
  }
  return config.merge(base, config.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[0.5, 1.0, 2.0], optim__weight_decay=[1e-5, 1e-4])
