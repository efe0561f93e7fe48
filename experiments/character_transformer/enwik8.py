"""Character Transformer (Al-Rfou et al. 2018, arXiv 1808.04444, section 3) over the bytes of enwik8.

  lmx train --config=experiments/character_transformer/enwik8.py:t12 --workdir=runs/t12-enwik8

enwik8 (the first 10^8 bytes of Wikipedia, Hutter; 90 / 5 / 5 million) is downloaded, or read from
--config.data.manual_dir=DIR.

  variant  parameters   test bits per character  hardware and time
  t12      44 million   1.11                     a large GPU, days
  t64      235 million  1.06                     a large GPU or a TPU, weeks (the paper's best is at some 2.5 million
                                                 updates, 175 hours of one TPU v2); --config.model.scan=true compiles
                                                 sooner, --config.model.remat=full takes less memory

Recipe: SGD with momentum 0.99 at the constant learning rate 0.003, 4 million updates of 16 windows of 512 bytes,
dropout 0.2 (t12) or 0.55 (t64). Every layer makes two predictions; lower layers stop during the first half. The
parameters with the best validation loss are evaluated.

Evaluation: the paper moves the window by one byte and predicts only its last position (evaluation.stride=1). So each
byte has its own window with the 511 bytes before it, and the 5 million test bytes cost 512 times as much as one pass.
--config.evaluation.stride=32 costs 16 times as much and gives each byte 480 to 511 bytes of context. Validation during
training reads adjacent windows. The protocol in results.json states the stride.

Training options for the paper's ablations: every_position, every_layer, second_target, layer_positions (each true by
default) and optimizer (momentum or adam), see experiments/character_transformer/text8.py. Option `pod` (`config.pod`)
is for a TPU slice, see there too.

Deviation: the paper samples windows anywhere in the text; here an epoch's windows are adjacent, with a random offset
and in random order.
"""

from __future__ import annotations

from experiments import config
from experiments.character_transformer import recipe

VARIANTS = ('t12', 't64', 'tiny')


@config.arguments(VARIANTS, **recipe.ABLATIONS, pod=False)
def get_config(variant, options):
  size = 't12' if variant == 'tiny' else variant
  return recipe.build('enwik8', size, options, small=variant == 'tiny')


def sweep():
  yield from config.grid(optim__lr=[1e-3, 3e-3, 6e-3], model__dropout=[0.1, 0.2])
