"""Named entities in WNUT-17 with and without ELMo (the tagger of Peters et al. 2018, arXiv 1802.05365, appendix A.6).

  lmx train --config=experiments/elmo/wnut17.py:base --workdir=runs/ner --config.data.manual_dir=DIR
  lmx train --config=experiments/elmo/wnut17.py:elmo --workdir=runs/ner-elmo --config.data.manual_dir=DIR \\
    --config.train.init_from=runs/elmo

DIR holds the published files or train.conll, dev.conll and test.conll. `base` is the tagger without ELMo: word
embeddings, words from characters, two LSTM layers each way, a CRF. `elmo` adds the biLM of the run in train.init_from,
its layers mixed with learned weights: `elmo,place=input`, `output` or `both`; `elmo,bilm=mini` (of
experiments/elmo/text.py), small, medium, original; `elmo,fine_tune` trains the biLM too.

`own` and `own_elmo` are the same on your sentences, with a label for each word (docs/which_model.md).

The paper's tagger is evaluated on CoNLL 2003 (experiments/elmo/conll2003.py). On WNUT-17 the best system of the shared
task has a test F1 of 41.86. Deviations, because there are no pre-trained word vectors by default
(--config.data.vectors=FILE gives them, and their width becomes model.E): embeddings of 100, 30
character filters and a projection, Adam at 0.002 with linear decay, dropout 0.3, 20 epochs; the last is evaluated, and
the best checkpoint has the highest F1 of spans (allennlp-models, training_config/tagging/ner_elmo.jsonnet, line 97).
The mix's lambda is 0; the CoNLL 2003 tagger has --config.model.mix_l2=0.1.
"""

from __future__ import annotations

from experiments import config, fine_tuning, glue
from experiments.elmo import recipe

VARIANTS = ('base', 'elmo', 'own', 'own_elmo', 'tiny')


@config.arguments(
  VARIANTS, place=('', 'input', 'output', 'both'), bilm=('mini', 'small', 'medium', 'original'), fine_tune=False
)
def get_config(variant, options):
  own = variant.startswith('own')
  base = {
    'name': f'{"bilstm" if own else "wnut17"}_{variant}',
    'model': {'name': 'bilstm', 'dropout': 0.3, **({} if variant == 'tiny' else recipe.OWN_WORDS)},
    'objective': {'name': 'tag'},
    'data': {
      'dataset': 'wnut17',
      'tokenizer': 'words',
      'min_count': 2,  # rarer words share an embedding and differ by their characters
      'characters': 24,
      'batching': {'name': 'tagged', 'buckets': (16, 24, 32, 48, 64)},
      'batch_size': 32,
      'length': 128,
    },
    'optim': {'optimizer': 'adam', 'lr': 2e-3, 'schedule': 'linear', 'clip_norm': 5.0},
    'train': {'epochs': 20, 'best_by': 'headline', 'log_every': 50},
    # The F1 still rises after the likelihood of the labels has stopped rising.
    'evaluation': {'split': fine_tuning.measured_split(variant, VARIANTS), 'which': 'last'},
  }
  place = recipe.place(variant, options.place, 'input')
  size = recipe.task(options.bilm, place, options.fine_tune)
  tags = {'dataset': 'embedded_tags', 'length': 64, 'batching': {'buckets': ()}}
  tiny = config.merge(recipe.tiny(place, spelled=True), {'data': tags})
  return config.merge(base, size, glue.OWN_TAGS if own else {}, tiny.to_dict() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(seed=[0, 1, 2])
