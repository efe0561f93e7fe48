"""Quaternion Transformer (Tay et al. 2019) on Multi30k, with sizes and recipe of experiments/transformer/multi30k.py.

  lmx train --config=experiments/quaternion_transformer/multi30k.py:full --workdir=runs/m --config.data.manual_dir=DIR

29,000 captions, English to German, or with --config.data.target=fr to French; without manual_dir the files are
downloaded. Variants: `full` (all matrices are quaternion), `partial` (only attention's) and `none` (the real-valued
model). The paper has no metric for this set; the real-valued Transformer-Tiny has 41.0 in Wu et al. 2021. Layers are
pre-norm, as in tensor2tensor; Transformer-Tiny's are post-norm. 3 hours on two cores.
"""

from __future__ import annotations

from experiments import config, translation

VARIANTS = ('full', 'partial', 'none', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  base = {
    'name': f'quaternion_transformer_multi30k_{variant}',
    'model': {
      'name': 'quaternion_transformer',
      'variant': {'none': 'base', 'tiny': 'full'}.get(variant, variant),
      'D': 128,
      'F': 256,
      'H': 4,
      'encoder_layers': 4,
      'decoder_layers': 4,
      'dropout': 0.3,
    },
  }
  tiny = translation.tiny(D=32, F=48, encoder_layers=1, decoder_layers=1) if variant == 'tiny' else {}
  return config.merge(translation.transformer_tiny(), base, tiny)


def sweep():
  yield from config.grid(optim__lr=[2e-3, 5e-3])
