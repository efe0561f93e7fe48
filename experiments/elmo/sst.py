"""Sentiment of sentences (SST-2) with and without ELMo (Peters et al. 2018, arXiv 1802.05365, sections 3.2 and 4).

  lmx train --config=experiments/elmo/sst.py:base --workdir=runs/sst --config.data.manual_dir=DIR
  lmx train --config=experiments/elmo/sst.py:elmo --workdir=runs/sst-elmo --config.data.manual_dir=DIR \\
    --config.train.init_from=runs/elmo

DIR holds train_sentences.tsv, dev.tsv and test.tsv. `base` is a bidirectional LSTM, pooled as
[last; max; mean], with a hidden layer; `elmo` adds the biLM of the run in train.init_from: `elmo,place=input`,
`output` or `both`; `elmo,bilm=mini`, small, medium, original; `elmo,fine_tune`. Option `phrases` also trains on the
trees' phrases. --config.data.vectors=FILE starts from word vectors, whose width becomes model.E.

The paper has the five classes of SST-5 and the classifier of McCann et al. 2017 (BCN): test accuracy 51.4 without and
54.7 with ELMo. GLUE's authors report 90.4 for two classes, with ELMo and attention (Devlin et al. 2019, table 1).
"""

from __future__ import annotations

from experiments import config
from experiments.elmo import recipe

VARIANTS = ('base', 'elmo', 'tiny')


@config.arguments(
  VARIANTS,
  place=('', 'input', 'output', 'both'),
  bilm=('mini', 'small', 'medium', 'original'),
  fine_tune=False,
  phrases=False,
)
def get_config(variant, options):
  base = {
    'name': f'sst2_{variant}',
    'model': {'name': 'bilstm', 'N': 1, 'dropout': 0.2, **({} if variant == 'tiny' else recipe.OWN_WORDS)},
    'objective': {'name': 'classify', 'bptt': 0, 'dropout_pooled': 0.2, 'dropout_head': 0.2},
    'data': {
      'dataset': 'sst2_phrases' if options.phrases else 'sst2',
      'tokenizer': 'words',
      'characters': 24,
      'batching': {'name': 'documents', 'buckets': (16, 24, 32, 48)},
      'batch_size': 32,
      'length': 64,
    },
    'optim': {'optimizer': 'adam', 'lr': 2e-3, 'clip_norm': 5.0},
    'train': {'epochs': 8, 'patience': 3, 'log_every': 50},
  }
  place = recipe.place(variant, options.place, 'input')
  size = recipe.task(options.bilm, place, options.fine_tune)
  tiny = config.merge(
    recipe.tiny(place, spelled=True), {'data': {'dataset': 'embedded_topics', 'batching': {'buckets': ()}}}
  )
  return config.merge(base, size, tiny.to_dict() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(seed=[0, 1, 2])
