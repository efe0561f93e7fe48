"""word2vec on a large news text, the tables of both papers (Mikolov et al. 2013, arXiv 1301.3781 and 1310.4546).

  lmx train --config=experiments/word2vec/news.py:neg5 --workdir=runs/neg5 --config.data.manual_dir=news.txt
  lmx vectors --workdir=runs/neg5 --analogies questions-words.txt --restrict 1000000

The papers' Google News text was never released, so a row can only be approximated with another text of that size: plain
text, one sentence per line (`text_files`), such as the 1 billion word benchmark. Metrics are analogy accuracies in
percent, over the whole vocabulary (`lmx vectors`; results.json has the loss).

  variant       semantic  syntactic  total  source
  cbow_300      15.5      53.1       36.1   2013a table 4: 783M words, 3 epochs, 4 words on either side
  skipgram_300  50.0      55.9       53.3   2013a table 4: 783M words, 3 epochs, window 10
  neg5          54        63         59     2013b table 1: 1B words, 692,000 words of vocabulary, window 5
  neg15         58        63         61     2013b table 1
  hs            40        53         47     2013b table 1
  neg5, neg15, hs with `,sample=1e-5`: 60, 61, 55 in all

2013a trains with hierarchical softmax; its learning rate, 0.025 with linear decay to 0, is used for all. Phrases
(2013b, section 4): `lmx phrases --input=news.txt --output=phrases.txt` first. Hardware: two cores, hours for a billion
words.
"""

from __future__ import annotations

from experiments import config
from experiments.word2vec import recipe

VARIANTS = ('neg5', 'neg15', 'hs', 'cbow_300', 'skipgram_300', 'tiny')
# Architecture, noise words (0: hierarchical softmax), window, epochs, rows of 32 centres. Frequent words that are not
# thinned out and the top of the tree are in most pairs of an update: the more pairs a centre has, the fewer of it.
RECIPES = {
  'neg5': ('skipgram', 5, 5, 1, 4),
  'neg15': ('skipgram', 15, 5, 1, 4),
  'hs': ('skipgram', 0, 5, 1, 4),
  'cbow_300': ('cbow', 0, 4, 3, 8),
  'skipgram_300': ('skipgram', 0, 10, 3, 2),
}


@config.arguments(VARIANTS, sample=0.0)
def get_config(variant, options):
  architecture, negative, window, epochs, rows = RECIPES['neg5' if variant == 'tiny' else variant]
  base = {
    'name': f'word2vec_news_{variant}',
    'model': {'name': 'word2vec', 'variant': architecture, 'D': 300},
    'data': {
      'dataset': 'text_files',
      'tokenizer': 'words',
      'min_count': 5,
      'batching': {
        'name': 'skipgrams',
        'words_only': True,
        'chunk': 32,
        'window': window,
        'sample': options.sample,
        'negative': negative,
      },
      'batch_size': rows,
      'length': 1024,
    },
    'optim': recipe.sgd('skipgram'),
    'train': {'epochs': epochs, 'log_every': 100},
    'evaluation': {'which': 'last'},
    'samples': {'default_prompts': ('france', 'king', 'three', 'computer'), 'count': 1},
  }
  tiny = (config.tiny(), {'data': {'batching': {'chunk': 16}}, 'optim': {'warmup_steps': 0}})
  return config.merge(base, *(tiny if variant == 'tiny' else ()))


def sweep():
  yield from config.grid(data__batching__sample=[0.0, 1e-3, 1e-5])
