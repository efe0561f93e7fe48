"""Quaternion Transformer (Tay et al. 2019, arXiv 1906.04393) as a classifier: film reviews, or your table.

  lmx train --config=experiments/quaternion_transformer/tasks.py:imdb --workdir=runs/imdb --config.data.manual_dir=DIR

An encoder of tensor2tensor's transformer_tiny, two layers of width 128, newly initialised, with mean pooling. Option
`quaternion` is `full`, `partial` (the matrices of attention) or `none`.

  variant   data                                        accuracy in the paper, none / full / partial (400K, 100K, 300K)
  imdb      IMDb, 25,000 reviews, half held out for it  82.6 / 83.9 / 83.6
  sst2      SST-2, 6,920 sentences                      78.9 / 80.5 / 81.4
  snli      SNLI, pairs of sentences                    another model, with attention between the two
  scitail   SciTail, the same                           the same
  own       your table (docs/which_model.md); own_pairs, of two texts; own_scores, with numeric scores
  tiny      topics of the embedded corpus: seconds on a CPU

The figures are those of experiments/tables/published.csv, which were not checked against the paper. Its updates and
subwords are unknown; here a byte-level BPE of 8,192 tokens, dropout 0.1 and at most ten epochs, minutes on a GPU and an
hour on two cores.
"""

from __future__ import annotations

from typing import Any

from experiments import config, fine_tuning, glue
from experiments.gpt import recipe as gpt
from experiments.transformer import recipe as transformer

VARIANTS = ('imdb', 'sst2', 'snli', 'scitail', *glue.OWN, 'tiny')


@config.arguments(VARIANTS, quaternion=('full', 'partial', 'none'), whole=False)
def get_config(variant, options):
  long = variant == 'imdb'
  base = {
    'name': f'quaternion_{variant}_{options.quaternion}',
    'model': {
      'name': 'quaternion_text',
      'variant': f'encoder_{"base" if options.quaternion == "none" else options.quaternion}',
      'quaternion': options.quaternion,
      'causal': False,
      'scores': 'whole' if options.whole else 'component',
    },
    'objective': {**fine_tuning.LINEAR_HEAD, 'pooling': 'mean'},
    'data': {
      'tokenizer': 'bpe',
      'vocab_size': 8192,
      'special_tokens': gpt.SPECIAL_TOKENS,
      'batching': {
        'name': 'texts',
        'form': 'gpt',
        'buckets': (128, 192, 256, 384) if long else (16, 24, 32, 48, 64),
        **fine_tuning.ANY_LENGTH,
      },
      'batch_size': 32,
      'length': 512 if long else 96,
    },
    'optim': {**transformer.ADAM, 'b2': 0.997, 'lr': 1e-3, 'warmup_steps': 500, 'clip_norm': 1.0},
    'train': {'epochs': 10, 'patience': 3},
    'evaluation': {'split': fine_tuning.measured_split(variant, VARIANTS), 'baselines': False},
  }
  task: dict[str, Any] = glue.task('own' if variant == 'tiny' else variant)
  if variant in ('imdb', 'sst2'):  # not GLUE's sst2, whose test file has no labels
    task = {'objective': {'name': 'classify', 'metric': 'accuracy'}, 'data': {'dataset': variant}}
  return config.merge(base, task, glue.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[5e-4, 1e-3], seed=[0, 1])
