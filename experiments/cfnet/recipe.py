"""Shared parts of the CFNet experiments (Zhang et al. 2019): generated scenes, released recipe, tiny variant."""

from __future__ import annotations

from typing import Any


def scenes() -> dict[str, Any]:
  """Return the settings of generated scenes: model `mini` on pictures of 96 pixels, in minutes on two cores."""
  return {
    'model': {'name': 'cfnet', 'variant': 'mini', 'stem_width': 16, 'auxiliary_width': 0},
    'objective': {'auxiliary': 0.0, 'distances': (0.0, 24.0, 32.0)},
    'data': {
      'dataset': 'generated',
      'tokenizer': 'bytes',
      'batching': {'name': 'scenes'},
      'batch_size': 8,
      'eval_batch_size': 50,
      'length': 96,
    },
    'optim': {'optimizer': 'sgd', 'lr': 0.03, 'momentum': 0.9, 'weight_decay': 1e-4, 'schedule': 'poly'},
    'train': {'steps': 400, 'eval_every': 200, 'log_every': 20},
    'evaluation': {'baselines': False},
    'samples': {'count': 4},
  }


def released(variant: str, lr: float, epochs: float) -> dict[str, Any]:
  """Return the released settings for image files (PyTorch-Encoding, experiments/segmentation/train.py).

  Crops of 480 of images whose longer side is 0.5 to 2 times 520, SGD with momentum 0.9 and weight decay 1e-4, learning
  rate times (1 - t/T)^0.9, ten times as high for the heads; auxiliary loss 0.2. The best checkpoint has the highest
  mean of pixel accuracy and mIoU on the validation split (lines 249 to 252).

  Args:
    variant: variant of the model.
    lr: learning rate of the backbone for a batch of 16.
    epochs: number of epochs.
  """
  return {
    'model': {'name': 'cfnet', 'variant': variant},
    'data': {
      'dataset': 'segmentation_files',
      'batching': {'name': 'images'},
      'batch_size': 16,
      'length': 480,
      'workers': 4,
    },
    'optim': {
      'optimizer': 'sgd',
      'momentum': 0.9,
      'lr': lr,
      'groups': (('^model/(stem|layer_)', 1.0, 1.0), ('.*', 10.0, 1.0)),
      'weight_decay': 1e-4,
      'schedule': 'poly',
    },
    'train': {'epochs': epochs, 'best_by': 'pixel_accuracy_miou'},
    'evaluation': {'baselines': False},
    'samples': {'count': 4},
  }


def windows() -> dict[str, Any]:
  """Return the settings of the released final evaluation (PyTorch-Encoding, experiments/segmentation/test.py).

  Images and masks keep their pixels. Windows of the crop, also mirrored, of images whose longer side is 0.5 to 1.75
  times the base size (lines 157-158, and encoding/models/sseg/base.py, lines 111-219).
  """
  return {
    'objective': {'scales': (0.5, 0.75, 1.0, 1.25, 1.5, 1.75), 'flip': True},
    'evaluation': {'images': 'windows', 'batch_size': 4},
  }


def tiny() -> dict[str, Any]:
  """Return the changes of the tiny variant, in place of `config.tiny`."""
  return {
    'model': {'variant': 'tiny', 'stem_width': 6, 'auxiliary_width': 8},
    'objective': {'auxiliary': 0.2, 'distances': (0.0, 8.0)},
    'data': {
      'batching': {'name': 'scenes', 'size': 8, 'eval_examples': 6},
      'dataset': 'generated',
      'tokenizer': 'bytes',
      'batch_size': 4,
      'eval_batch_size': 0,
      'length': 32,
      'eval_length': 0,
    },
    'train': {'steps': 20, 'epochs': 0.0, 'eval_every': 10, 'log_every': 5},
    'optim': {'warmup_steps': 0},
    'samples': {'count': 2},
  }
