"""Parts of ESIM's experiments (Chen et al. 2017; Peters et al. 2018): training, with or without ELMo vectors."""

from __future__ import annotations

from typing import Any

from experiments import config
from experiments.elmo import recipe as elmo_recipe

# Peters et al. 2018, appendix: rate, gradient norm, batches of 32, ReLU. Epochs and patience are those of
# allennlp-models, training_config/pair_classification/esim.jsonnet, lines 88 and 90, and esim_elmo.jsonnet, 95 and 97;
# both clip at 10 (lines 89 and 96), and esim.jsonnet has batches of 64 (line 76) and lower-cases words (line 7).
# Accuracy selects the best checkpoint and halves the rate (lines 87 and 91 to 96); the threshold is the default of
# allennlp/training/learning_rate_schedulers/pytorch_lr_schedulers.py, line 211.
PETERS = {
  'objective': {'activation': 'relu'},
  'optim': {'lr': 4e-4, 'clip_norm': 5.0, 'threshold': 1e-4},
  'train': {'epochs': 75, 'patience': 5},
}
# Peters et al. 2018, appendix: L2 on matrices is for the larger model with ELMo. The model without it has none, neither
# there nor in esim.jsonnet, nor in Chen et al.'s release (scripts/ESIM/train.py, line 15: decay_c 0).
ELMO_L2 = 1e-4
# lukecq1231/nli, scripts/ESIM/train.py, lines 13 to 20: patience 7, no L2, gradient norm 10, rate 4e-4, batches of 32;
# main.py, line 511: a head with tanh; lines 909 to 930: a validation with a higher error than the least so far halves
# the rate and restores the parameters of the best one, which of equal ones is the last; more than 7 halvings end the
# run.
CHEN = {
  'model': {'locked': False},
  'optim': {'lr': 4e-4, 'clip_norm': 10.0, 'restore_best': True, 'max_reductions': 7},
  'train': {'epochs': 75, 'ties': 'later'},
}
# The esim model's head, for other objectives.
HEAD = {'pooling': 'pooled', 'bptt': 0, 'normalize': False, 'dropout_pooled': 0.5, 'dropout_head': 0.5}
_ONE_LENGTH: dict[str, Any] = {'buckets': ()}
_MATRICES = r'/(input|recurrent|kernel)$'


def settings(elmo: str, bilm: str, *, fine_tune: bool = False, fixed: bool = False) -> dict[str, Any]:
  """Return the settings of the model, its data and optimizer.

  Args:
    elmo: place of the ELMo vectors, 'none', 'input', 'output' or 'both'.
    bilm: variant of models/elmo.py of the run in train.init_from.
    fine_tune: train the biLM too, at 1% of the learning rate, instead of freezing it.
    fixed: freeze the word embeddings, as Peters et al. 2018 freeze data.vectors.
  """
  task = config.merge({'optim': {'groups': ()}}, elmo_recipe.task(bilm, elmo, fine_tune)).to_dict()
  bilm_groups = task['optim']['groups'][:-1]
  held = (elmo_recipe.FIXED_WORDS,) if fixed else ()
  rest = ((_MATRICES, 1.0, 1.0), ('.*', 1.0, 0.0))
  base = {
    'model': {'name': 'esim'},
    'objective': HEAD,
    'data': {
      'tokenizer': 'words',
      'batching': {'name': 'texts', 'form': 'separate', 'buckets': (8, 16, 24, 32, 48, 64)},
      'batch_size': 32,
      'length': 100,
    },
    'optim': {
      'optimizer': 'adam',
      'weight_decay': 0.0 if elmo == 'none' else ELMO_L2,
      'schedule': 'plateau',
      'patience': 0,
      'factor': 0.5,
    },
    'train': {'best_by': 'headline', 'log_every': 50},
    'evaluation': {'baselines': False},
  }
  return config.merge(base, task, {'optim': {'groups': (*bilm_groups, *held, *rest)}}).to_dict()


def tiny(elmo: str) -> dict[str, Any]:
  """Return the tiny variant: text pairs from the embedded corpus, with ELMo vectors at `elmo`."""
  changes = {
    'objective': {'head': (16,), 'metric': 'accuracy', 'positive': ''},
    'data': {
      'dataset': 'embedded_pairs',
      'batch_size': 16,
      'length': 40,
      'batching': {'buckets': ()},
    },
    'optim': {
      'lr': 4e-3,
      'weight_decay': ELMO_L2,
      'groups': ((_MATRICES, 1.0, 1.0), ('.*', 1.0, 0.0)),
      'warmup_steps': 0,
    },
    'train': {'epochs': 0.0},
    'evaluation': {'split': 'test'},
  }
  return config.merge(elmo_recipe.tiny(elmo), changes).to_dict()
