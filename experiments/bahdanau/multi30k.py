"""RNNsearch (Bahdanau et al. 2015, arXiv 1409.0473) on Multi30k, English to German, text only.

  lmx train --config=experiments/bahdanau/multi30k.py --workdir=runs/multi30k --config.data.manual_dir=DIR

29,000 captions of pictures (Elliott et al. 2016, 2017). Without manual_dir the files are downloaded; other
directions and languages are --config.data.source=de --config.data.target=en.

  variant    tokenised BLEU, test 2016 / 2017 / COCO, about an hour
  rnnsearch  38.9 / 30.4 / 26.8

Option `recipe`: 'modern' is shared by all three recurrent encoder-decoders, 'paper' is the paper's at the same size:
Adadelta with rho 0.95 and epsilon 1e-6, batches of 80, gradient norm at most 1, no dropout (section 4.2 and appendix B
of 1409.0473). `multi30k` in experiments/rnn_translation.py names a baseline for comparison.
"""

from __future__ import annotations

from experiments import config, rnn_translation

VARIANTS = ('rnnsearch', 'tiny')


@config.arguments(VARIANTS, recipe=('modern', 'paper'))
def get_config(variant, options):
  paper = rnn_translation.cho(epochs=40)
  return config.merge(
    rnn_translation.multi30k('bahdanau', 'rnnsearch_small', paper if options.recipe == 'paper' else None),
    rnn_translation.tiny(E=12, D=16, A=10, maxout=12, init_scale=0.3) if variant == 'tiny' else {},
  )


def sweep():
  yield from config.grid(optim__lr=[1e-3, 2e-3, 4e-3], model__dropout_output=[0.2, 0.4])
