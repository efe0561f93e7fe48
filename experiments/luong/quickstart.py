"""Attention of Luong et al. 2015 (arXiv 1508.04025) on generated numbers: English number words to digits, or back.

  lmx train --config=experiments/luong/quickstart.py:luong --workdir=runs/numbers   under 2 minutes
  lmx train --config=experiments/luong/quickstart.py:reads=digits --workdir=runs/back            the other direction
  lmx train --config=experiments/luong/quickstart.py:tiny --workdir=runs/tiny                    a smoke test
  echo 'three hundred and twelve' | lmx translate --workdir=runs/numbers

The numbers are generated, so no metric is published; the test numbers do not occur in training. Options: `reads=digits`
is the other direction, `reading=hard` samples one position to attend to (Xu et al. 2015, arXiv 1502.03044).
"""

from __future__ import annotations

from experiments import config, rnn_translation, translation

VARIANTS = ('luong', 'tiny')


@config.arguments(VARIANTS, reads=('words', 'digits'), reading=('soft', 'hard'))
def get_config(variant, options):
  model = {'name': 'luong', 'variant': 'luong_small', 'E': 32, 'D': 128, 'reach': 3, 'init_scale': 0.3}
  return config.merge(
    rnn_translation.numbers(model, options.reads),
    rnn_translation.hard() if options.reading == 'hard' else {},
    translation.tiny(E=12, D=16) if variant == 'tiny' else {},
  )


def sweep():
  yield from config.grid(optim__lr=[2e-3, 4e-3, 8e-3])
