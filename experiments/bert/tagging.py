"""BERT (Devlin et al. 2019, arXiv 1810.04805) as a tagger: a label for the first subword of each word, section 5.3.

  lmx train --config=experiments/bert/tagging.py:wnut17 --workdir=runs/wnut17 --config.train.init_from=runs/bert
    --config.data.manual_dir=DIR

runs/bert is a run of BERT, pre-trained here or imported, which gives sizes and tokenizer. A softmax at each word and no
CRF, as in the paper. Lower-cased models lose the capitals, which help to find names.

  variant    labels                                     published, test
  conll2003  four types of entities, F1 of spans        92.4 / 92.8 (BERT base / large, cased, fine-tuned; table 7)
  wnut17     six types of emerging entities             not in the paper; 41.86 the best of the shared task
  ud_ewt     universal parts of speech, error percent   not in the paper
  tiny       tags of the embedded corpus, no init_from: seconds on a CPU

DIR holds the files of the data set. Batch 32, 3 epochs, rate 5e-5, a tenth of the updates warm-up, linear decay,
dropout 0.1, weight decay 0.01 except on LayerNorm and biases, clipping at 1; the paper's grid is batch 16 or 32, 2 to 4
epochs and 2e-5 to 5e-5 (appendix A.3).

Options: `adam=corrected` (see experiments/bert/tasks.py), `crf` puts a CRF over the words, `epochs`, `lr`.
"""

from __future__ import annotations

from experiments import config, fine_tuning
from experiments.bert import recipe

VARIANTS = ('conll2003', 'wnut17', 'ud_ewt', 'tiny')


def get_config(arg: str = ''):
  variant, options = config.parse_arg(arg, VARIANTS, adam=('released', 'corrected'), crf=False, epochs=3.0, lr=5e-5)
  base = {
    'name': f'bert_{variant}',
    'model': {'name': 'bert', 'variant': 'base'},
    'objective': {'name': 'tag', 'crf': options.crf, 'constrained': options.crf, 'init_std': 0.02, 'dropout': 0.1},
    'data': {
      'dataset': variant,
      'tokenizer': 'wordpiece',
      'lower_case': True,
      'batching': {'name': 'tagged', 'form': 'bert', 'buckets': (16, 32, 48, 64, 96), **fine_tuning.ANY_LENGTH},
      'batch_size': 32,
      'length': 512,
    },
    **recipe.fine_tuning(options.adam, options.lr, options.epochs),
    'evaluation': {'which': 'last', 'baselines': False},
  }
  tags = {'dataset': 'embedded_tags', 'length': 320, 'batch_size': 2, 'batching': {'buckets': (32, 64, 128)}}
  return config.merge(base, fine_tuning.tiny(**tags) if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[5e-5, 4e-5, 3e-5, 2e-5], seed=[0, 1])
