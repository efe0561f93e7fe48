"""ELMo's bidirectional language model (Peters et al. 2018, arXiv 1802.05365) on the embedded English prose.

  lmx train --config=experiments/elmo/quickstart.py --workdir=runs/elmo            about 10 minutes on two cores
  lmx train --config=experiments/elmo/quickstart.py:tiny --workdir=runs/tiny       seconds: a smoke test
  lmx embed --workdir=runs/elmo --input=FILE --output=vectors.npz                  then: all layers of each line's words

`fast` is the size `mini` on a corpus of half a million words that ships with Python, so no metric is published.
Perplexities use the full softmax over a vocabulary of 8,000; the sampled training loss is lower.
"""

from __future__ import annotations

from experiments import config
from experiments.elmo import recipe

VARIANTS = ('fast', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  base = {
    'name': 'elmo_quickstart',
    'model': {'name': 'elmo', 'variant': 'mini'},
    'objective': {'samples': 1024},
    'data': {
      'dataset': 'embedded',
      'tokenizer': 'words',
      'vocab_size': 8000,
      'characters': 24,
      'batching': 'both_ways',
      'batch_size': 32,
      'length': 20,
    },
    'optim': recipe.ADAGRAD,
    'train': {'epochs': 4},
  }
  tiny = config.merge(config.tiny(), {'objective': {'samples': 50}, 'data': {'vocab_size': 400}})
  return config.merge(base, tiny.to_dict() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[0.1, 0.2, 0.4])
