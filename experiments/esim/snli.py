"""ESIM (Chen et al. 2017, arXiv 1609.06038) on SNLI, with and without ELMo (Peters et al. 2018, arXiv 1802.05365).

  lmx train --config=experiments/esim/snli.py:base --workdir=runs/snli --config.data.manual_dir=DIR
  lmx train --config=experiments/esim/snli.py:elmo --workdir=runs/snli-elmo --config.data.manual_dir=DIR \\
    --config.train.init_from=runs/elmo

  variant   published accuracy, test / validation      hardware and time
  base      88.0 / 88.1 (Peters et al., tables 1, 2)   a GPU, an hour
  elmo      88.7 +- 0.17 / 89.5 (tables 1, 2, 3)       a GPU, some hours
  chen      88.0 / - (Chen et al., table 1)            a GPU, an hour

DIR holds snli_1.0_train.txt and so on. `base` and `elmo` have the settings of Peters et al.'s
appendix: layers of 300, dropout 0.5 of the input of both LSTM layers, with one mask per text, and of both
head layers, Adam at 4e-4, gradient norm at most 5, batches of 32. Validation accuracy selects the checkpoint and halves
the rate when it does not improve, as in AllenNLP (allennlp-models, training_config/pair_classification/esim.jsonnet,
lines 87 to 96); five epochs without a new best end the run. `elmo` adds
the biLM of the run in train.init_from at the input and the output of the encoding, its layers normalised, lambda 0.001,
dropout 0.5 after the attention, L2 of 1e-4 on matrices: `elmo,place=input` or `output`; `elmo,bilm=medium`,
small or mini; `elmo,mix=last`; `elmo,mix_l2=1.0`; `elmo,fine_tune`. `chen` is the model as Chen et al. released it
(lukecq1231/nli): a head with tanh, dropout of single elements, no decay, gradient norm at most 10. Each epoch without a
new best accuracy halves the rate and restores the best parameters; more than seven halvings end the run
(scripts/ESIM/main.py, lines 909 to 930). The release has no limit of 75 epochs.

Peters et al.'s biLM was tuned on SNLI's sentences, which adds 0.6 to the development accuracy (appendix A.1). A
pipeline of three stages does so, of which the first can be imported:

  lmx pipeline --config=experiments/esim/snli.py:elmo --workdir=runs/snli-elmo \\
    --config.2_tuned.data.manual_dir=DIR --config.3_task.data.manual_dir=DIR

--config.data.vectors=FILE gives the papers' word vectors, GloVe 840B.300d; option `fixed` freezes them, as in Peters et
al.

Deviations: without data.vectors embeddings are newly initialised; texts over 100 words are truncated (Chen et al. skip
such pairs in training).
"""

from __future__ import annotations

from typing import Any

from experiments import config
from experiments.elmo import recipe as elmo
from experiments.esim import recipe

VARIANTS = ('base', 'elmo', 'chen', 'tiny')


_OPTIONS: dict[str, Any] = dict(
  place=('', 'both', 'input', 'output'),
  bilm=('original', 'medium', 'small', 'mini'),
  mix=('all', 'last'),
  mix_l2=0.001,
  fine_tune=False,
  fixed=False,
)
_arguments = config.arguments(VARIANTS, **_OPTIONS)


@_arguments
def get_config(variant, options):
  place = elmo.place(variant, options.place, 'both')
  mix = {'mix': options.mix, 'mix_l2': options.mix_l2 if options.mix == 'all' else 0.0}
  base = {
    'name': f'snli_{variant}',
    'model': mix if place != 'none' else {},
    'objective': {'name': 'classify', 'metric': 'accuracy'},
    'data': {'dataset': 'snli'},
    'evaluation': {'split': 'test'},
  }
  paper = recipe.CHEN if variant == 'chen' else recipe.PETERS
  settings = recipe.settings(place, options.bilm, fine_tune=options.fine_tune, fixed=options.fixed)
  return config.merge(settings, paper, base, recipe.tiny(place) if variant == 'tiny' else {})


@_arguments
def stages(variant, options):
  """Return the stages of the pipeline: the biLM, its tuning on SNLI's sentences, and the pairs."""
  return elmo.stages('esim/snli.py', variant, options, _OPTIONS, 'snli')


def sweep():
  yield from config.grid(seed=[0, 1, 2, 3, 4])
