"""Character Transformer (Al-Rfou et al. 2018, arXiv 1808.04444, section 3) over the characters of text8.

  lmx train --config=experiments/character_transformer/text8.py:t64 --workdir=runs/t64-text8

text8 (10^8 characters of Wikipedia's text: a to z and the space; 90 / 5 / 5 million) is downloaded, or read from
--config.data.manual_dir=DIR. As in the paper all 256 bytes are predicted.

  variant  parameters   test bits per character
  t12      44 million   1.18
  t64      235 million  1.13

Recipe, evaluation, hardware and time as for enwik8, see experiments/character_transformer/enwik8.py. Ablations of t64
on the validation split (metrics not verified against the paper):

  option                 bits per character
  t64                    1.062
  every_position=false   2.482   only the last position of a window is trained
  every_layer=false      1.158   only the last layer predicts
  layer_positions=false  1.069   sinusoids below the first layer instead of learned positions in every layer
  second_target=false    1.068   only the next character is predicted
  optimizer=adam         1.065   without momentum SGD; the replacement in the paper is unknown

Option `pod` (`config.pod`) is for a TPU slice:
`lmx compile --config=experiments/character_transformer/text8.py:t64,pod --topology=v5e-4 --vocabulary=256`.
It scans over its 64 layers and rematerialises, because compile time without scan grows with the number of layers.

  option `pod` of  slice  GiB a chip  s an update  MFU (compiled, not run)
  t64              v5e-4  2.72        0.0865       0.182
"""

from __future__ import annotations

from experiments import config
from experiments.character_transformer import recipe

VARIANTS = ('t12', 't64', 'tiny')


@config.arguments(VARIANTS, **recipe.ABLATIONS, pod=False)
def get_config(variant, options):
  size = 't12' if variant == 'tiny' else variant
  return recipe.build('text8', size, options, small=variant == 'tiny')


def sweep():
  yield from config.grid(optim__lr=[1e-3, 3e-3, 6e-3], model__dropout=[0.1, 0.2])
