"""ULMFiT (Howard and Ruder 2018, arXiv 1801.06146) on the embedded corpus: which package a docstring belongs to.

  lmx pipeline --config=experiments/ulmfit/quickstart.py --workdir=runs/ulmfit    minutes on two cores, three stages
  lmx train --config=experiments/ulmfit/quickstart.py --workdir=runs/scratch      the classifier alone, from scratch

Variant fast is the paper's recipe at E 128, D 256; no metric is published for this corpus. The language models read
the same documents; ULMFiT is for a general corpus larger than the task's, so see classifier.py for real use.
"""

from __future__ import annotations

from experiments import config
from experiments.ulmfit import recipe

VARIANTS = ('fast', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  base = {
    'name': 'ulmfit_quickstart',
    'model': {
      'name': 'awd_lstm',
      **recipe.sizes('small'),
      **recipe.regularization('paper', classifier=True),
    },
    'objective': {'name': 'classify'},
    'data': {
      **recipe.text('embedded_topics', 'forward'),
      'batch_size': 32,
      'length': 280,
      'batching': {'name': 'documents', 'buckets': (35, 70, 140)},
    },
    'optim': {
      'optimizer': 'adam',
      'b1': 0.7,
      'b2': 0.99,
      'lr': 0.01,
      'layer_decay': 1 / 2.6,
      'unfreeze_every': 1.0,
      'schedule': 'slanted_triangular',
    },
    'train': {'epochs': 8},
    'evaluation': {'baselines': False},
    'samples': {'count': 0},
  }
  small = {
    'data': {'batch_size': 8, 'length': 64, 'batching': {'buckets': (32,)}},
    'objective': {'bptt': 16, 'head': (8,)},
    'optim': {'lr': 1e-3, 'unfreeze_every': 0.01},
  }
  return config.merge(base, *((config.tiny(), recipe.tiny(), small) if variant == 'tiny' else ()))


def stages(arg: str = '') -> list[dict]:
  """Return the stages: the language model on the corpus's text, and the classifier from it."""
  variant, _ = config.parse_arg(arg, VARIANTS)
  lm = 'tiny' if variant == 'tiny' else 'embedded,size=small,fidelity=fastai,rates=stlr,epochs=6'
  return [
    {'name': '1_lm', 'config': f'experiments/ulmfit/lm.py:{lm}', 'overrides': {'optim.lr': 0.01}},
    {
      'name': '2_classifier',
      'config': f'experiments/ulmfit/quickstart.py:{variant}',
      'overrides': {'train.init_from': '{dir}/1_lm', 'train.init_parts': ('model',)},
    },
  ]


def sweep():
  yield from config.grid(optim__lr=[3e-3, 1e-2, 3e-2])
