"""BERT (Devlin et al. 2019, arXiv 1810.04805) fine-tuned on GLUE, SNLI, SciTail, SWAG, or your table.

  lmx import --from=DIR --workdir=runs/bert
  lmx train --config=experiments/bert/tasks.py:cola --workdir=runs/cola --config.train.init_from=runs/bert
    --config.data.manual_dir=GLUE

runs/bert may be any run of BERT, pre-trained here or imported, which gives the sizes and tokenizer. GLUE holds the
benchmark's archives unpacked (CoLA/train.tsv, ...). Without init_from a model of BERT base's size is newly initialised,
which is useful only as a comparison.

  variant     metric                                         published, BERT base / large, GLUE's test server (table 1)
  cola        Matthews' correlation                          52.1 / 60.5
  sst2        accuracy                                       93.5 / 94.9
  mrpc        F1 of "equivalent"                             88.9 / 89.3
  qqp         F1 of "duplicate"                              71.2 / 72.1
  stsb        Pearson's correlation (the paper: Spearman's)  85.8 / 86.5
  mnli        accuracy, matched                              84.6 / 86.7
  qnli        accuracy                                       90.5 / 92.7
  rte         accuracy                                       66.4 / 70.1
  wnli        accuracy                                       omitted in the paper
  snli        accuracy                                       not in the paper
  scitail     accuracy                                       not in the paper
  swag        accuracy                                       81.6 / 86.6 on the validation split (table 4)
  race        accuracy                                       not in the paper
  story_cloze accuracy                                       not in the paper
  own         accuracy on your table, see docs/which_model.md
  own_pairs   the same of two texts, sentence1 and sentence2, or --config.data.texts="('premise','hypothesis')"
  own_scores  Pearson's correlation on your table with numeric scores, of one text or two
  tiny        topics of the embedded corpus, one text per row: seconds on a CPU

Sections 4.1 and 4.4. GLUE's and SWAG's test labels are not public, so metrics here are on the validation split;
docs/fine_tune.md describes `own`. MNLI's mismatched part: `lmx evaluate --workdir=runs/mnli --split=valid_mismatched`.

Batch 32, 3 epochs, 128 tokens, rate 2e-5 (the paper takes the best of 5e-5, 4e-5, 3e-5 and 2e-5 on the validation
split), 10% warm-up, linear decay, dropout 0.1, weight decay 0.01 except on LayerNorm and biases,
clipping at 1. SWAG: batch 16 (section 4.4). A batch mixes rows of any length, as released. One device packs them end to
end (unless --config.data.batching.packed=False). Several devices process groups of similar length
(--config.data.batching.groups=1 is often faster on many or fast devices). --config.data.batching.pool=50 sorts the rows
of 50 batches by length, which changes the batches.

Option `adam`: 'released' (default) has no bias correction, as google-research/bert; 'corrected' has it, which reduces
the variance over seeds on small data sets (Mosbach et al. 2021, arXiv 2006.04884; Zhang et al. 2021, arXiv 2006.05987).
Options `epochs` and `lr`. Options of section 5.1, for a run pre-trained with `left_to_right`
(experiments/bert/pretrain.py), whose first token attends only to itself: `left_to_right` classifies the last token, as
GPT does (the paper does not specify), or `bilstm` puts a two-layer BiLSTM of 768 cells per direction in between.
"""

from __future__ import annotations

from experiments import config, fine_tuning, glue
from experiments.bert import recipe

VARIANTS = (*glue.TASKS, 'snli', 'scitail', *glue.CHOICES, *glue.OWN, 'tiny')


@config.arguments(VARIANTS, adam=('released', 'corrected'), left_to_right=False, bilstm=False, epochs=3.0, lr=2e-5)
def get_config(variant, options):
  above = recipe.bilstm(variant) if options.bilstm else {}
  pooling = 'last' if options.left_to_right or options.bilstm else 'pooled'
  base = {
    'name': f'bert_{variant}',
    'model': {'name': 'bert', 'variant': 'base'},
    'objective': {**fine_tuning.LINEAR_HEAD, 'pooling': pooling, **above},
    'data': {
      'tokenizer': 'wordpiece',
      'lower_case': True,
      'batching': {
        'name': 'texts',
        'form': 'bert',
        'buckets': (16, 32, 48, 64, 96, 256),
        'packed': True,
        **fine_tuning.ANY_LENGTH,
      },
      'batch_size': 16 if variant == 'swag' else 32,
      'length': 512 if variant == 'race' else 128,
    },
    **recipe.fine_tuning(options.adam, options.lr, options.epochs),
    'evaluation': {'split': fine_tuning.measured_split(variant), 'which': 'last', 'baselines': False},
  }
  task = glue.task('own' if variant == 'tiny' else variant)
  return config.merge(base, task, glue.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[5e-5, 4e-5, 3e-5, 2e-5], seed=[0, 1])
