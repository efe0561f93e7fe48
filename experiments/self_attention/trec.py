"""Self-attention with any score on TREC-6 question classification (Li and Roth 2002).

  lmx train --config=experiments/self_attention/trec.py:score=general --workdir=runs/general \\
    --config.data.manual_dir=DIR

DIR holds train.tsv and test.tsv, or train_5500.label and TREC_10.label; without it they are downloaded. Options as in
quickstart.py. Variant base has width 128. It is newly initialised, without word vectors, and takes a minute or two on
one core. No paper compares the scores this way; measured.csv has our errors for five of them.
"""

from __future__ import annotations

from experiments import config
from experiments.self_attention import recipe

VARIANTS = ('base', 'tiny')


@config.arguments(VARIANTS, **recipe.OPTIONS)
def get_config(variant, options):
  base = {
    'data': {'dataset': 'trec', 'batching': {'name': 'documents', 'buckets': (16,)}, 'length': 40},
    'train': {'epochs': 5, 'log_every': 50},
    'evaluation': {'split': 'test'},
  }
  return config.merge(recipe.classifier('trec', options), base, recipe.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(model__score=list(recipe.SCORES), seed=[0, 1])
