"""Transformer-XL (Dai et al. 2019, arXiv 1901.02860) over the bytes of enwik8.

  lmx train --config=experiments/transformer_xl/enwik8.py:12l --workdir=runs/txl-enwik8

enwik8 (the first 10^8 bytes of Wikipedia, Hutter; 90 / 5 / 5 million) is downloaded, or read from
--config.data.manual_dir=DIR.

  variant  parameters     test bits per character (table 2)  hardware and time
  12l      41 million     1.06                               4 GPUs, days
  18l      88 million     1.03                               not stated; sizes here are ours, the paper prints 88M alone
  24l      277 million    0.99                               32 TPU cores, days

Released recipe: Adam at 2.5e-4, cosine, gradient norm at most 0.25, 400,000 updates of 24 rows of 512 over a memory of
512 (24l: 64 rows of 768 over 768, 4,000 updates of warm-up). Evaluated in windows of 80 with a memory of 2,100 and
distances clamped at 820 (24l: 128, 3,800, 1,000), each position attending equally far back. The paper's text gives 784
as the training length of 24l, its script 768. The vocabulary here has all bytes; the paper's has the 204 that occur.
"""

from __future__ import annotations

from experiments import config
from experiments.transformer_xl import recipe

VARIANTS = ('12l', '18l', '24l', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  size = '12l' if variant == 'tiny' else variant
  return recipe.characters('enwik8', size, 'bytes', small=variant == 'tiny')


def sweep():
  yield from config.grid(optim__lr=[1.5e-4, 2.5e-4, 4e-4], model__dropout=[0.1, 0.15])
