"""Recurrent encoder-decoders on Multi30k (Elliott et al. 2016, 2017), English to German, text only.

  lmx train --config=experiments/seq2seq/multi30k.py --workdir=runs/multi30k --config.data.manual_dir=DIR

29,000 captions of pictures. Without manual_dir the files are downloaded; other directions and languages are
--config.data.source=de --config.data.target=en.

  variant    what it shows                             tokenised BLEU, test 2016 / 2017 / COCO, about an hour each
  rnnsearch  Bahdanau et al. 2015 (arXiv 1409.0473)    38.9 / 30.4 / 26.8
  luong      Luong et al. 2015 (arXiv 1508.04025)      38.3 / 30.5 / 26.1
  rnnencdec  Cho et al. 2014 (arXiv 1406.1078)         28.3 / 19.5 / 17.2

`luong` has its general score, local-p window and input feeding; `rnnencdec` one vector for the whole source, clearly
worse on long sentences, which `bleu_by_length` of results.json shows (figure 2 of Bahdanau et al.).

No paper has these models on these data at these settings, so there is no row to reproduce; the yardstick is the
text-only Transformer of Wu et al. 2021, see experiments/transformer/multi30k.py. Text, vocabulary and search are the
same there (experiments/translation.py): lower-cased, one BPE of 10,000 for both languages, beam 5 with scores divided
by the length.

Option `recipe`: 'modern' is Adam with a cosine, dropout, label smoothing and one matrix for the target's embedding and
the output, at a size for two cores. 'paper' is that of each paper at the same size: Bahdanau and Cho, Adadelta with rho
0.95 and epsilon 1e-6, batches of 80, gradient norm at most 1, no dropout (section 4.2 and appendix B of 1409.0473);
Luong, SGD at rate 1, halved every epoch after the 8th of 12, batches of 128, norm at most 5, dropout 0.2 (section 4.1).
The papers' losses are sums over a sentence, ours is the mean over tokens. So Luong's rate is multiplied and both norms
are divided by the mean length of a target, 14 tokens.
"""

from __future__ import annotations

from typing import Any

from experiments import config, translation

VARIANTS = ('rnnsearch', 'luong', 'rnnencdec', 'tiny')
_TOKENS = 14  # mean tokens of a target


def _dropout(embedding: float, hidden: float, output: float) -> dict[str, float]:
  return {'dropout_embedding': embedding, 'dropout_hidden': hidden, 'dropout_output': output}


def _recipe(kind: str, recipe: str) -> dict[str, Any]:
  if recipe == 'modern':
    return {
      'model': {'tied': True, **_dropout(0.3, 0.3, 0.4)},
      'objective': {'smoothing': 0.1},
      'data': {'batch_size': 64},
      'optim': {
        'optimizer': 'adamw',
        'lr': 2e-3,
        'weight_decay': 0.01,
        'groups': config.DECAY_MATRICES_ONLY,
        'schedule': 'cosine',
        'end_fraction': 0.02,
        'warmup_steps': 400,
        'clip_norm': 1.0,
      },
      'train': {'epochs': 20},
    }
  if kind == 'luong':
    return {
      'model': {'init_scale': 0.1, **_dropout(0.2, 0.2, 0.2)},
      'data': {'batch_size': 128},
      'optim': {
        'optimizer': 'sgd',
        'lr': 1.0 * _TOKENS,
        'clip_norm': 5.0 / _TOKENS,
        'schedule': 'step_decay',
        'decay_after_epochs': 8,
        'decay_rate': 2.0,
      },
      'train': {'epochs': 12},
    }
  return {
    'model': {'init': 'paper', 'cell': 'gru_paper'},
    'data': {'batch_size': 80},
    'optim': {'optimizer': 'adadelta', 'lr': 1.0, 'rms_decay': 0.95, 'eps': 1e-6, 'clip_norm': 1.0 / _TOKENS},
    'train': {'epochs': 40},
  }


def get_config(arg: str = ''):
  variant, options = config.parse_arg(arg, VARIANTS, recipe=('modern', 'paper'))
  kind = 'rnnsearch' if variant == 'tiny' else variant
  base = {
    'name': f'seq2seq_multi30k_{variant}',
    'model': {'name': 'seq2seq', 'variant': f'{kind}_small'},
    'objective': {'name': 'translation'},
    'data': {'batching': {'name': 'translation', 'buckets': (12, 16, 20, 28)}, 'length': 48},
    'train': {'eval_every': 500, 'log_every': 50},
  }
  tiny = translation.tiny(E=12, D=16, A=10, maxout=12, init_scale=0.3) if variant == 'tiny' else {}
  by_updates = {'train': {'epochs': 0}} if tiny else {}
  return config.merge(translation.MULTI30K, base, _recipe(kind, options.recipe), tiny, by_updates)


def sweep():
  yield from config.grid(optim__lr=[1e-3, 2e-3, 4e-3], model__dropout_output=[0.2, 0.4])
