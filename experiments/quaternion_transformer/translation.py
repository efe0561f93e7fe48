"""Quaternion Transformer (Tay et al. 2019, arXiv 1906.04393) for translation: the paper's language pairs.

  lmx train --config=experiments/quaternion_transformer/translation.py:partial --workdir=runs/envi \\
    --config.data.manual_dir=DIR

DIR holds train.en and train.vi, line by line, and valid.* and test.*. Option `pair` is en_vi (IWSLT 2015, tst2013 as
test), en_ro (WMT 2016), en_et (WMT 2018) or en_de (WMT 2014, for which no DIR is needed; in the paper's text 26.42
partial and 25.14 full).

  variant   parameters without the table   BLEU in the paper: En-Vi / En-Ro / En-Et
  base      44M, no quaternions            28.4 / 22.8 / 14.1
  partial   29M, those of attention        30.9 / 22.7 / 14.2
  full      11M, all of them               28.0 / 18.5 / 13.1

The figures are those of experiments/tables/published.csv, which were not checked against the paper. Sizes and
optimisation follow tensor2tensor's transformer_base (version 3), 50,000 updates, as in the released code.
lmx/layers/quaternion.py describes its other differences (`fidelity=released`: initial weights, and heads within one
component). Beam, length penalty and BLEU tokenisation are unknown; ours are a beam of 4 with 0.6 and Moses tokens. One
GPU, a day.
"""

from __future__ import annotations

from experiments import config, translation
from experiments.transformer import recipe as transformer

VARIANTS = ('partial', 'full', 'base', 'tiny')
_PAIRS = ('en_vi', 'en_ro', 'en_et', 'en_de')


@config.arguments(VARIANTS, pair=_PAIRS, fidelity=('paper', 'released'))
def get_config(variant, options):
  source, target = options.pair.split('_')
  released = {'initial': 'released', 'grouping': 'contiguous'} if options.fidelity == 'released' else {}
  base = {
    'name': f'quaternion_transformer_{options.pair}_{variant}',
    'model': {'name': 'quaternion_transformer', 'variant': 'partial' if variant == 'tiny' else variant, **released},
    'objective': {'smoothing': 0.1, 'smoothing_form': 'released'},
    'data': {
      'dataset': 'wmt14_en_de' if options.pair == 'en_de' else 'parallel_files',
      'source': source,
      'target': target,
      'tokenizer': 'unigram',
      'vocab_size': 32_000,
      'batching': {'name': 'translation', 'tokens': 4096, 'buckets': (16, 24, 32, 48, 64, 96)},
      'length': 128,
    },
    'optim': {**transformer.ADAM, 'b2': 0.997, 'lr': 2.0, 'width': 512, 'warmup_steps': 8000},
    'train': {'steps': 50_000, 'eval_every': 1000, 'log_every': 100},
    'checkpoint': {'every_steps': 1000, 'keep_last': 5},
    'evaluation': {'which': 'average', 'average': 5, 'beam': 4, 'alpha': 0.6, 'max_extra': 50, 'baselines': False},
  }
  return config.merge(base, translation.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(model__scores=['component', 'whole'])
