"""ELMo's bidirectional language model on the 1 Billion Word Benchmark (Peters et al. 2018, arXiv 1802.05365).

  lmx train --config=experiments/elmo/lm1b.py:original --workdir=runs/elmo

  variant   parameters (output layer not counted)  held-out perplexity, both ways averaged  hardware and time
  original  93.6 million                           39.7                                     3 GPUs, two weeks in 2018
  medium    28.0 million                           not published
  small     13.6 million                           not published

Released recipe (bilm-tf): 10 epochs, windows of 20 words, 128 rows on each of three GPUs, Adagrad with rate 0.2,
sampled softmax over 8,192 words of a vocabulary of 793,471 sorted by count, dropout 0.1, the state carried over. The
paper's perplexity uses the full softmax with the state carried over the whole held-out text. TFDS's `lm1b` has the text
(see data/sources.py); 2% of its held-out part is the validation split and the rest the test split. Deviation: sentences
are not reshuffled in each epoch (they are shuffled in the data set).

Option `pod` (`config.pod`) is for a TPU slice:
`lmx compile --config=experiments/elmo/lm1b.py:original,pod --topology=v5e-16 --vocabulary=793471`.
The MFU is low because a recurrent step has only 24 rows per chip; collectives take 37% of the time.

  option `pod` of  slice   GiB a chip  s an update  MFU (compiled, not run)
  original         v5e-16  3.07        0.0204       0.098
"""

from __future__ import annotations

from experiments import config
from experiments.elmo import recipe

VARIANTS = ('original', 'medium', 'small', 'tiny')


@config.arguments(VARIANTS, pod=False)
def get_config(variant, options):
  base = {
    'name': f'elmo_lm1b_{variant}',
    'model': {'name': 'elmo', 'variant': variant},
    'data': {
      'dataset': 'lm1b',
      'tokenizer': 'words',
      'vocab_size': 793_470,
      'characters': 50,
      'batching': 'both_ways',
      'batch_size': 384,
      'length': 20,
      'workers': 4,
    },
    'optim': recipe.ADAGRAD,
    'train': {'epochs': 10, 'eval_every': 10_000, 'log_every': 100},
    'evaluation': {'which': 'last', 'batch_size': 16},
  }
  tiny = {'data': {'vocab_size': 400, 'characters': 20, 'workers': 1}, 'evaluation': {'batch_size': 0}}
  pod = config.pod(pad_vocabulary=1, model={}) if options.pod else {}  # its table is read by row
  return config.merge(base, pod, config.merge(config.tiny(), tiny).to_dict() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(seed=[0, 1, 2])
