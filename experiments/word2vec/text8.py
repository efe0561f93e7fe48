"""word2vec on text8, the script demo-word.sh that was released with word2vec.c.

  lmx train --config=experiments/word2vec/text8.py --workdir=runs/text8
  lmx vectors --workdir=runs/text8 --analogies questions-words.txt

text8 (the first 10^8 characters of cleaned Wikipedia, 17 million words) is downloaded, or read from
--config.data.manual_dir=DIR. The `demo`: CBOW, 200 wide, window 8, 25 noise words, subsampling 1e-4, 15 epochs,
learning rate 0.05 decaying linearly to 1e-4 of it, words seen at least five times. Its users report about 53% of the
analogies among the 30,000 most frequent words (piskvorky/gensim issue 386; no paper prints it).

  variant       differences
  demo          as released
  skipgram      skip-gram, rate 0.025
  hierarchical  hierarchical softmax instead of noise words

The released tool trains all of text8; here 5% at its end are held out for validation and for test. Hardware: two cores,
about ten minutes for CBOW with 25 noise words.
"""

from __future__ import annotations

from experiments import config
from experiments.word2vec import recipe

VARIANTS = ('demo', 'skipgram', 'hierarchical', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  skipgram = variant == 'skipgram'
  base = {
    'name': f'word2vec_text8_{variant}',
    'model': {
      'name': 'word2vec',
      'variant': 'skipgram' if skipgram else 'cbow',
      'D': 200,
    },
    'data': {
      'dataset': 'text8',
      'tokenizer': 'words',
      'min_count': 5,
      'batching': {
        'name': 'skipgrams',
        'chunk': 32,
        'window': 8,
        'sample': 1e-4,
        'negative': 0 if variant == 'hierarchical' else 25,
      },
      'batch_size': 8,
      'length': 1024,
    },
    'optim': recipe.sgd('skipgram' if skipgram else 'cbow'),
    'train': {'epochs': 15, 'log_every': 100},
    'evaluation': {'which': 'last'},
    'samples': {'default_prompts': ('france', 'king', 'three', 'computer'), 'count': 1},
  }
  tiny = (config.tiny(), {'data': {'batching': {'chunk': 16}}, 'optim': {'warmup_steps': 0}})
  return config.merge(base, *(tiny if variant == 'tiny' else ()))


def sweep():
  yield from config.grid(seed=[0, 1, 2], data__batching__chunk=[16, 32])
