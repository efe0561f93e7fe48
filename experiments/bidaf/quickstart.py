"""Bidirectional attention flow (Seo et al. 2017, arXiv 1611.01603; Clark and Gardner 2018, arXiv 1710.10723) on
synthetic questions from the embedded English prose: the missing words of a sentence in a passage, or no answer.

  lmx train --config=experiments/bidaf/quickstart.py --workdir=runs/bidaf        about 10 minutes on two cores
  lmx train --config=experiments/bidaf/quickstart.py:tiny --workdir=runs/tiny    seconds: a smoke test

`fast` is the model of Clark and Gardner with GRUs of 48 cells, without ELMo. There are no published metrics for these
questions.
"""

from __future__ import annotations

from experiments import config
from experiments.bidaf import recipe
from experiments.elmo import recipe as elmo

VARIANTS = ('fast', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  base = {
    'name': 'bidaf_quickstart',
    'model': {'name': 'bidaf'},
    'objective': {'name': 'span'},
    'data': {
      **recipe.data('embedded_questions', 24),
      'length': 128,
      'batching': {'name': 'questions', 'form': 'separate', 'buckets': (64, 80, 96), 'question_length': 40},
      'batch_size': 32,
    },
    'optim': {'optimizer': 'adam', 'lr': 2e-3, 'clip_norm': 5.0},
    'train': {'epochs': 12, 'log_every': 20},
    'evaluation': recipe.ANSWERS,
  }
  fast = {'model': {'E': 64, 'D': 48, 'char_filters': ((5, 32),)}}
  tiny = config.merge(elmo.tiny('none', spelled=True), recipe.tiny())
  return config.merge(base, tiny.to_dict() if variant == 'tiny' else fast)


def sweep():
  yield from config.grid(optim__lr=[1e-3, 2e-3, 4e-3])
