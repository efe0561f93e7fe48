"""GPT (Radford et al. 2018) fine-tuned on GLUE, SNLI, SciTail, RACE, the Story Cloze Test, or your table.

  lmx train --config=experiments/gpt/tasks.py:rte --workdir=runs/rte --config.train.init_from=runs/gpt
    --config.data.manual_dir=GLUE

runs/gpt is a run of GPT, pre-trained here (experiments/gpt/books.py) or imported, which gives the sizes and tokenizer.
Three special tokens are added: start, delimiter and classify. A single text is between start and classify, a pair has
the delimiter between its texts. For symmetric pairs (mrpc, qqp, stsb) both orders are read and their final states added
(sections 3.2, 3.3 and 4.2). A question is read once with each choice.

  variant     metric                                         published (tables 2 and 4)
  cola        Matthews' correlation                          45.4
  sst2        accuracy                                       91.3
  mrpc        F1 of "equivalent"                             82.3
  qqp         F1 of "duplicate"                              70.3
  stsb        Pearson's correlation                          82.0
  mnli        accuracy, matched                              82.1
  qnli        accuracy                                       88.1
  rte         accuracy                                       56.0
  wnli        accuracy                                       none
  snli        accuracy                                       89.9
  scitail     accuracy                                       88.3
  race        accuracy                                       59.0
  story_cloze accuracy                                       86.5, of one run; the authors' README has a median of 85.8
  swag        accuracy                                       none; 78.0 in table 4 of Devlin et al. 2019
  own         accuracy on your table, see docs/which_model.md
  own_pairs   the same of two texts, sentence1 and sentence2, or --config.data.texts="('premise','hypothesis')"
  own_scores  Pearson's correlation on your table with numeric scores, of one text or two
  tiny        topics of the embedded corpus, one text per row: seconds on a CPU

Published GLUE metrics are from its test server. Its test labels are not public, so metrics here are on the validation
split, as noted in experiments/tables/gpt_tasks.py. docs/fine_tune.md describes `own`.

Batch 32, 3 epochs, rate 6.25e-5, warm-up over 0.2% of the updates, linear decay, dropout 0.1 before the linear layer,
auxiliary language model with lambda = 0.5 (section 4.1); clipping at 1, decay 0.01 only on matrices and epsilon 1e-8
outside the bias correction as released. The released code also applies the linear decay during the warm-up. Added
vocabulary rows are initialised with the mean of the others; the released code initialises them randomly.

Validation accuracy selects the checkpoint (train.py, lines 276 to 290 and 438 to 440; a validation per epoch). The
release has only the Story Cloze Test; STS-B and `own_scores`, which have no accuracy, evaluate the last one.

A batch mixes rows of any length, as released; see experiments/bert/tasks.py. Rows have at most 512 tokens, or the
positions of runs/gpt; the released code pads all to the longest example, up to 512.

Table 5: `lm=false` omits the auxiliary loss; `scratch` starts from new parameters, with the tokenizer of
--config.data.tokenizer_path=runs/gpt/tokenizer; `lstm` starts from a run of experiments/gpt/books.py:lstm. The table's
split is not printed.

`level` of RACE is `middle` for RACE-M and `high` for RACE-H, such as in
`lmx evaluate --workdir=runs/race --config=experiments/gpt/tasks.py:race,level=high --config.data.manual_dir=DIR`.

Further options: `epochs`, `lr`; and `fidelity`, for details that the paper does not print:

                               released                          paper
  dropout of embeddings        of the table's entries            of the sum of token and position (lmx/models/gpt.py)
  dropout of choices' states   one mask for all of a row         a mask each
  rate of the weight decay     scheduled, with bias correction   scheduled
"""

from __future__ import annotations

from experiments import config, fine_tuning, glue
from experiments.gpt import recipe

VARIANTS = (*glue.TASKS, 'snli', 'scitail', *glue.CHOICES, *glue.OWN, 'tiny')
SYMMETRIC = ('mrpc', 'qqp', 'stsb')


@config.arguments(
  VARIANTS,
  fidelity=('released', 'paper'),
  lm=True,
  scratch=False,
  lstm=False,
  epochs=3.0,
  lr=6.25e-5,
  level=('all', 'middle', 'high'),
)
def get_config(variant, options):
  released, scored = options.fidelity == 'released', variant in ('stsb', 'own_scores')
  start = {} if options.scratch else {'init_parts': ('model',), 'like_init': True}
  base = {
    'name': f'gpt_{variant}',
    'model': {'name': 'gpt', 'variant': 'base', 'fidelity': options.fidelity, **recipe.dropout(0.1)},
    'objective': {**fine_tuning.LINEAR_HEAD, 'pooling': 'last', 'lm_weight': 0.5 if options.lm else 0.0},
    'data': {
      'tokenizer': 'bpe',
      'special_tokens': recipe.SPECIAL_TOKENS,
      'batching': {
        'name': 'texts',
        'form': 'gpt',
        'both_orders': variant in SYMMETRIC,
        'buckets': (16, 32, 48, 64, 96, 256),
        **fine_tuning.ANY_LENGTH,
      },
      'batch_size': 32,
      'length': 512,
    },
    'optim': {
      'optimizer': 'adamw',
      'eps': 1e-8,
      'eps_form': 'uncorrected',
      'decay_form': 'bias_corrected' if released else 'scheduled',
      'lr': options.lr,
      'weight_decay': 0.01,
      'clip_norm': 1.0,
      'schedule': 'linear',
      'schedule_origin': 'multiplied',
      'warmup_fraction': 0.002,
      'groups': config.DECAY_MATRICES_ONLY,
    },
    'train': {'epochs': options.epochs, 'best_by': 'loss' if scored else 'accuracy', **start},
    'evaluation': {
      'split': fine_tuning.measured_split(variant),
      'which': 'last' if scored else 'best',
      'baselines': False,
    },
  }
  task = glue.task('own' if variant == 'tiny' else variant)
  level = {'data': {'dataset': f'race/{options.level}'}} if variant == 'race' and options.level != 'all' else {}
  if options.lstm:
    base['model'] = recipe.lstm('float32')
  mask = {'objective': {'one_mask': released}} if variant in glue.CHOICES else {}
  return config.merge(base, task, level, mask, glue.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[3e-5, 6.25e-5, 1e-4], seed=[0, 1])
