"""RNNsearch (Bahdanau et al. 2015, arXiv 1409.0473) on generated numbers: number words to digits, or digits to words.

  lmx train --config=experiments/bahdanau/quickstart.py:rnnsearch --workdir=runs/numbers   under 2 minutes
  lmx train --config=experiments/bahdanau/quickstart.py:reads=digits --workdir=runs/back         the other direction
  lmx train --config=experiments/bahdanau/quickstart.py:tiny --workdir=runs/tiny                 a smoke test
  echo 'three hundred and twelve' | lmx translate --workdir=runs/numbers

The numbers are generated, so no metric is published; the test numbers do not occur in training. Options: `reads=digits`
is the other direction, `reading=hard` samples one position to attend to (Xu et al. 2015, arXiv 1502.03044).
"""

from __future__ import annotations

from experiments import config, rnn_translation, translation

VARIANTS = ('rnnsearch', 'tiny')


@config.arguments(VARIANTS, reads=('words', 'digits'), reading=('soft', 'hard'))
def get_config(variant, options):
  model = {'name': 'bahdanau', 'variant': 'rnnsearch_small', 'E': 32, 'D': 64, 'A': 64, 'maxout': 64, 'init_scale': 0.1}
  tiny = translation.tiny(E=12, D=16, A=10, maxout=8, init_scale=0.3)
  return config.merge(
    rnn_translation.numbers(model, options.reads),
    rnn_translation.hard() if options.reading == 'hard' else {},
    tiny if variant == 'tiny' else {},
  )


def sweep():
  yield from config.grid(optim__lr=[2e-3, 4e-3, 8e-3])
