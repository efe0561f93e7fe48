"""Named entities in WNUT-17 with and without ELMo (the tagger of Peters et al. 2018, arXiv 1802.05365, appendix A.6).

  lmx train --config=experiments/elmo/wnut17.py:base --workdir=runs/ner --config.data.manual_dir=DIR
  lmx train --config=experiments/elmo/wnut17.py:elmo --workdir=runs/ner-elmo --config.data.manual_dir=DIR \\
    --config.train.init_from=runs/elmo

DIR holds the published files or train.conll, dev.conll and test.conll. `base` is the tagger without ELMo: word
embeddings, words from characters, two LSTM layers each way, a CRF. `elmo` adds the biLM of the run in train.init_from,
its layers mixed with learned weights: `elmo,place=input`, `output` or `both`; `elmo,bilm=mini` (of
experiments/elmo/text.py), small, medium, original; `elmo,fine_tune` trains the biLM too.

experiments/elmo/tagging.py is the same on your sentences.

The paper's tagger is evaluated on CoNLL 2003 (experiments/elmo/conll2003.py). On WNUT-17 the best system of the shared
task has a test F1 of 41.86. Deviations, because there are no pre-trained word vectors by default
(--config.data.vectors=FILE gives them, and their width becomes model.E): embeddings of 100, 30
character filters and a projection, Adam at 0.002 with linear decay, dropout 0.3, 20 epochs; the last is evaluated, and
the best checkpoint has the highest F1 of spans (allennlp-models, training_config/tagging/ner_elmo.jsonnet, line 97).
The mix's lambda is 0; the CoNLL 2003 tagger has --config.model.mix_l2=0.1.
"""

from __future__ import annotations

from experiments import config
from experiments.elmo import recipe

VARIANTS = ('base', 'elmo', 'tiny')


@config.arguments(VARIANTS, **recipe.TAGGER)
def get_config(variant, options):
  return recipe.tagger(variant, options)


def sweep():
  yield from config.grid(seed=[0, 1, 2])
