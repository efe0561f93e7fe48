"""Sentiment with the biattentive classification network (McCann et al. 2017, arXiv 1708.00107), with or without ELMo.

  lmx train --config=experiments/bcn/sst.py:sst5 --workdir=runs/sst5 --config.data.manual_dir=DIR
  lmx train --config=experiments/bcn/sst.py:sst5_elmo --workdir=runs/sst5-elmo --config.data.manual_dir=DIR \\
    --config.train.init_from=runs/elmo

  variant     published accuracy, test (Peters et al. 2018, tables 1 and 3)   hardware and time
  sst5        51.4                                                            a GPU, an hour
  sst5_elmo   54.7 +- 0.5                                                     a GPU, some hours
  sst2        none; the same without the published sizes                      one core, 10 minutes
  sst2_elmo                                                                   one core, half an hour

SST-5 is read from the treebank's files: DIR holds trees/train.txt, dev.txt and test.txt, trained on whole sentences and
phrases of four or more words, as the paper does; `phrases=all` adds shorter ones, `phrases=none` uses none. SST-2: DIR
holds train_sentences.tsv, dev.tsv and test.tsv, trained on whole sentences; `phrases=all` reads train.tsv.

`sst5_elmo` and `sst2_elmo` add the biLM of the run in train.init_from: `place=both` (the words and the integration, the
paper's), `input` (AllenNLP's) or `output`; `bilm=original`, medium, small or mini; `fine_tune` trains the biLM too. The
paper's lambda is 0.001. `classifier=relu` is Peters et al.'s, `classifier=maxout` McCann et al.'s, with batch
normalisation.

The paper has Adam at 0.0001; batches of 100, gradient norm at most 5, 40 epochs and patience 5 are AllenNLP's
(allennlp-models, training_config/classification/biattentive_classification_network.jsonnet, lines 61 to 67, and
biattentive_classification_network_elmo.jsonnet, lines 95 to 101; both have Adam at 0.001, as `sst2` here). Words have
dropout 0.25 without ELMo (line 27) and 0.5 with it (line 52). `sst2` has 128 cells instead of 300, words of 100 with
character vectors, and dropout 0.5 in both variants.

--config.data.vectors=FILE gives the paper's word vectors, GloVe 840B.300d; option `fixed` freezes them, as in AllenNLP.

Accuracy selects the checkpoint (lines 68 and 102 of the two files).

The biLM is not tuned on the task's text first, as in AllenNLP (line 77); the paper finds no difference (appendix A.1).

Deviations: without data.vectors the words of `sst5` are newly initialised, so expect lower metrics; ReLU layers have
AllenNLP's widths, because the paper gives none.
"""

from __future__ import annotations

from experiments import config
from experiments.bcn import recipe
from experiments.elmo import recipe as elmo

VARIANTS = ('sst5', 'sst5_elmo', 'sst2', 'sst2_elmo', 'tiny')
_DATA = {
  ('sst5', 'long'): 'sst5_long_phrases',
  ('sst5', 'all'): 'sst5_phrases',
  ('sst5', 'none'): 'sst5',
  ('sst2', 'all'): 'sst2_phrases',
  ('sst2', 'none'): 'sst2',
}


@config.arguments(
  VARIANTS,
  place=('', 'both', 'input', 'output'),
  phrases=('', 'long', 'all', 'none'),
  **recipe.OPTIONS,
)
def get_config(variant, options):
  task = 'sst2' if variant.startswith('sst2') else 'sst5'
  phrases = options.phrases or {'sst5': 'long', 'sst2': 'none'}[task]
  if (task, phrases) not in _DATA:
    raise ValueError(f'phrases: got "{phrases}" with {task}; expected all or none')
  place = elmo.place(variant, options.place, 'both')
  base = {
    'name': f'bcn_{variant}',
    'model': {**(recipe.SMALL if task == 'sst2' else {}), **({'dropout': 0.25} if variant == 'sst5' else {})},
    'objective': {'name': 'classify'},
    'data': {
      'dataset': _DATA[task, phrases],
      'batching': {'name': 'documents', 'buckets': (16, 24, 32, 48)},
      'batch_size': 100 if task == 'sst5' else 32,
      'length': 64,
    },
    'optim': {'lr': 1e-4 if task == 'sst5' else 1e-3},
    'train': {'best_by': 'accuracy'},
  }
  topics = {'dataset': 'embedded_topics', 'batching': {'buckets': ()}}
  tiny = config.merge(elmo.tiny(place), {'data': topics, 'train': {'epochs': 0}})
  return config.merge(recipe.settings(place, options), base, tiny.to_dict() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(seed=[0, 1, 2, 3, 4])
