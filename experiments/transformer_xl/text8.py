"""Transformer-XL (Dai et al. 2019, arXiv 1901.02860) over the characters of text8.

  lmx train --config=experiments/transformer_xl/text8.py:24l --workdir=runs/txl-text8

text8 (10^8 characters of Wikipedia's text: a to z and the space; 90 / 5 / 5 million) is downloaded, or read from
--config.data.manual_dir=DIR.

  variant  parameters     test bits per character (table 3)  hardware and time
  24l      277 million    1.08                               32 TPU cores, days

Settings equal enwik8's, without tuning (section 4.1); see experiments/transformer_xl/enwik8.py.
"""

from __future__ import annotations

from experiments import config
from experiments.transformer_xl import recipe

VARIANTS = ('24l', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  return recipe.characters('text8', '24l', 'characters', small=variant == 'tiny')


def sweep():
  yield from config.grid(optim__lr=[1.5e-4, 2.5e-4, 4e-4], model__dropout=[0.1, 0.15])
