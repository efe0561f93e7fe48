"""Settings of semantic role labelling that both data sets share (He et al. 2017; Peters et al. 2018, appendix A)."""

from __future__ import annotations

from typing import Any

from experiments import config
from experiments.elmo import recipe

VARIANTS = ('base', 'elmo', 'tiny')
arguments = config.arguments(
  VARIANTS,
  place=('', 'input', 'output', 'both'),
  bilm=('original', 'medium', 'small', 'mini'),
  mix=('all', 'last'),
  mix_l2=0.001,
  fine_tune=False,
)


def settings(
  variant: str, options: Any, dataset: str, length: int, reduction: str, optim: dict[str, Any], train: dict[str, Any]
) -> Any:
  """Return the config of a data set.

  Args:
    variant: one of VARIANTS.
    options: options from `arguments`.
    dataset: name of the data set.
    length: at least the longest sentence in words.
    reduction: of the loss, which differs between the papers.
    optim: gradient clipping, which does too.
    train: training settings.
  """
  place = recipe.place(variant, options.place, 'input')
  mix = {'mix': options.mix, 'mix_l2': options.mix_l2 if options.mix == 'all' else 0.0}
  base = {
    'name': f'{dataset}_{variant}',
    'model': {'name': 'srl_lstm', **(mix if place != 'none' else {})},
    'objective': {'name': 'tag', 'reduction': reduction},
    'data': {
      'dataset': dataset,
      'tokenizer': 'words',
      'lower_case': place == 'none',  # as GloVe; the biLM reads case
      'batching': {'name': 'tagged', 'buckets': (16, 32, 48, 64, 96)},
      'batch_size': 80,
      'length': length,
    },
    'optim': {'optimizer': 'adadelta', 'lr': 1.0, 'rms_decay': 0.95, **optim},
    'train': {'epochs': 500, 'best_by': 'headline', 'log_every': 50, **train},
  }
  size = recipe.task(options.bilm, place, options.fine_tune)
  one_length = {'length': 24, 'batching': {'buckets': ()}}  # one compilation
  roles = {'dataset': 'embedded_roles', **one_length}
  ours = {'objective': {'reduction': 'tokens'}}  # as measured in experiments/tables
  tiny = config.merge(recipe.tiny(place, spelled=True), {'data': roles, 'train': {'epochs': 0}}, ours)
  return config.merge(base, size, tiny.to_dict() if variant == 'tiny' else {})
