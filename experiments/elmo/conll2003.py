"""Named entities in CoNLL 2003 with and without ELMo (Peters et al. 2018, arXiv 1802.05365, section 4, appendix A.6).

  lmx train --config=experiments/elmo/conll2003.py:base --workdir=runs/ner --config.data.manual_dir=DIR
  lmx train --config=experiments/elmo/conll2003.py:elmo --workdir=runs/ner-elmo --config.data.manual_dir=DIR \\
    --config.train.init_from=runs/elmo

  variant   published F1 of spans, test (tables 1 and 3)   hardware and time
  base      90.15                                           a GPU, an hour
  elmo      92.22 +- 0.10                                   a GPU, some hours

DIR holds eng.train, eng.testa and eng.testb. `elmo` adds the biLM of the run in train.init_from at the input of the
tagger: `elmo,bilm=original`, medium, small or mini; `elmo,place=output` or `both`; `elmo,fine_tune` trains the biLM
too. The settings are AllenNLP's (training_config/ner_elmo.jsonnet): embeddings of 50, 128 character filters of width 3,
two layers of 200 cells each way, dropout 0.5, a CRF, lambda 0.1, 64 sentences, Adam at 0.001, gradient norm at most 5,
75 epochs, patience 25; the F1 of spans selects the checkpoint (line 97). The loss is the sum over the batch of the
sentences' negative log-likelihoods, to which clipping and lambda apply (allennlp/modules/conditional_random_field/
conditional_random_field.py, line 365; allennlp_models/tagging/models/crf_tagger.py, line 334). With
--config.data.vectors=FILE its embeddings start from Senna's directory (the paper) or glove.6B.50d.txt (AllenNLP).

The biLM is not tuned on the task's text first, as in ner_elmo.jsonnet, line 47 (see experiments/elmo/tuned.py).

Deviations: without data.vectors embeddings are newly initialised, so expect lower metrics; words keep their case,
and a word without a vector takes its lower-case form's; labels are BIO, not BIOUL.
"""

from __future__ import annotations

from experiments import config
from experiments.elmo import recipe

VARIANTS = ('base', 'elmo', 'tiny')


@config.arguments(
  VARIANTS, place=('', 'input', 'output', 'both'), bilm=('original', 'medium', 'small', 'mini'), fine_tune=False
)
def get_config(variant, options):
  base = {
    'name': f'conll2003_{variant}',
    'model': {'name': 'bilstm', **({} if variant == 'tiny' else {'mix_l2': 0.1})},
    'objective': {'name': 'tag', 'reduction': 'sum'},
    'data': {
      'dataset': 'conll2003',
      'tokenizer': 'words',
      'characters': 50,
      'batching': {'name': 'tagged', 'buckets': (8, 16, 24, 32, 48, 64)},
      'batch_size': 64,
      'length': 128,
    },
    'optim': {'optimizer': 'adam', 'lr': 1e-3, 'clip_norm': 5.0},
    'train': {'epochs': 75, 'patience': 25, 'best_by': 'headline', 'log_every': 50},
  }
  place = recipe.place(variant, options.place, 'input')
  size = recipe.task(options.bilm, place, options.fine_tune)
  tags = {'dataset': 'embedded_tags', 'length': 64, 'batching': {'buckets': ()}}
  tiny = config.merge(recipe.tiny(place, spelled=True), {'data': tags, 'train': {'epochs': 0}})
  return config.merge(base, size, tiny.to_dict() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(seed=[0, 1, 2, 3, 4])
