"""Bidirectional attention flow on SQuAD, with and without ELMo (Peters et al. 2018, arXiv 1802.05365, appendix).

  lmx train --config=experiments/bidaf/squad.py:base --workdir=runs/squad --config.data.manual_dir=DIR
  lmx train --config=experiments/bidaf/squad.py:elmo --workdir=runs/squad-elmo --config.data.manual_dir=DIR \\
    --config.train.init_from=runs/elmo

DIR holds train-v1.1.json and dev-v1.1.json; with option `data=squad2` version 2.0's files; with `data=own` your files
in the same format, train*.json(l), dev*.json(l) and test*.json(l), which is then evaluated.

  variant   published F1 on SQuAD 1.1, validation / test (tables 1 to 3)
  base      80.8 / 81.1
  elmo      85.6 / 85.8
  seo       77.3 / 77.3 (Seo et al. 2017, table 1)

`elmo` adds the biLM of the run in train.init_from at the input and output of the contextual layer: `elmo,place=input`
or `output`; `elmo,bilm=original`, medium, small or mini; `elmo,fine_tune` trains the biLM too. `seo` is the model of
Seo et al. 2017 (arXiv 1611.01603) as released (allenai/bi-att-flow), with 2.6 million parameters and the words.

The work directory then holds predictions.json and nbest_predictions.json as the official evaluation reads them, and
with questions without an answer null_odds.json, as of experiments/bert/squad.py. To answer other questions:

  lmx predict --workdir=runs/squad --input=questions.jsonl

The paper's biLM for `elmo` was tuned on SQuAD's passages (document-qa, docqa/elmo/lm_qa_models.py, lines 33 to 42). A
pipeline of three stages does so, of which the first can be imported:

  lmx pipeline --config=experiments/bidaf/squad.py:elmo --workdir=runs/squad-elmo \\
    --config.2_tuned.data.manual_dir=DIR --config.3_task.data.manual_dir=DIR

Recipe of `base` and `elmo`: Adadelta at rate 1, 45 questions, 24 epochs (document-qa), averaged weights with decay
0.999 in evaluation, answers of at most 17 words, no penalty on the mix of ELMo's layers. `seo`: rate 0.5, 60 questions,
12 epochs, the last parameters, answers of any length. experiments/bidaf/recipe.py has the lines of the sources.

The F1 of the answers on the validation split selects the checkpoint of `base` and `elmo` (ablate_elmo_model.py, line
41; docqa/trainer.py, lines 623 to 629). `seo` evaluates the last one (allenai/bi-att-flow, basic/main.py, lines 104 to
127, and basic/graph_handler.py, lines 44 to 51).

The words have frozen GloVe vectors, 840B.300d, and of `seo` 6B.100d, whose words are in lower case: option `fixed` with
--config.data.vectors=FILE. A word that it does not have takes the vector of its lower-case form. Deviations: without it
embeddings are newly initialised and learned, so expect lower metrics; passages are read in windows of
399 words, 128 apart; words come from lmx's tokenizer. Of `seo`: with `fixed`, words without a vector are not trained;
long questions are truncated, not skipped, at 64 words instead of 30; spans come from the 20 best starts and ends.
"""

from __future__ import annotations

from typing import Any

from experiments import config
from experiments.bidaf import recipe
from experiments.elmo import recipe as elmo

VARIANTS = ('base', 'elmo', 'seo', 'tiny')


_OPTIONS: dict[str, Any] = dict(
  data=('squad', 'squad2', 'own'),
  place=('', 'both', 'input', 'output'),
  bilm=('original', 'medium', 'small', 'mini'),
  fine_tune=False,
  fixed=False,
)
_arguments = config.arguments(VARIANTS, **_OPTIONS)


@_arguments
def get_config(variant, options):
  base = {
    'name': f'bidaf_{options.data}_{variant}',
    'model': {'name': 'bidaf', 'dropout_characters': 0.2},
    'objective': {'name': 'span', 'sum_ends': True},
    'data': recipe.data('squad_files' if options.data == 'own' else options.data, 50),
    'optim': recipe.ADADELTA,
    'train': {'epochs': 24, 'eval_every': 1200, 'best_by': 'f1', 'log_every': 30},
    'evaluation': recipe.ANSWERS,
  }
  place = elmo.place(variant, options.place, 'both')
  size = elmo.task(options.bilm, place, options.fine_tune)
  if variant == 'seo':
    size = recipe.SEO
  if options.fixed:
    size = elmo.fix_words(size)
  tiny = config.merge(elmo.tiny(place, spelled=True), recipe.tiny())
  return config.merge(base, size, tiny.to_dict() if variant == 'tiny' else {})


@_arguments
def stages(variant, options):
  """Return the stages of the pipeline: the biLM, its tuning on the passages, and the questions."""
  text = 'squad_own' if options.data == 'own' else 'squad'
  return elmo.stages('bidaf/squad.py', variant, options, _OPTIONS, text)


def sweep():
  yield from config.grid(seed=[0, 1, 2])
