"""BERT (Devlin et al. 2019, arXiv 1810.04805) as a tagger: a label for the first subword of each word, section 5.3.

  lmx train --config=experiments/bert/tagging.py:wnut17 --workdir=runs/wnut17 --config.train.init_from=runs/bert
    --config.data.manual_dir=DIR

runs/bert is a run of BERT, pre-trained here or imported, which gives the sizes and tokenizer. A softmax per word and no
CRF, as in the paper. Lower-cased models lose capitals, which help to find names.

  variant    labels                                     published, test
  conll2003  four types of entities, F1 of spans        92.4 / 92.8 (BERT base / large, cased, fine-tuned; table 7)
  wnut17     six types of emerging entities             not in the paper; 41.86 the best of the shared task
  ud_ewt     universal parts of speech, error percent   not in the paper
  own        labels of the words of your sentences     docs/which_model.md
  tiny       tags of the embedded corpus, no init_from: seconds on a CPU

DIR holds the files of the data set. Batch 32, 3 epochs, rate 5e-5, 10% warm-up, linear decay,
dropout 0.1, weight decay 0.01 except on LayerNorm and biases, clipping at 1; the paper's grid is batch 16 or 32, 2 to 4
epochs and 2e-5 to 5e-5 (appendix A.3).

Each sentence of CoNLL 2003 is read with the words around it in its document, up to 512 subwords: "the maximal document
context provided by the data" (section 5.3). lmx/data/batching/tagged.py has the rule, which the paper does not state.

Options: `adam=corrected` (see experiments/bert/tasks.py), `crf` puts a CRF over the words, `epochs`, `lr`;
`context=sentence` reads each sentence of CoNLL 2003 alone.

Option `features` is the feature-based approach of table 7: BERT is frozen, and a two-layer BiLSTM of 768 cells per
direction reads its layers. Learning rate and epochs are not printed; here 1e-3 and 20.

  features        layers, F1 of CoNLL 2003's validation split (BERT base, cased)
  embeddings      the input of the first layer   91.0
  second_to_last  the last but one               95.6
  last            the last                       94.9
  sum_last_4      learned mix of the last four   95.9
  concat_last_4   the last four, concatenated    96.1
  sum_all         learned mix of all twelve      95.5
"""

from __future__ import annotations

from experiments import config, fine_tuning, glue
from experiments.bert import recipe

VARIANTS = ('conll2003', 'wnut17', 'ud_ewt', 'own', 'tiny')
FEATURES = ('none', 'embeddings', 'second_to_last', 'last', 'sum_last_4', 'concat_last_4', 'sum_all')


@config.arguments(
  VARIANTS,
  adam=('released', 'corrected'),
  crf=False,
  features=FEATURES,
  epochs=0.0,
  lr=0.0,
  context=('document', 'sentence'),
)
def get_config(variant, options):
  frozen = options.features != 'none'
  base = {
    'name': f'bert_{variant}',
    'model': {'name': 'bert', 'variant': 'base'},
    'objective': {'name': 'tag', 'crf': options.crf, 'constrained': options.crf, 'init_std': 0.02, 'dropout': 0.1},
    'data': {
      'dataset': variant,
      'tokenizer': 'wordpiece',
      'lower_case': True,
      'batching': {'name': 'tagged', 'form': 'bert', 'buckets': (16, 32, 48, 64, 96), **fine_tuning.ANY_LENGTH},
      'batch_size': 32,
      'length': 512,
    },
    **recipe.fine_tuning(
      options.adam, options.lr or (1e-3 if frozen else 5e-5), options.epochs or (20.0 if frozen else 3.0)
    ),
    'evaluation': {
      'split': fine_tuning.measured_split(variant, VARIANTS),
      'which': 'last',
      'baselines': False,
    },
  }
  in_document = variant == 'conll2003' and options.context == 'document'
  context = {'context': 'document', 'buckets': (64, 128, 256, 384)} if in_document else {}
  tags = {'dataset': 'embedded_tags', 'length': 320, 'batch_size': 2, 'batching': {'buckets': (32, 64, 128)}}
  changes = recipe.feature_based(variant, options.features) if frozen else {}
  own = glue.OWN_TAGS if variant == 'own' else {}
  return config.merge(
    base, changes, own, {'data': {'batching': context}}, fine_tuning.tiny(**tags) if variant == 'tiny' else {}
  )


def sweep():
  yield from config.grid(optim__lr=[5e-5, 4e-5, 3e-5, 2e-5], seed=[0, 1])
