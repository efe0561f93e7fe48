"""Self-attention with any score on your table: a class or a score of each text.

  lmx train --config=experiments/self_attention/tasks.py:own,score=general --workdir=runs/labels \\
    --config.data.manual_dir=DIR

  variant     your table (docs/which_model.md)
  own         accuracy; the columns text and label, or --config.data.texts=review --config.data.label=stars
  own_scores  Pearson's correlation with numeric scores
  tiny        topics of the embedded corpus: seconds on a CPU

Options as in quickstart.py. The encoder has width 128 and is newly initialised; a row has at most 128 words, the last
of a longer text. The task's metric selects the checkpoint. `vectors=RUN or FILE` gives word vectors, a run of word2vec
or GloVe's or word2vec's file; the encoder then has their width.

The encoder reads one text. For two texts: experiments/esim/pairs.py:own_pairs.
"""

from __future__ import annotations

from experiments import config, fine_tuning, glue
from experiments.self_attention import recipe

VARIANTS = ('own', 'own_scores', 'tiny')


@config.arguments(VARIANTS, vectors='', **recipe.OPTIONS)
def get_config(variant, options):
  base = {
    'data': {'batching': {'name': 'documents', 'buckets': (16, 24, 32, 48, 64)}, 'length': 128},
    'train': {'epochs': 20, 'patience': 5, 'best_by': 'headline', 'log_every': 50},
    'evaluation': {'split': fine_tuning.measured_split(variant)},
  }
  settings = recipe.classifier(variant, options)
  if variant == 'tiny':
    return config.merge(settings, base, {'evaluation': {'split': 'test'}}, recipe.tiny())
  vectors = fine_tuning.word_vectors(options.vectors)
  width = {'model': {'D': 0}} if vectors else {}  # that of the vectors
  return config.merge(settings, base, glue.own(variant), vectors, width)


def sweep():
  yield from config.grid(model__score=list(recipe.SCORES))
