"""Settings of semantic role labelling that both data sets share (He et al. 2017; Peters et al. 2018, appendix A)."""

from __future__ import annotations

from typing import Any

from experiments import config
from experiments.elmo import recipe

VARIANTS = ('base', 'elmo', 'tiny')
PLACES = ('input', 'output', 'both')
SIZES = ('original', 'medium', 'small', 'mini')


def settings(arg: str, dataset: str, length: int, optim: dict[str, Any], train: dict[str, Any]):
  """Return the config of a data set.

  Args:
    arg: the argument of the experiment file.
    dataset: name of the data set.
    length: words of the longest sentence, at least.
    optim: clipping of the gradient, which the papers do differently.
    train: settings of the training.
  """
  variant, options = config.parse_arg(
    arg, VARIANTS, place=PLACES, bilm=SIZES, mix=('all', 'last'), mix_l2=0.001, fine_tune=False
  )
  elmo = variant == 'elmo'
  mix = {'mix': options.mix, 'mix_l2': options.mix_l2 if options.mix == 'all' else 0.0} if elmo else {}
  base = {
    'name': f'{dataset}_{variant}',
    'model': {'name': 'srl_lstm', **mix},
    'objective': {'name': 'tag'},
    'data': {
      'dataset': dataset,
      'tokenizer': 'words',
      'lower_case': variant == 'base',  # as GloVe; the biLM reads case
      'characters': 0 if variant == 'base' else 24 if options.bilm == 'mini' else 50,
      'batching': {'name': 'tagged', 'buckets': (16, 32, 48, 64, 96)},
      'batch_size': 80,
      'length': length,
    },
    'optim': {'optimizer': 'adadelta', 'lr': 1.0, 'rms_decay': 0.95, **optim},
    'train': {'epochs': 500, 'log_every': 50, **train},
  }
  size = recipe.task(options.bilm, options.place if elmo else 'none', options.fine_tune)
  roles = {'dataset': 'embedded_roles', 'length': 24, 'batching': {'buckets': ()}}  # one length: one compilation
  tiny = config.merge(config.tiny(), {'data': roles, 'train': {'epochs': 0}})
  return config.merge(base, size, tiny.to_dict() if variant == 'tiny' else {})
