"""Self-attention with any score on the embedded corpus: which package a docstring belongs to.

  lmx train --config=experiments/self_attention/quickstart.py:score=cosine --workdir=runs/cosine   minutes on a core
  lmx train --config=experiments/self_attention/quickstart.py:tiny --workdir=runs/tiny             seconds

Options: `score=` additive, general, cosine, location, dot, scaled_dot, concat, concat_identity or cosine_plain;
`projected` maps queries and keys before the score; `window=` global, local_m or local_p. The last 128 words of a
docstring are read. Nothing is published on this corpus; the sweep is over the scores.
"""

from __future__ import annotations

from experiments import config
from experiments.self_attention import recipe

VARIANTS = ('fast', 'tiny')


@config.arguments(VARIANTS, **recipe.OPTIONS)
def get_config(variant, options):
  base = {
    'data': {
      'dataset': 'embedded_topics',
      'batching': {'name': 'documents', 'buckets': (32, 64)},
      'length': 128,
    },
    'train': {'epochs': 10, 'log_every': 20},
  }
  return config.merge(recipe.classifier('quickstart', options), base, recipe.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(model__score=list(recipe.SCORES))
