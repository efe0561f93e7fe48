"""The five tasks of the Neural Turing Machine (Graves et al. 2014, arXiv 1410.5401), as generated data.

  lmx train --config=experiments/ntm/tasks.py:copy --workdir=runs/copy

Variants: copy, repeat_copy, recall, ngrams and sort; tiny a smoke test. After the variant come
  network=lstm    a machine with an LSTM as its controller (table 2 of the paper); also ff, the feed-forward controller
                  (table 1), and baseline, the stacked LSTM without a memory (table 3)
  recipe=fast     Adam, a memory that begins constant, rows in batches; recipe=paper is RMSProp as in Graves 2013, the
                  rates of the tables, entries of the gradient within +-10, a learned memory, a sequence a step
  sequences=N     number of training sequences; 0 is the recipe's number
  rate=X          learning rate; 0 is the recipe's

The tables print parameter counts; the figures show learning curves in bits per sequence. Copying is near 0 after about
100,000 sequences (figure 3) with either controller; the LSTM network is far from it after 1,000,000. Expect about 0.01
bits per sequence from `copy` with recipe=fast, at lengths up to 20 after 60,000 sequences. The test split has the
lengths of figures 4 and 5 (10 to 120), and the run plots those figures (memory_<length>.png).
"""

from __future__ import annotations

from typing import Any

from experiments import config
from experiments.ntm import recipe

VARIANTS = ('copy', 'repeat_copy', 'recall', 'ngrams', 'sort', 'tiny')

NETWORKS = ('lstm', 'ff', 'baseline')
SIZES = {'repeat_copy': 'repeat'}  # task -> its shorter name in the model's variants
RATES = {  # tables 1 to 3
  'lstm': {'copy': 1e-4, 'repeat_copy': 1e-4, 'recall': 1e-4, 'ngrams': 3e-5, 'sort': 3e-5},
  'ff': {'copy': 1e-4, 'repeat_copy': 1e-4, 'recall': 1e-4, 'ngrams': 3e-5, 'sort': 3e-5},
  'baseline': {'copy': 3e-5, 'repeat_copy': 3e-5, 'recall': 1e-4, 'ngrams': 1e-4, 'sort': 3e-5},
}
TASKS: dict[str, dict[str, Any]] = {  # lengths as in section 4; sequences of the fast recipe; the lengths of the test
  'copy': {'min_length': 1, 'length': 20, 'sequences': 60_000, 'test_lengths': (10, 20, 30, 50, 100, 120)},
  'repeat_copy': {'min_length': 1, 'length': 10, 'sequences': 60_000, 'test_lengths': (5, 10, 20), 'test_repeats': 10},
  'recall': {'min_length': 2, 'length': 6, 'sequences': 100_000, 'test_lengths': (2, 3, 4, 5, 6, 8, 10, 12, 15, 20)},
  'ngrams': {'min_length': 200, 'length': 200, 'sequences': 50_000, 'test_lengths': ()},
  'sort': {'min_length': 20, 'length': 20, 'sequences': 100_000, 'test_lengths': ()},
}


def _optimization(recipe: str, network: str, task: str, sequences: int, rate: float) -> dict[str, Any]:
  """Return the settings of optimizer, batch, memory and number of sequences."""
  batch = 1 if recipe == 'paper' else 4  # 16 rows a step need more sequences, sometimes many more
  settings: dict[str, Any] = {'data': {'batch_size': batch, 'eval_batch_size': 64}}
  if recipe == 'paper':
    steps = (sequences or 1_000_000) // batch
    settings['model'] = {'memory': 'learned'}
    settings['optim'] = {
      'optimizer': 'rmsprop_graves',
      'lr': rate or RATES[network][task],
      'momentum': 0.9,
      'clip_value': 10.0,
    }
  else:
    steps = (sequences or TASKS[task]['sequences']) // batch
    settings['optim'] = {
      'optimizer': 'adam',
      'lr': rate or 1e-3,
      'schedule': 'cosine',
      'warmup_steps': 100,
      'clip_norm': 10.0,
    }
  return settings | {'train': {'steps': steps, 'eval_every': max(1, steps // 20), 'log_every': 100}}


@config.arguments(VARIANTS, network=NETWORKS, recipe=('fast', 'paper'), sequences=0, rate=0.0)
def get_config(variant, options):
  task = 'copy' if variant == 'tiny' else variant
  about = TASKS[task]
  base = {
    'name': f'ntm_{task}_{options.network}',
    'model': {'name': 'ntm', 'variant': f'{SIZES.get(task, task)}_{options.network}'},
    'objective': {'lengths': about['test_lengths']},
    'data': {
      'dataset': 'generated',
      'tokenizer': 'bytes',
      'batching': {
        'name': 'algorithmic',
        'task': task,
        'min_length': about['min_length'],
        'test_lengths': about['test_lengths'],
        'test_repeats': about.get('test_repeats', 0),
      },
      'length': about['length'],
    },
    'evaluation': {'baselines': False},
    'samples': {'count': 6},
  }
  optimization = _optimization(options.recipe, options.network, task, options.sequences, options.rate)
  return config.merge(base, optimization, recipe.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(seed=[0, 1, 2], optim__lr=[5e-4, 1e-3])
