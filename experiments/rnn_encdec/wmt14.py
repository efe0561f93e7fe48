"""Encoder-decoders without attention (Sutskever et al. 2014, arXiv 1409.3215; baselines of two papers), WMT 2014.

  lmx train --config=experiments/rnn_encdec/wmt14.py:rnnencdec --workdir=runs/rnnencdec --config.data.manual_dir=DIR

  variant    data         published tokenised BLEU, newstest2014                              hardware and time
  rnnencdec  En-Fr, 12M   RNNencdec-30 13.93, RNNencdec-50 17.82 (arXiv 1409.0473, table 1)   days on one GPU
  sutskever  En-De, 4.5M  base 11.3, reverse 12.6, dropout 14.0 (arXiv 1508.04025, table 1)   days on one GPU
             En-Fr, 12M   forward 26.17, reversed 30.59 (arXiv 1409.3215, table 1)          10 days on 8 GPUs in 2014

Options: `length=30` or 50, the longest sentence in words of rnnencdec. Of sutskever: `dropout` and `reverse` (true or
false); `source=de`, German to English; `paper=sutskever`, that paper's data and recipe, English to French, without
`dropout` and `source`. The other recipes are in experiments/bahdanau/wmt14.py and experiments/luong/wmt14.py. Data,
search and deviations are in experiments/rnn_translation.py.
"""

from __future__ import annotations

from experiments import config, rnn_translation

VARIANTS = ('rnnencdec', 'sutskever', 'tiny')


@config.arguments(VARIANTS, length=50, dropout=True, reverse=True, source=('en', 'de'), paper=('luong', 'sutskever'))
def get_config(variant, options):
  if variant == 'sutskever':
    german = rnn_translation.german(dropped=options.dropout, source=options.source)
    return config.merge(
      rnn_translation.wmt14('rnn_encdec', 'sutskever'),
      rnn_translation.sutskever() if options.paper == 'sutskever' else german,
      {'model': {'reverse': options.reverse}},
    )
  return config.merge(
    rnn_translation.wmt14('rnn_encdec', 'rnnencdec'),
    rnn_translation.french(options.length),
    rnn_translation.tiny(E=12, D=16, maxout=8) if variant == 'tiny' else {},
  )


def sweep():
  yield from config.grid(seed=[0, 1, 2])
