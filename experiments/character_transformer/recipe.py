"""The character Transformer (Al-Rfou et al. 2018, arXiv 1808.04444) over enwik8 and text8."""

from __future__ import annotations

from typing import Any

import ml_collections

from experiments import config

ABLATIONS: dict[str, Any] = {  # options of both experiments, rows of the paper's table
  'every_position': True,
  'every_layer': True,
  'second_target': True,
  'layer_positions': True,
  'optimizer': ('momentum', 'adam'),
}


def build(dataset: str, size: str, options: Any, *, small: bool) -> ml_collections.ConfigDict:
  """Return the config of enwik8.py or text8.py (section 3 of the paper).

  Args:
    dataset: 'enwik8' or 'text8'.
    size: the model's variant, 't12' or 't64'.
    options: chosen values of ABLATIONS, and `pod`.
    small: the tiny variant, seconds on a laptop.
  """
  momentum = {'optimizer': 'sgd', 'lr': 3e-3, 'momentum': 0.99}
  adam = {'optimizer': 'adam', 'lr': 1e-4}  # the paper's replacement of momentum SGD is unknown; the rate is ours
  base = {
    'name': f'character_transformer_{dataset}_{"tiny" if small else size}',
    'model': {
      'name': 'character_transformer',
      'variant': size,
      'positions': 'layers' if options.layer_positions else 'sinusoids',
    },
    'objective': {name: options[name] for name in ('every_position', 'every_layer', 'second_target')},
    'data': {
      'dataset': dataset,
      'tokenizer': 'bytes',
      'batching': {'name': 'windows', 'second': options.second_target},
      'batch_size': 16,
      'length': 512,
      'eval_batch_size': 64,
    },
    'optim': momentum if options.optimizer == 'momentum' else adam,
    'train': {'steps': 4_000_000, 'eval_every': 20_000, 'log_every': 200},
    'checkpoint': {'every_steps': 4000},
    'evaluation': {'baselines': False, 'stride': 1, 'batch_size': 256},
  }
  changes = {'optim': {'warmup_steps': 0}, 'evaluation': {'stride': 16, 'batch_size': 64}}
  pod = config.pod(model={'scan': True, 'remat': 'full'}) if options.pod else {}
  return config.merge(base, pod, *((config.tiny(), changes) if small else ()))
