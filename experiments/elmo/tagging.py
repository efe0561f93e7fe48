"""Labels of the words of your sentences by the tagger of ELMo (Peters et al. 2018, arXiv 1802.05365, appendix A.6).

  lmx train --config=experiments/elmo/tagging.py:own --workdir=runs/tagger --config.data.manual_dir=DIR
  lmx train --config=experiments/elmo/tagging.py:own_elmo,bilm=mini --workdir=runs/tagger-elmo \\
    --config.data.manual_dir=DIR --config.train.init_from=runs/elmo

DIR holds train.conll or other formats (docs/which_model.md). `own` has words of 100 with character vectors, two LSTM
layers each way and a CRF; `own_elmo` adds the biLM of the run in train.init_from; `tiny` takes seconds on a CPU. Recipe
and other options are those of experiments/elmo/wnut17.py. `vectors=RUN or FILE` gives word vectors: a run of word2vec,
or GloVe's or word2vec's file; with ELMo a text file.
"""

from __future__ import annotations

from experiments import config, fine_tuning, glue
from experiments.elmo import recipe

VARIANTS = ('own', 'own_elmo', 'tiny')


@config.arguments(VARIANTS, vectors='', **recipe.TAGGER)
def get_config(variant, options):
  settings = recipe.tagger(variant, options)
  if variant == 'tiny':
    return settings
  own = {'name': f'bilstm_{variant}', 'evaluation': {'split': fine_tuning.measured_split(variant)}}
  vectors = fine_tuning.word_vectors(options.vectors, elmo=variant == 'own_elmo')
  return config.merge(settings.to_dict(), glue.OWN_TAGS, own, vectors)


def sweep():
  yield from config.grid(seed=[0, 1, 2])
