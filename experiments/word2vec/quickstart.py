"""word2vec (Mikolov et al. 2013, arXiv 1301.3781 and 1310.4546) on the embedded English prose.

  lmx train --config=experiments/word2vec/quickstart.py --workdir=runs/vectors          about 20 seconds on two cores
  lmx train --config=experiments/word2vec/quickstart.py:cbow --workdir=runs/cbow
  lmx train --config=experiments/word2vec/quickstart.py:tiny --workdir=runs/tiny        seconds: a smoke test
  lmx vectors --workdir=runs/vectors --nearest list,error

The corpus ships with Python (a few hundred thousand words), so no metric is published and the papers' analogies are out
of reach. The nearest words that a run prints at its end make sense (list: tuple, sequence, items ...). Option after the
variant: `:skipgram,output=hierarchical` (negative, hierarchical).
"""

from __future__ import annotations

from experiments import config
from experiments.word2vec import recipe

VARIANTS = ('skipgram', 'cbow', 'tiny')


@config.arguments(VARIANTS, output=('negative', 'hierarchical'))
def get_config(variant, options):
  base = {
    'name': f'word2vec_quickstart_{variant}',
    'model': {
      'name': 'word2vec',
      'variant': 'cbow' if variant == 'cbow' else 'skipgram',
      'D': 100,
    },
    'data': {
      'dataset': 'embedded',
      'tokenizer': 'words',
      'lower_case': True,
      'min_count': 5,
      'batching': {
        'name': 'skipgrams',
        'words_only': True,
        'chunk': 32,
        'sample': 1e-3,
        'negative': 5 if options.output == 'negative' else 0,
      },
      'batch_size': 4,
      'length': 1024,
    },
    'optim': recipe.sgd(variant),
    'train': {'epochs': 10},
    'evaluation': {'which': 'last'},
    'samples': {'default_prompts': ('list', 'error', 'returns', 'file', 'class', 'integer'), 'count': 1},
  }
  tiny = (config.tiny(), {'data': {'batching': {'chunk': 16}}, 'optim': {'warmup_steps': 0}})
  return config.merge(base, *(tiny if variant == 'tiny' else ()))


def sweep():
  yield from config.grid(data__batching__window=[3, 5, 10], data__batching__sample=[1e-3, 1e-4])
