"""Parts of BCN's experiments (McCann et al. 2017; Peters et al. 2018): sizes, head and training."""

from __future__ import annotations

from typing import Any

from experiments import config
from experiments.elmo import recipe as elmo

OPTIONS: dict[str, Any] = {
  'bilm': ('original', 'medium', 'small', 'mini'),
  'fine_tune': False,
  'classifier': ('relu', 'maxout'),
  'fixed': False,
}
SMALL = {**elmo.OWN_WORDS, 'F': 128, 'D': 128}  # of tasks with few rows and no pre-trained word vectors
# The head of the bcn model, for other objectives.
HEAD = {
  'pooling': 'pooled',
  'bptt': 0,
  'head': (1200, 600),
  'normalize': False,
  'dropout_pooled': 0.1,
  'dropout_head': 0.2,
}


def settings(place: str, options: Any) -> dict[str, Any]:
  """Return the settings that all tasks share.

  Args:
    place: place of the ELMo vectors, 'none', 'input', 'output' or 'both'.
    options: values of OPTIONS.
  """
  base = {
    'model': {'name': 'bcn', **({'mix_l2': 0.001} if place != 'none' else {})},  # Peters et al. 2018, appendix
    'objective': {'activation': 'maxout', 'normalize': True} if options.classifier == 'maxout' else {},
    'data': {'tokenizer': 'words', 'characters': 50},
    'optim': {'optimizer': 'adam', 'lr': 1e-3, 'clip_norm': 5.0},
    'train': {'epochs': 40, 'patience': 5, 'log_every': 50},
  }
  size = elmo.task(options.bilm, place, options.fine_tune)
  return config.merge(base, elmo.fix_words(size) if options.fixed else size).to_dict()
