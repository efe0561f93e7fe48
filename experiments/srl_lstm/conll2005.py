"""Semantic roles in CoNLL-2005 (He et al. 2017, "Deep Semantic Role Labeling: What Works and What's Next", section 3).

  lmx train --config=experiments/srl_lstm/conll2005.py:base --workdir=runs/srl --config.data.manual_dir=DIR
  lmx evaluate --workdir=runs/srl --split=test_brown
  lmx train --config=experiments/srl_lstm/conll2005.py:elmo --workdir=runs/srl-elmo --config.data.manual_dir=DIR \\
    --config.train.init_from=runs/elmo
  lmx train --config=experiments/srl_lstm/conll2005.py:tiny --workdir=runs/tiny       seconds: a smoke test
  lmx predict --workdir=runs/srl --input=FILE.jsonl      lines {"tokens": ["She", "sold", "it"], "predicate": 1}

  variant   published F1                                    hardware and time
  base      83.2 of an ensemble of five (abstract)          a GPU, about a day
  elmo      not published                                   a GPU, some days

DIR holds train-set, dev-set, test-wsj and test-brown (lmx/data/builders/descriptions.md). The settings follow the
released code (config/srl_config.json): embeddings of 100 for words and the predicate bit, eight layers of 300 cells,
dropout 0.1, 80 sentences, Adadelta with rho 0.95, epsilon 1e-6 and a rate of 1, gradient norm at most 1, 500 epochs.
The loss is the sum over the words of a sentence and the mean over sentences (python/neural_srl/theano/layer.py, lines
89 and 90). The norm is that of its gradient (theano/tagger.py, lines 99 to 102; epsilon: theano/optimizer.py, line 9).
The F1 of spans selects the checkpoint (python/neural_srl/shared/evaluation.py, lines 52 to 56 and 125 to 127;
python/train.py, line 34). `elmo` adds the biLM of the run in train.init_from, with the options of conll2012.py. With
--config.data.vectors=glove.6B.100d.txt word embeddings start from GloVe, as in the paper.

Deviations: as for the model; without data.vectors embeddings are newly initialised, so expect lower metrics;
training words that GloVe lacks have their own embeddings; sentences over 100 words are also trained on.
"""

from __future__ import annotations

from experiments import config
from experiments.srl_lstm import recipe

VARIANTS = recipe.VARIANTS


@recipe.arguments
def get_config(variant, options):
  return recipe.settings(variant, options, 'conll2005', 256, 'rows', {'clip_norm': 1.0}, {})


def sweep():
  yield from config.grid(seed=[0, 1, 2, 3, 4])
