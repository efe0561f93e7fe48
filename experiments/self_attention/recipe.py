"""Parts of the experiments with self-attention of any score: a classifier of sentences."""

from __future__ import annotations

from typing import Any

from experiments import config, fine_tuning

# Of lmx/layers/rnn_attention.py; the first five are those of the decks' table.
SCORES = (
  'additive',
  'general',
  'cosine',
  'location',
  'dot',
  'scaled_dot',
  'concat',
  'concat_identity',
  'cosine_plain',
)
OPTIONS: dict[str, Any] = {'score': SCORES, 'projected': False, 'window': ('global', 'local_m', 'local_p')}


def classifier(name: str, options: Any) -> dict[str, Any]:
  """Return the settings of a newly initialised classifier: two layers of width 128, the mean of their outputs."""
  return {
    'name': f'self_attention_{name}_{options.score}',
    'model': {
      'name': 'self_attention',
      'score': options.score,
      'projected': options.projected,
      'window': options.window,
      'D': 128,
      'F': 512,
      'A': 128,
    },
    'objective': {'name': 'classify', **fine_tuning.LINEAR_HEAD, 'pooling': 'mean'},
    'data': {'tokenizer': 'words', 'lower_case': True, 'min_count': 2, 'batch_size': 32},
    'optim': {'optimizer': 'adam', 'lr': 1e-3, 'clip_norm': 1.0, 'schedule': 'linear', 'warmup_fraction': 0.1},
    'evaluation': {'baselines': False},
    'samples': {'count': 0},
  }


def tiny() -> dict[str, Any]:
  """Return the changes of the tiny variant: topics of the embedded corpus, seconds on a CPU."""
  rows = fine_tuning.tiny(dataset='embedded_topics', batching={'buckets': (16,)})
  return config.merge(rows, {'model': {'D': 32, 'F': 48, 'A': 16}}).to_dict()
