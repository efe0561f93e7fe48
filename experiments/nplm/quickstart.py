"""Neural probabilistic language model (Bengio et al. 2003) on the embedded English prose, word by word.

  lmx train --config=experiments/nplm/quickstart.py --workdir=runs/nplm           about a minute on two cores
  lmx train --config=experiments/nplm/quickstart.py:tiny --workdir=runs/tiny      seconds: a smoke test

The corpus ships with Python, so no metric is published. At the end the model is evaluated by itself, mixed with
the interpolated trigram as in the paper, and against an interpolated Kneser-Ney model on the same tokens. Adam replaces
the paper's gradient ascent, which needs many more epochs; experiments/nplm/brown.py has the paper's own recipe. Option
after the variant: `:fast,direct=true` for direct connections.
"""

from __future__ import annotations

from experiments import config

VARIANTS = ('fast', 'tiny')


@config.arguments(VARIANTS, direct=False)
def get_config(variant, options):
  base = {
    'name': 'nplm_quickstart',
    'model': {'name': 'nplm', 'variant': 'mlp9', 'm': 60, 'h': 200, 'direct': options.direct},
    'data': {
      'dataset': 'embedded',
      'tokenizer': 'words',
      'min_count': 4,
      'batching': 'streams',
      'batch_size': 64,
      'length': 8,
      'eval_batch_size': 1,
      'eval_length': 512,
    },
    'optim': {
      'optimizer': 'adamw',
      'lr': 2e-3,
      'weight_decay': 0.1,
      'groups': config.DECAY_MATRICES_ONLY,
      'schedule': 'cosine',
      'warmup_steps': 100,
    },
    'train': {'epochs': 4, 'log_every': 50},
    'evaluation': {'mixture': 'trigram'},
    'samples': {'default_prompts': ('', 'The method returns'), 'count': 1},
  }
  small = config.tiny(m=4, h=16)
  return config.merge(base, small if variant == 'tiny' else {})


def sweep():
  yield from config.grid(model__n=[3, 5, 8], model__h=[100, 200])
