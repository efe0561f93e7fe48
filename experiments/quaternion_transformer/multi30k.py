"""Quaternion Transformer (Tay et al. 2019) on Multi30k, with sizes and recipe of experiments/transformer/multi30k.py.

  lmx train --config=experiments/quaternion_transformer/multi30k.py:full --workdir=runs/m --config.data.manual_dir=DIR

29,000 captions, English to German, or with --config.data.target=fr to French; without manual_dir the files are
downloaded. Variants: `full` (every matrix is of quaternions), `partial` (those of attention) and `none` (the same model
without any). The paper has no figure for this set; the ordinary Transformer-Tiny has 41.0 in Wu et al. 2021. Norms
stand before each part, as in tensor2tensor, where that model has them after. 3 hours on two cores.
"""

from __future__ import annotations

from experiments import common

VARIANTS = ('full', 'partial', 'none', 'tiny')
_EPOCH = 62  # batches


def get_config(arg: str = ''):
  variant, _ = common.parse_arg(arg, VARIANTS)
  base = {
    'name': f'quaternion_transformer_multi30k_{variant}',
    'model': {
      'name': 'quaternion_transformer', 'variant': {'none': 'base', 'tiny': 'full'}.get(variant, variant),
      'D': 128, 'F': 256, 'H': 4, 'encoder_layers': 4, 'decoder_layers': 4, 'dropout': 0.3,
    },
    'objective': {'smoothing': 0.1},
    'data': {
      'dataset': 'multi30k',
      'source': 'en',
      'target': 'de',
      'tokenizer': 'bpe',
      'lower_case': True,
      'vocab_size': 10_000,
      'batching': {'name': 'translation', 'tokens': 8192, 'buckets': (10, 12, 14, 16, 18, 20, 24, 32)},
      'length': 64,
    },
    'optim': {**common.TRANSFORMER_ADAM, 'eps': 1e-8, 'lr': 5e-3, 'warmup_steps': 2000},
    'train': {'steps': 8000, 'eval_every': _EPOCH, 'patience': 10, 'log_every': 50},
    'checkpoint': {'every_steps': _EPOCH, 'keep_last': 10},
    'evaluation': {'which': 'average', 'average': 10, 'beam': 5, 'alpha': 1.0, 'penalty': 'power', 'baselines': False},
  }  # fmt: skip
  small = common.tiny_translator(D=32, F=48, encoder_layers=1, decoder_layers=1)
  return common.config(base, small if variant == 'tiny' else {})


def sweep():
  yield from common.grid(optim__lr=[2e-3, 5e-3])
