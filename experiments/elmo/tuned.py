"""ELMo's bidirectional language model, tuned on the text of a task (Peters et al. 2018, arXiv 1802.05365, section 3.4).

  lmx train --config=experiments/elmo/tuned.py:squad --workdir=runs/tuned --config.data.manual_dir=DIR \\
    --config.train.init_from=runs/elmo

DIR holds the task's files. Variants: `squad`, the passages, as document-qa's model was trained again
(docqa/elmo/lm_qa_models.py, lines 33 to 42: contexts of SQuAD); `squad_own`, those of your questions; and `snli`,
premises and hypotheses. A passage, premise or hypothesis is one sentence and is read once. Option `bilm=original`,
medium, small or mini is the size of the run in train.init_from (experiments/elmo/lm1b.py, or text.py for mini).

One epoch on the training split, evaluated on the validation split; the biLM is then fixed (appendix A.1). A pipeline
trains the biLM, tunes it here and trains the task: `lmx pipeline` with experiments/bidaf/squad.py:elmo or
experiments/esim/snli.py:elmo. The paper says that most tasks have a tuned biLM. It gives the effect for SNLI only
(development accuracy 88.9 without, 89.5 with it), and for SST-5 that there is none. AllenNLP's released taggers and BCN
have the untuned biLM, and so do CoNLL 2003, CoNLL 2012 and SST-5 here.

Deviation: the output layer has the words of the task's text; those that the first vocabulary has keep their rows.
"""

from __future__ import annotations

from experiments import config
from experiments.elmo import recipe

VARIANTS = ('squad', 'squad_own', 'snli', 'tiny')
_DATA = {'squad': 'squad', 'squad_own': 'squad_files', 'snli': 'snli', 'tiny': 'embedded_questions'}


@config.arguments(VARIANTS, bilm=('original', 'medium', 'small', 'mini'))
def get_config(variant, options):
  base = {
    'name': f'elmo_tuned_{variant}',
    'model': {'name': 'elmo', 'variant': options.bilm},
    'data': {
      'dataset': _DATA[variant],
      'tokenizer': 'words',
      'characters': 24 if options.bilm == 'mini' else 50,
      'batching': {'name': 'both_ways', 'documents': 'all' if variant == 'snli' else 'first'},
      'batch_size': 128,
      'length': 20,
    },
    'optim': recipe.ADAGRAD,
    'train': {'epochs': 1, 'log_every': 50},
    'evaluation': {'which': 'last', 'split': 'valid', 'baselines': False},
  }
  mini = {'data': {'batch_size': 64, 'batching': {'reset_every': 10}}, 'objective': {'samples': 2048}}
  tiny = config.merge(
    config.tiny(),
    {
      'objective': {'samples': 50},
      'data': {'dataset': 'embedded_questions', 'vocab_size': 400, 'characters': 12},
      'train': {'epochs': 0.0},
    },
  )
  size = {'mini': mini}.get(options.bilm, {})
  return config.merge(base, size, tiny.to_dict() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[0.1, 0.2])
