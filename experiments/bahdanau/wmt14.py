"""RNNsearch as in the paper: English to French (Bahdanau et al. 2015, arXiv 1409.0473, table 1), from WMT 2014's files.

  lmx train --config=experiments/bahdanau/wmt14.py:rnnsearch --workdir=runs/rnnsearch --config.data.manual_dir=DIR

  variant    data        published tokenised BLEU, newstest2014                         hardware and time
  rnnsearch  En-Fr, 12M  RNNsearch-30 21.50, RNNsearch-50 26.75, trained longer 28.45   days on one GPU (252 h in 2014)

Option: `length=30` or 50, the longest sentence in words. "Trained longer" is the same command with more epochs.

Sections 4.1, 4.2 and appendix B: 30,000 words per side, gated units of 1000, embeddings 620, Adadelta with rho 0.95 and
epsilon 1e-6, 80 sentences, gradient norm at most 1, beam search. Data, search and deviations are in
experiments/rnn_translation.py.
"""

from __future__ import annotations

from experiments import config, rnn_translation

VARIANTS = ('rnnsearch', 'tiny')


@config.arguments(VARIANTS, length=50)
def get_config(variant, options):
  return config.merge(
    rnn_translation.wmt14('bahdanau', 'rnnsearch'),
    rnn_translation.french(options.length),
    rnn_translation.tiny(E=12, D=16, A=10, maxout=8) if variant == 'tiny' else {},
  )


def sweep():
  yield from config.grid(seed=[0, 1, 2])
