"""Transformer-XL (Dai et al. 2019) in miniature: subwords of the embedded English prose, in segments with a memory.

  lmx train --config=experiments/transformer_xl/quickstart.py --workdir=runs/txl        minutes on two cores
  lmx train --config=experiments/transformer_xl/quickstart.py:alone --workdir=runs/no   the same without recurrence
  lmx train --config=experiments/transformer_xl/quickstart.py:tiny --workdir=runs/tiny  seconds: a smoke test

`fast`: 4 layers of 128, segments of 64 over a memory of 64, evaluated with one of 192; an adaptive softmax over three
clusters. Other rows of the paper's table 6: `shaw` (learned vectors of distances), `half` (the last half of a segment
counts in training); without recurrence `alone`, `alone_half` and `vaswani_half` (absolute sinusoids), evaluated in
windows that start every 16 tokens, so that a prediction sees at least 64 tokens (`vaswani_half` 48). The corpus ships
with Python, so no metric is published; measured.csv has measured ones.
"""

from __future__ import annotations

from experiments import config
from experiments.transformer_xl import recipe

# Variant -> attention length of the evaluation.
_ATTENTION = {'fast': 192, 'shaw': 192, 'half': 192, 'alone': 64, 'alone_half': 64, 'vaswani_half': 48}
VARIANTS = (*_ATTENTION, 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  row = 'ours' if variant in ('fast', 'tiny') else variant
  base = {
    'name': 'transformer_xl_quickstart',
    'model': {
      'name': 'transformer_xl',
      'variant': 'wt103_base',
      'D': 128,
      'F': 512,
      'H': 4,
      'N': 4,
      'cutoffs': (1000, 2500),
      'dropout': 0.1,
      'fidelity': 'pytorch',
    },
    'data': {
      'dataset': 'embedded',
      'tokenizer': 'bpe',
      'vocab_size': 4096,
      'batching': {'name': 'streams'},
      'batch_size': 16,
      'eval_batch_size': 4,
    },
    'optim': {
      'optimizer': 'adam',
      'lr': 1e-3,
      'clip_norm': 0.25,
      'schedule': 'cosine',
      'warmup_steps': 100,
    },
    'train': {'steps': 1500, 'eval_every': 300},
    'samples': {'count': 1},
  }
  context = recipe.ablation(row, 64, _ATTENTION.get(variant, 192), distances=128, clamp=128, stride=16)
  return config.merge(base, context, config.tiny(cutoffs=(20, 40), M=16) if variant == 'tiny' else {})


def sweep():
  yield from config.grid(model__M=[32, 64, 128], optim__lr=[5e-4, 1e-3])
