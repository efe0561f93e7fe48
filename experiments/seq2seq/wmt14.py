"""The papers' own runs: English to French (Bahdanau et al. 2015, arXiv 1409.0473, table 1) and to German (Luong et al.
2015, arXiv 1508.04025, tables 1 and 4), from WMT 2014's files.

  lmx train --config=experiments/seq2seq/wmt14.py:rnnsearch --workdir=runs/rnnsearch --config.data.manual_dir=DIR

  variant    data         published tokenised BLEU, newstest2014                         hardware and time
  rnnsearch  En-Fr, 12M   RNNsearch-30 21.50, RNNsearch-50 26.75, trained longer 28.45   days on one GPU (252 h in 2014)
  rnnencdec  En-Fr, 12M   RNNencdec-30 13.93, RNNencdec-50 17.82                         days on one GPU
  luong      En-De, 4.5M  base 11.3 ... local-p with general and input feeding 19.0      7 to 10 days in 2015

Options: `length=30` or 50, the longest sentence in words of Bahdanau's models. For Luong, `score` and `window` (table
4), and what table 1 adds line by line: `feed`, `attention`, `dropout`, `reverse` (true or false).

Bahdanau (sections 4.1, 4.2, appendix B): 30,000 words a side, gated units of 1000, embeddings 620, Adadelta with rho
0.95 and epsilon 1e-6, 80 sentences, gradient norm at most 1, beam search. Luong (section 4.1): 50,000 words a side, 4
LSTM layers of 1000, uniform in +-0.1, SGD at rate 1 for 10 epochs, halved every epoch after the 5th (with dropout 12,
after the 8th), 128 sentences, norm at most 5 over the batch's mean.

Decoded as then: a beam of 12, by the log-probability without a length penalty, `<unk>` allowed. Bahdanau: at least half
and at most three times the source's length (GroundHog's sample.py); Luong: between 0.5 and 1.5 times (the released
MATLAB code). BLEU is of Moses tokens, compounds split for English-German alone.

Deviations: one vocabulary for both languages, so it is 60,000 or 100,000 words here; unknown words are one symbol, and
none is replaced afterwards; the search keeps its width when hypotheses end, and Luong's bounds are those of each
sentence, not of its batch; Bahdanau's 12M pairs are a selection of WMT 14 that its authors published, which DIR may
hold. Bahdanau's "trained longer" run is the same command with more epochs. The papers' losses are sums over a sentence,
ours is the mean over tokens: rate and norms are scaled by a mean length of 25 tokens.
"""

from __future__ import annotations

from typing import Any

from experiments import config, translation

VARIANTS = ('rnnsearch', 'rnnencdec', 'luong', 'tiny')
_TOKENS = 25  # mean tokens of a target


def _luong(options) -> dict[str, Any]:
  rate = 0.2 if options.dropout else 0.0
  model: dict[str, Any] = {f'dropout_{where}': rate for where in ('embedding', 'hidden', 'output')}
  model |= {'V': 0, 'reverse': options.reverse}
  if options.attention:
    model |= {'score': options.score, 'window': options.window, 'input_feeding': options.feed, 'S': 128}
  else:
    model |= {'design': 'sutskever', 'window': 'global'}
  return {
    'model': model,
    'data': {'dataset': 'wmt14_en_de', 'vocab_size': 100_000, 'batch_size': 128},
    'optim': {
      'optimizer': 'sgd',
      'lr': 1.0 * _TOKENS,
      'clip_norm': 5.0 / _TOKENS,
      'schedule': 'step_decay',
      'decay_after_epochs': 8 if options.dropout else 5,
      'decay_rate': 2.0,
    },
    'train': {'epochs': 12 if options.dropout else 10},
    'evaluation': {'max_ratio': 1.5},
  }


def get_config(arg: str = ''):
  variant, options = config.parse_arg(
    arg,
    VARIANTS,
    length=50,
    score=('general', 'dot', 'concat', 'concat_identity', 'location'),
    window=('local_p', 'local_m', 'global'),
    feed=True,
    attention=True,
    dropout=True,
    reverse=True,
  )
  kind = 'rnnsearch' if variant == 'tiny' else variant
  base = {
    'name': f'seq2seq_wmt14_{variant}',
    'model': {'name': 'seq2seq', 'variant': kind, 'V': 0},
    'objective': {'name': 'translation'},
    'data': {
      'dataset': 'wmt14_en_fr',
      'tokenizer': 'words',
      'vocab_size': 60_000,
      'batching': {'name': 'translation', 'buckets': (16, 24, 32, 40)},
      'batch_size': 80,
      'length': options.length + 1,  # and the end-of-text
    },
    'optim': {'optimizer': 'adadelta', 'lr': 1.0, 'rms_decay': 0.95, 'eps': 1e-6, 'clip_norm': 1.0 / _TOKENS},
    'train': {'epochs': 5, 'eval_every': 5000, 'log_every': 100},
    'evaluation': {'beam': 12, 'alpha': 0.0, 'min_ratio': 0.5, 'max_ratio': 3.0, 'allow_unk': True},
  }
  tiny = translation.tiny(E=12, D=16, A=10, maxout=8) if variant == 'tiny' else {}
  return config.merge(base, _luong(options) if kind == 'luong' else {}, tiny, {'train': {'epochs': 0}} if tiny else {})


def sweep():
  yield from config.grid(seed=[0, 1, 2])
