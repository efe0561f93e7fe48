"""Encoder-decoder without attention on generated numbers: English number words to digits, or digits to words.

  lmx train --config=experiments/rnn_encdec/quickstart.py:rnnencdec --workdir=runs/numbers   under 2 minutes
  lmx train --config=experiments/rnn_encdec/quickstart.py:reads=digits --workdir=runs/back       the other direction
  lmx train --config=experiments/rnn_encdec/quickstart.py:tiny --workdir=runs/tiny               a smoke test
  echo 'three hundred and twelve' | lmx translate --workdir=runs/numbers

RNNencdec of Cho et al. 2014 (arXiv 1406.1078): one vector for the whole source. The numbers are generated, so no metric
is published; the test numbers do not occur in training. Compared with the models with attention (experiments/bahdanau,
experiments/luong), it learns the long numbers last. Option: `reads=digits` is the other direction.
"""

from __future__ import annotations

from experiments import config, rnn_translation, translation

VARIANTS = ('rnnencdec', 'tiny')


@config.arguments(VARIANTS, reads=('words', 'digits'))
def get_config(variant, options):
  model = {'name': 'rnn_encdec', 'variant': 'rnnencdec_small', 'E': 32, 'D': 128, 'maxout': 64, 'init_scale': 0.1}
  tiny = translation.tiny(E=12, D=16, maxout=8, init_scale=0.3)
  return config.merge(rnn_translation.numbers(model, options.reads), tiny if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[2e-3, 4e-3, 8e-3])
