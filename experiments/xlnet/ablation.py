"""Ablations of XLNet (Yang et al. 2019, arXiv 1906.08237, table 6): pre-training of each row on the same text.

  lmx train --config=experiments/xlnet/ablation.py:xlnet --workdir=runs/xlnet --config.data.manual_dir=DIR
  lmx train --config=experiments/xlnet/tasks.py:sst2 --workdir=runs/sst2 --config.train.init_from=runs/xlnet ...

DIR holds your text; the paper's is Wikipedia and BooksCorpus. All variants have the same vocabulary, rows, updates,
optimizer and, within a few percent, parameters. The paper's row is in parentheses; all metrics are after fine-tuning.

  variant           row                            published: RACE / SQuAD 2.0 F1 / MNLI / SST-2
  xlnet             XLNet, K = 6 (4)               66.66 / 80.98 / 85.63 / 93.35
  k7                K = 7 (3)                      66.05 / 81.33 / 85.84 / 92.66
  no_memory         without memory (5)             65.55 / 80.15 / 85.32 / 92.78
  no_span           tokens, not spans (6)          65.95 / 80.61 / 85.49 / 93.12
  no_bidirectional  all rows from their start (7)  66.34 / 80.65 / 85.31 / 92.66
  dae               DAE + Transformer-XL (2)       65.03 / 79.56 / 84.88 / 92.60
  next_sentence     and next sentences (8)         66.76 / 79.83 / 85.32 / 92.89
  bert              BERT (1)                       64.3 / 76.30 / 84.34 / 92.78

`dae` trains XLNet's layers, relative positions and segments by masked LM like BERT, without next-sentence prediction.
It has no memory, because masked rows are not consecutive, and its rows start with [CLS]: fine-tune it with
--config.data.batching.form=bert --config.objective.pooling=first. experiments/bert/ fine-tunes `bert`.

`size=base` is the paper's (512 tokens, 256 rows; its steps are not printed for this table; we take BERT base's), with
Adam as released, see pretrain.py. `size=small`, for two cores, has 4 layers of 192, 8 rows of 128, Adam with bias
correction and no dropout: with dropout `xlnet` was at the unigram loss after 750 updates of 16 rows, without dropout it
is below that after 500. The vocabulary is a cased WordPiece, shared by BERT and XLNet; the paper's XLNet has a unigram
one.
"""

from __future__ import annotations

from typing import Any

from experiments import config
from experiments.xlnet import recipe

VARIANTS = ('xlnet', 'k7', 'no_memory', 'no_span', 'no_bidirectional', 'next_sentence', 'dae', 'bert', 'tiny')


@config.arguments(VARIANTS, size=('base', 'small'), steps=0, lr=0.0)
def get_config(variant, options):
  small = options.size == 'small'
  base = {
    'name': f'xlnet_ablation_{variant}',
    'data': {
      'dataset': 'text_files',
      'tokenizer': 'wordpiece',
      'vocab_size': 4096 if small else 30_000,
      'batch_size': 8 if small else 256,
      'eval_batch_size': 8,
      'length': 128 if small else 512,
    },
    'optim': {
      **recipe.optimizer('corrected' if small else 'released'),
      'lr': options.lr or (1e-3 if small else 1e-4),
      'warmup_fraction': 0.1,
      'end_fraction': 0.0 if small else 0.001,
    },
    'train': {'steps': options.steps or (3000 if small else 1_000_000), 'eval_every': 1000 if small else 10_000},
    'evaluation': {'baselines': False},
  }
  arm = _masks(variant, small) if variant in ('dae', 'bert') else _orders(variant, small)
  changes = recipe.tiny() | {'optim': {'warmup_fraction': 0.1}} if variant == 'tiny' else {}
  return config.merge(base, arm, changes)


def _model(name: str, small: bool, **others: Any) -> dict[str, Any]:
  model = {'name': name, 'variant': 'base', **others}
  if small:
    model |= {'D': 192, 'H': 4, 'N': 4, 'dropout_attention': 0.0}
    model |= {'F': 768, 'dropout': 0.0} if name == 'xlnet' else {'dropout_hidden': 0.0}  # BERT's F is 4 D
  return model


def _orders(variant: str, small: bool) -> dict[str, Any]:
  half = 64 if small else 256
  memory = {'M': 0} if variant == 'no_memory' else {'M': half if small else 384, 'reuse': half}
  batching = {
    'name': 'permutations',
    'reuse': half,
    'context': 7 if variant == 'k7' else 6,
    'spans': 'single' if variant == 'no_span' else 'released',
    'bidirectional': variant != 'no_bidirectional',
  }
  objective = {'name': 'permutation_lm', 'next_sentence': variant == 'next_sentence'}
  return {'model': _model('xlnet', small, **memory), 'objective': objective, 'data': {'batching': batching}}


def _masks(variant: str, small: bool) -> dict[str, Any]:
  T = 128 if small else 512
  batching = {'name': 'pairs', 'masking': 'dynamic', 'max_predictions': round(0.15 * T)}
  if variant == 'dae':
    objective = {'name': 'masked_lm', 'next_sentence': False}
    return {'model': _model('xlnet', small, M=0), 'objective': objective, 'data': {'batching': batching}}
  return {'model': _model('bert', small, T=T), 'data': {'batching': batching}}


def sweep():
  yield from config.grid(optim__lr=[5e-5, 1e-4, 2e-4])
