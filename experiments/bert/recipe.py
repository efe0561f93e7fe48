"""Fine-tuning of BERT (Devlin et al. 2019, arXiv 1810.04805, appendix A.3)."""

from __future__ import annotations

from typing import Any

from experiments import config


def bilstm(variant: str) -> dict[str, int]:
  """Return the objective's fields for "a randomly initialized two-layer 768-dimensional BiLSTM" (section 5.3). We
  assume the same for section 5.1. The variant 'tiny' has 16 cells.
  """
  return {'lstm_layers': 2, 'lstm_width': 16 if variant == 'tiny' else 768}


def feature_based(variant: str, features: str) -> dict[str, Any]:
  """Return the changes that train a BiLSTM on features of a frozen model (section 5.3, table 7).

  Args:
    variant: of the experiment.
    features: `objective.features`.
  """
  groups = (('^model/', 0.0, 0.0), *config.DECAY_MATRICES_ONLY)
  return {'objective': {**bilstm(variant), 'features': features, 'frozen': True}, 'optim': {'groups': groups}}


def fine_tuning(adam: str, lr: float, epochs: float) -> dict[str, Any]:
  """Return the `optim` and `train` sections.

  Args:
    adam: 'released' (without bias correction, as google-research/bert) or 'corrected'.
    lr: highest learning rate, after a tenth of the updates.
    epochs: number of training epochs.
  """
  released = adam == 'released'
  optim = {
    'optimizer': 'bert_adam' if released else 'adamw',
    'eps': 1e-6,
    'lr': lr,
    'weight_decay': 0.01,
    'clip_norm': 1.0,
    'schedule': 'linear',
    'schedule_origin': 'from_zero' if released else 'after_warmup',
    'warmup_fraction': 0.1,
    'groups': config.DECAY_MATRICES_ONLY,
  }
  return {'optim': optim, 'train': {'epochs': epochs, 'init_parts': ('model',), 'like_init': True}}
