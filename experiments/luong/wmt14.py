"""Attention as in the paper: English to German (Luong et al. 2015, arXiv 1508.04025, tables 1 and 4), WMT 2014's files.

  lmx train --config=experiments/luong/wmt14.py:luong --workdir=runs/luong --config.data.manual_dir=DIR

  variant  data         published tokenised BLEU, newstest2014                    hardware and time
  luong    En-De, 4.5M  16.8 ... local-p with general and input feeding 19.0      7 to 10 days in 2015

Options: `score` and `window` (table 4), and `feed`, `dropout` and `reverse` (true or false), which table 1 adds row by
row; `source=de`, German to English (table 3), with newstest2015 as test set in DIR. For rows without attention see
experiments/rnn_encdec/wmt14.py:sutskever.

Section 4.1: 50,000 words per side, 4 LSTM layers of 1000, uniform in +-0.1, SGD at rate 1 for 10 epochs, halved every
epoch after the 5th (with dropout 12, after the 8th), 128 sentences, norm at most 5 over the batch's mean. Data, search
and deviations are in experiments/rnn_translation.py.
"""

from __future__ import annotations

from experiments import config, rnn_translation

VARIANTS = ('luong', 'tiny')


@config.arguments(
  VARIANTS,
  score=('general', 'dot', 'concat', 'concat_identity', 'location'),
  window=('local_p', 'local_m', 'global'),
  feed=True,
  dropout=True,
  reverse=True,
  source=('en', 'de'),
)
def get_config(variant, options):
  attention = {'score': options.score, 'window': options.window, 'input_feeding': options.feed, 'S': 128}
  return config.merge(
    rnn_translation.wmt14('luong', 'luong'),
    rnn_translation.german(dropped=options.dropout, source=options.source),
    {'model': {'reverse': options.reverse, **attention}},
    rnn_translation.tiny(E=12, D=16) if variant == 'tiny' else {},
  )


def sweep():
  yield from config.grid(seed=[0, 1, 2])
