"""The biattentive classification network (McCann et al. 2017, arXiv 1708.00107) on your table, with or without ELMo.

  lmx train --config=experiments/bcn/tasks.py:own --workdir=runs/labels --config.data.manual_dir=DIR
  lmx train --config=experiments/bcn/tasks.py:own,place=both,bilm=mini --workdir=runs/labels-elmo \\
    --config.data.manual_dir=DIR --config.train.init_from=runs/elmo

  variant     your table (docs/which_model.md)
  own         accuracy; the columns text and label, or --config.data.texts=review --config.data.label=stars
  own_pairs   accuracy of two texts, sentence1 and sentence2, or --config.data.texts="('premise','hypothesis')"
  own_scores  Pearson's correlation with numeric scores, of one text or two
  tiny        pairs from the embedded corpus: seconds on a CPU

The paper has SST, IMDb, TREC, SNLI and SQuAD with GloVe vectors and CoVe. Here the network has the sizes of
experiments/bcn/sst.py:sst2: 128 cells, words of 100 with character vectors, dropout 0.5, Adam at 0.001, batches of 32,
patience 5. The task's metric selects the checkpoint.

`vectors=RUN or FILE` gives word vectors: a run of word2vec, or GloVe's or word2vec's file; with ELMo a text file. Other
options as in sst.py; `place=none` has no ELMo.
"""

from __future__ import annotations

from experiments import config, fine_tuning, glue
from experiments.bcn import recipe
from experiments.elmo import recipe as elmo

VARIANTS = (*glue.OWN, 'tiny')


@config.arguments(VARIANTS, place=('none', 'input', 'output', 'both'), vectors='', **recipe.OPTIONS)
def get_config(variant, options):
  base = {
    'name': f'bcn_{variant}',
    'model': {**recipe.SMALL, 'texts': 0},
    'data': {
      'batching': {'name': 'texts', 'form': 'separate', 'buckets': (16, 24, 32, 48, 64)},
      'batch_size': 32,
      'length': 128,
    },
    'train': {'best_by': 'headline'},
    'evaluation': {'split': fine_tuning.measured_split(variant), 'baselines': False},
  }
  settings = recipe.settings(options.place, options)
  if variant == 'tiny':
    changes = {
      'objective': {'name': 'classify', 'metric': 'accuracy'},
      'data': {'dataset': 'embedded_pairs', 'batching': {'buckets': ()}},
      'train': {'epochs': 0},
      'evaluation': {'split': 'test'},
    }
    return config.merge(base, settings, elmo.tiny(options.place), changes, {'model': {'F': 12, 'D': 8}})
  head = {'objective': recipe.HEAD} if variant == 'own_scores' else {}
  vectors = fine_tuning.word_vectors(options.vectors, elmo=options.place != 'none')
  return config.merge(base, head, settings, glue.own(variant), vectors)


def sweep():
  yield from config.grid(seed=[0, 1], optim__lr=[5e-4, 1e-3])
