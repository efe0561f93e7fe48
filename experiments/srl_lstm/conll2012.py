"""Semantic roles in CoNLL-2012 (OntoNotes 5) with and without ELMo (Peters et al. 2018, arXiv 1802.05365, appendix A).

  lmx train --config=experiments/srl_lstm/conll2012.py:base --workdir=runs/srl --config.data.manual_dir=DIR
  lmx train --config=experiments/srl_lstm/conll2012.py:elmo --workdir=runs/srl-elmo --config.data.manual_dir=DIR \\
    --config.train.init_from=runs/elmo

  variant   published F1, test (table 1)    development (tables 2 and 3)    hardware and time
  base      81.4                            81.6                            a GPU, some days
  elmo      84.6                            84.7 to 84.8                    a GPU, a week

DIR is conll-formatted-ontonotes-5.0/data, with the folders train, development and conll-2012-test, or holds one file of
each. The model follows He et al. 2017 (experiments/srl_lstm/conll2005.py). `elmo` adds the biLM of the run in
train.init_from at the input of the first layer: `elmo,bilm=original`, medium, small or mini; `elmo,place=output` or
`both`; `elmo,mix_l2=1` is lambda of the mix, 0.001 by default, and `elmo,mix=last` reads only the last layer;
`elmo,fine_tune` trains the biLM too. The settings are AllenNLP's (training_config/semantic_role_labeler_elmo.jsonnet):
80 sentences, Adadelta with rho 0.95 and PyTorch's epsilon 1e-6, each element of the gradient at most 1, dropout 0.1 of
ELMo, 500 epochs, patience 200. The loss is the mean over sentences of the means over their words
(allennlp_models/structured_prediction/models/srl.py, line 314; allennlp/nn/util.py, lines 835 to 843). The F1 of spans
selects the checkpoint (allennlp-models, training_config/structured_prediction/srl_elmo.jsonnet, line 62). With
--config.data.vectors=glove.6B.100d.txt word embeddings start from GloVe, as in the paper.

The biLM is not tuned on the task's text first, as in AllenNLP's srl_elmo.jsonnet, line 19 (see
experiments/elmo/tuned.py).

Deviations: as for the model; without data.vectors embeddings are newly initialised, so expect lower metrics; with
ELMo words keep their case.
"""

from __future__ import annotations

from experiments import config
from experiments.srl_lstm import recipe

VARIANTS = recipe.VARIANTS


@recipe.arguments
def get_config(variant, options):
  return recipe.settings(variant, options, 'conll2012', 512, 'row_means', {'clip_value': 1.0}, {'patience': 200})


def sweep():
  yield from config.grid(seed=[0, 1, 2, 3, 4])
