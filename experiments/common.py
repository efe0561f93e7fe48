"""Errors with the new names for experiment files of an earlier lmx that use moved names."""

from __future__ import annotations

from typing import Any

_MOVED = {  # name here: name below experiments
  'parse_arg': 'config.parse_arg',
  'grid': 'config.grid',
  'tiny': 'config.tiny',
  'DECAY_MATRICES_ONLY': 'config.DECAY_MATRICES_ONLY',
  'config': 'config.merge',
  'ANY_LENGTH': 'fine_tuning.ANY_LENGTH',
  'LINEAR_HEAD': 'fine_tuning.LINEAR_HEAD',
  'TESTED': 'fine_tuning.TESTED',
  'measured_split': 'fine_tuning.measured_split',
  'tiny_fine_tuning': 'fine_tuning.tiny',
  'GLUE': 'glue.TASKS',
  'CHOICES': 'glue.CHOICES',
  'task': 'glue.task',
  'tiny_task': 'glue.tiny',
  'gpt_dropout': 'gpt.recipe.dropout',
  'GPT_MARKS': 'gpt.recipe.SPECIAL_TOKENS',
  'bert_fine_tuning': 'bert.recipe.fine_tuning',
  'XLNET_HEAD': 'xlnet.recipe.HEAD',
  'XLNET_PIECES': 'xlnet.recipe.SUBWORDS',
  'xlnet_adam': 'xlnet.recipe.optimizer',
  'xlnet_fine_tuning': 'xlnet.recipe.fine_tuning',
  'xlnet_tiny': 'xlnet.recipe.tiny',
  'AWD_LSTM': 'awd_lstm.recipe.BASE',
  'word2vec_rate': 'word2vec.recipe.sgd',
  'ELMO_ADAGRAD': 'elmo.recipe.ADAGRAD',
  'OWN_WORDS': 'elmo.recipe.OWN_WORDS',
  'elmo_task': 'elmo.recipe.task',
  'TRANSFORMER_ADAM': 'transformer.recipe.ADAM',
  'CHARACTER_ABLATIONS': 'character_transformer.recipe.ABLATIONS',
  'character_transformer': 'character_transformer.recipe.build',
  'transformer_xl_characters': 'transformer_xl.recipe.characters',
  'ntm_tiny': 'ntm.recipe.tiny',
  'ulmfit_size': 'ulmfit.recipe.sizes',
  'ulmfit_regularization': 'ulmfit.recipe.regularization',
  'ulmfit_windows': 'ulmfit.recipe.windows',
  'ULMFIT_DATA': 'ulmfit.recipe.DATA',
  'ulmfit_text': 'ulmfit.recipe.text',
  'ulmfit_tiny': 'ulmfit.recipe.tiny',
}


def __getattr__(name: str) -> Any:
  if name not in _MOVED:
    raise AttributeError(f'module "experiments.common" has no attribute "{name}"')
  module, _, new = _MOVED[name].rpartition('.')
  package, _, module = f'experiments.{module}'.rpartition('.')
  raise ValueError(f'experiments.common.{name}: moved; use `from {package} import {module}` and `{module}.{new}`')
