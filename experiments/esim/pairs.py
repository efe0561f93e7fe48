"""ESIM (Chen et al. 2017, arXiv 1609.06038) on text pairs, with and without ELMo: GLUE's tasks, SciTail, your own.

  lmx train --config=experiments/esim/pairs.py:mrpc --workdir=runs/mrpc --config.data.manual_dir=DIR
  lmx train --config=experiments/esim/pairs.py:mrpc,place=both --workdir=runs/mrpc-elmo --config.data.manual_dir=DIR \\
    --config.train.init_from=runs/elmo

Variants: GLUE's tasks of two texts (mrpc, qqp, stsb, mnli, qnli, rte, wnli), `scitail`, your table with two texts per
row (docs/which_model.md), and `tiny`. `own` and `own_pairs` read labels, `own_scores` numeric scores, of the columns
sentence1 and sentence2, or --config.data.texts="('premise','hypothesis')". The biLM of the run in train.init_from is at
the place of option `place`, input, output or both (see experiments/esim/snli.py): `bilm=mini`, small, medium or
original; `fine_tune`. GLUE's test labels are not public, so its tasks are evaluated on the validation split, or with
--config.evaluation.split=test if the files have labels.

No paper reports ESIM without ELMo on these tasks. The tasks are small and there are no pre-trained word vectors. So the
model is half as wide as on SNLI, and a word has an embedding of 100 and a character vector. `vectors=RUN or FILE` gives
word vectors: a run of word2vec, or GloVe's or word2vec's file; with ELMo a text file. The task's metric selects the
checkpoint and halves the rate. Otherwise as snli.py.
"""

from __future__ import annotations

from experiments import config, fine_tuning, glue
from experiments.elmo import recipe as elmo_recipe
from experiments.esim import recipe

SINGLE = ('cola', 'sst2')  # tasks of one text
VARIANTS = (*(name for name in glue.TASKS if name not in SINGLE), 'scitail', *glue.OWN, 'tiny')


@config.arguments(
  VARIANTS,
  place=('none', 'input', 'output', 'both'),
  bilm=('mini', 'small', 'medium', 'original'),
  fine_tune=False,
  vectors='',
)
def get_config(variant, options):
  settings = recipe.settings(options.place, options.bilm, fine_tune=options.fine_tune)
  base = {
    'name': f'esim_{variant}',
    'model': {'D': 150, 'F': 150, **elmo_recipe.OWN_WORDS},
    'objective': {'head': (150,)},
    'train': {'epochs': 20},
    'evaluation': {'split': fine_tuning.measured_split(variant)},
  }
  if variant == 'tiny':
    return config.merge(settings, recipe.PETERS, {'objective': {'name': 'classify'}}, recipe.tiny(options.place))
  words = {'data': {'characters': 24}}  # with ELMo as the biLM
  task = glue.own(variant, texts=2) if variant in glue.OWN else glue.task(variant)
  vectors = fine_tuning.word_vectors(options.vectors, elmo=options.place != 'none')
  return config.merge(words, settings, recipe.PETERS, base, task, vectors)


def sweep():
  yield from config.grid(seed=[0, 1], optim__lr=[4e-4, 1e-3])
