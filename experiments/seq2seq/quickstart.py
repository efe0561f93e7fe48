"""Recurrent encoder-decoders that read numbers: English number words to digits, or digits to words.

  lmx train --config=experiments/seq2seq/quickstart.py --workdir=runs/numbers                  under 2 minutes
  lmx train --config=experiments/seq2seq/quickstart.py:luong,reads=digits --workdir=runs/back  the other direction
  lmx train --config=experiments/seq2seq/quickstart.py:tiny --workdir=runs/tiny                does it run at all
  echo 'three hundred and twelve' | lmx translate --workdir=runs/numbers

  rnnsearch  looks at the source from the state before each step (Bahdanau et al. 2015, arXiv 1409.0473)
  luong      looks from the state after it, near a place that it predicts (Luong et al. 2015, arXiv 1508.04025)
  rnnencdec  sees one vector of the whole source (Cho et al. 2014, arXiv 1406.1078)

The numbers are generated, so no figure is published; no number of the test split is in the training split. Those that
look learn nearly all of them, and the one vector is the last to get the long ones right. Options: `reads=digits` is
the other direction, `reading=hard` has attention that draws one position (Xu et al. 2015, arXiv 1502.03044),
which is not for `rnnencdec`.
"""

from __future__ import annotations

from experiments import config, translation

VARIANTS = ('rnnsearch', 'luong', 'rnnencdec', 'tiny')
SIZES: dict[str, dict[str, float]] = {
  'rnnsearch': {'A': 64, 'maxout': 64},
  'luong': {'D': 128, 'reach': 3, 'init_scale': 0.3},
  'rnnencdec': {'D': 128, 'maxout': 64},
}


def get_config(arg: str = ''):
  variant, options = config.parse_arg(arg, VARIANTS, reads=('words', 'digits'), reading=('soft', 'hard'))
  kind = 'rnnsearch' if variant == 'tiny' else variant
  model: dict[str, float] = {'E': 32, 'D': 64, 'init_scale': 0.1} | SIZES[kind]
  base = {
    'name': f'seq2seq_numbers_{variant}',
    'model': {'name': 'seq2seq', 'variant': f'{kind}_small', **model},
    'objective': {'name': 'translation'},
    'data': {
      'dataset': 'embedded_numbers',
      'source': options.reads,
      'tokenizer': 'words',
      'batching': {'name': 'translation', 'buckets': (8,)},
      'batch_size': 64,
      'length': 16,
    },
    'optim': {'optimizer': 'adam', 'lr': 4e-3, 'schedule': 'cosine', 'warmup_steps': 100, 'clip_norm': 1.0},
    'train': {'steps': 1500, 'eval_every': 500},
    'evaluation': {'beam': 4, 'baselines': False},
  }
  hard = {'model': {'reading': 'hard'}, 'objective': {'reinforce': 1.0, 'entropy': 0.01}}
  tiny = translation.tiny(E=12, D=16, A=10, maxout=8, init_scale=0.3)
  return config.merge(base, hard if options.reading == 'hard' else {}, tiny if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[2e-3, 4e-3, 8e-3])
