"""Attention of Luong et al. 2015 (arXiv 1508.04025) on Multi30k, English to German, text only.

  lmx train --config=experiments/luong/multi30k.py --workdir=runs/multi30k --config.data.manual_dir=DIR

29,000 captions of pictures (Elliott et al. 2016, 2017). Without manual_dir the files are downloaded; other
directions and languages are --config.data.source=de --config.data.target=en.

  variant    tokenised BLEU, test 2016 / 2017 / COCO, about an hour
  luong      38.3 / 30.5 / 26.1

With the general score, the local-p window and input feeding.

Option `recipe`: 'modern' is shared by all three recurrent encoder-decoders, 'paper' is the paper's at the same size:
SGD at rate 1, halved every epoch after the 8th of 12, batches of 128, gradient norm at most 5, dropout 0.2 (section
4.1). `multi30k` in experiments/rnn_translation.py names a baseline for comparison.
"""

from __future__ import annotations

from experiments import config, rnn_translation

VARIANTS = ('luong', 'tiny')


@config.arguments(VARIANTS, recipe=('modern', 'paper'))
def get_config(variant, options):
  paper = rnn_translation.step_decay(8) | {
    'model': {'init_scale': 0.1, **rnn_translation.dropout(0.2, 0.2, 0.2)},
    'data': {'batch_size': 128},
    'train': {'epochs': 12},
  }
  return config.merge(
    rnn_translation.multi30k('luong', 'luong_small', paper if options.recipe == 'paper' else None),
    rnn_translation.tiny(E=12, D=12, init_scale=0.3) if variant == 'tiny' else {},
  )


def sweep():
  yield from config.grid(optim__lr=[1e-3, 2e-3, 4e-3], model__dropout_output=[0.2, 0.4])
