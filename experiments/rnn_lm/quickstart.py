"""LSTM language model (Zaremba et al. 2014, arXiv 1409.2329) on the embedded English prose, word by word.

  lmx train --config=experiments/rnn_lm/quickstart.py --workdir=runs/quickstart            within 4 minutes on two cores
  lmx train --config=experiments/rnn_lm/quickstart.py:full --workdir=runs/quickstart-full  within 12 minutes there
  lmx train --config=experiments/rnn_lm/quickstart.py:tiny --workdir=runs/tiny             seconds: a smoke test

The corpus ships with Python, so no metric is published. measured.csv has measured ones: both end clearly below the
interpolated Kneser-Ney model, which every run evaluates on the same split and vocabulary. One layer, short windows with
carried state and a high rate give the most updates in the time; the dropout rate of `fast` was chosen on the validation
split (docs/notes/embedded_corpus.md). Option after the variant: `:fast,cell=gru` (lstm, gru, rnn).
"""

from __future__ import annotations

from experiments import config, spaces

VARIANTS = ('fast', 'full', 'tiny')


@config.arguments(VARIANTS, cell=('lstm', 'gru', 'rnn'))
def get_config(variant, options):
  base = {
    'name': 'rnn_lm_quickstart',
    'model': {'name': 'rnn_lm', 'variant': 'small', 'cell': options.cell, 'tied': True},
    'data': {
      'dataset': 'embedded',
      'tokenizer': 'words',
      'min_count': 2,
      'batching': 'streams',
      'batch_size': 20,
      'length': 35,
    },
    'optim': {
      'optimizer': 'adamw',
      'lr': 2e-3,
      'schedule': 'cosine',
      'warmup_steps': 100,
      'clip_norm': 1.0,
    },
    'samples': {'default_prompts': ('', 'The method returns'), 'count': 1},
  }
  changes: dict[str, dict] = {
    'fast': {
      'model': {'E': 256, 'D': 256, 'N': 1, 'dropout': 0.4, 'init_scale': 0.05},
      'data': {'length': 20},
      'optim': {'lr': 5e-3},
      'train': {'steps': 5000, 'eval_every': 500},
    },
    'full': {
      'model': {'E': 400, 'D': 400, 'N': 1, 'dropout': 0.6, 'init_scale': 0.05},
      'data': {'length': 20},
      'optim': {'lr': 4e-3},
      'train': {'steps': 7000, 'eval_every': 500},
    },
    'tiny': config.tiny(E=16),
  }
  return config.merge(base, changes[variant])


def sweep():
  return spaces.space(optim__lr=spaces.log_range(5e-4, 1e-2), model__dropout=spaces.linear_range(0.1, 0.6))
