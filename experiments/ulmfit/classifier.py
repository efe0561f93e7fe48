"""ULMFiT stage 3: the classifier (Howard and Ruder 2018, arXiv 1801.06146, section 3.3), and a pipeline of all stages.

  lmx pipeline --config=experiments/ulmfit/classifier.py:imdb --workdir=runs/imdb \\
    --config.1_general.data.manual_dir=TEXT --config.2_lm.data.manual_dir=DIR --config.3_classifier.data.manual_dir=DIR
  lmx train --config=experiments/ulmfit/classifier.py:trec --workdir=runs/classifier --config.data.manual_dir=DIR \\
    --config.train.init_from=runs/lm --config.train.init_parts="('model',)" \\
    --config.data.tokenizer_path=runs/lm/tokenizer

  variant   error of the paper, forward and backward together  hardware and time
  imdb      4.6 (5.30 forward alone)                           one GPU, hours
  trec      3.6                                                one GPU, minutes
  ag_news   5.01; dbpedia 0.80                                 one GPU, an hour; a day
  yelp_full 29.98; yelp_polarity 2.16                          one GPU, days
  embedded  topics of the docstrings inside CPython            nothing is published
  own       your table: --config.data.texts=text --config.data.label=label, in the pipeline of the stages 2_lm and
            3_classifier (docs/which_model.md); accuracy. own_scores, with numeric scores: Pearson's correlation
  tiny      all stages in seconds on a CPU, offline

Section 4.1: concat pooling, a hidden layer of 50 with batch normalisation, Adam with b1 0.7 and b2 0.99, rate 0.01
divided by 2.6 per layer, slanted triangular, batch 64, one more layer unfrozen after each epoch. The paper tunes the
number of epochs; "a good default" is 50, as in table 7. Ours are 15 and 30 (trec), and 6 for DBpedia and Yelp, which
have twenty times the documents: the fifth epoch is the first that trains the embedding too. `fidelity=fastai` is the
released `train_clas.py`: three fits with one triangle each (the head, then with the last layer, then all), b1 0.8,
batch 32, weight decay 1e-6, clipping at 25, alpha 2 and beta 1 of the activation penalties (the paper names none), the
last 1,400 tokens pooled, the vocabulary of 30,000 words of `tok2id.py`, and the last parameters evaluated instead of
those with the lowest validation loss.

Options: `method=`, the rows of table 7. gradual_unfreezing is the paper's method and the default (Freez + discr +
stlr); freez, freez_discr, freez_stlr and freez_cos are parts of it. Without unfreezing: scratch, full, discriminative
(Full + discr), stlr (and a slanted triangle) and last. chain_thaw trains the head, then each layer separately from the
first on, each for an epoch, then all. The paper gives neither its epochs nor its rates; these are of `train_clas.py`:
1e-3 for the head and 1e-4 for the rest, each fit with a triangle. `size=small`, `direction=`, `epochs=N`, `dropmult=F`
(a factor of all dropout rates, which are too high for the small size), and of the pipeline `general=` (a variant of
general.py), `lm_epochs=N` (0 is that of lm.py), `rates=` (of lm.py), `direction=both` (with the ensemble) and `table`
(all rows of the ablation from the same language models). Few labels (figure 3):
`--config.3_classifier.data.train_documents=100` in the pipeline, and in `2_lm` for the curve without unlabelled text;
validation and test splits stay complete. For test metrics the tables train on all documents and evaluate after the last
update: --config.data.train_splits="('train','valid')" --config.evaluation.which=last. Deviations: without these
settings 10% of the training documents are for validation; the head's second dropout rate is the released code's, as the
paper gives none. The released create_toks.py replaces the remains of HTML in AG News (`#39;` is an apostrophe, `quot;`
a quote) and begins each field with a token; here a line ends between title and text.
"""

from __future__ import annotations

from typing import Any

from experiments import config, fine_tuning, glue
from experiments.ulmfit import recipe

VARIANTS = ('imdb', 'trec', *recipe.BY_CLASS, 'embedded', *recipe.OWN, 'tiny')
SCHEDULES = {  # method -> schedule of the rate
  'gradual_unfreezing': 'slanted_triangular',
  'scratch': 'constant',
  'full': 'constant',
  'discriminative': 'constant',
  'stlr': 'slanted_triangular',
  'last': 'slanted_triangular',
  'chain_thaw': 'slanted_triangular',
  'freez': 'constant',
  'freez_discr': 'constant',
  'freez_stlr': 'slanted_triangular',
  'freez_cos': 'cosine',
}
METHODS = tuple(SCHEDULES)
_DISCRIMINATIVE = ('gradual_unfreezing', 'discriminative', 'stlr', 'freez_discr')
# Groups trained, epochs, factor of the rate, cut_fraction: freeze_to(-1), freeze_to(-2), unfreeze(), each a `fit`.
FASTAI_STAGES = ((1, 1.0, 1.0, 1 / 3), (2, 1.0, 1.0, 1 / 3), (0, 0.0, 1.0, 1 / 8))
# train_clas.py of fastai 0.7, `chain_thaw`: the rate of the head is 1e-3, that of the encoder a tenth.
CHAIN_THAW = {'lr': 1e-3, 'groups': ((r'^model/', 0.1, 1.0), ('.*', 1.0, 1.0)), 'ratio': 8.0}
_EPOCHS = {'trec': 30, 'tiny': 1, **dict.fromkeys(recipe.LARGE, 6)}  # of the others 15
_LENGTH = {  # most tokens, and buckets
  'imdb': (2800, (140, 210, 280, 420, 560, 840, 1400)),
  'trec': (48, (12, 16, 24)),
  'ag_news': (256, (32, 48, 64, 96)),
  'dbpedia': (512, (32, 48, 70, 96, 140)),
  **dict.fromkeys(('yelp_polarity', 'yelp_full'), (1400, (35, 70, 140, 210, 280, 420, 560))),
  'embedded': (420, (35, 70, 140, 280)),
  **dict.fromkeys(recipe.OWN, (2800, (16, 24, 35, 48, 70, 140, 210, 280, 420, 560, 840, 1400))),
}


_OPTIONS: dict[str, Any] = dict(
  fidelity=('paper', 'fastai'),
  direction=('forward', 'backward', 'both'),
  size=('paper', 'small'),
  method=METHODS,
  epochs=0,
  general=('wikitext103', 'wikitext2', 'text', 'small', 'tiny'),
  lm_epochs=0,
  rates=('stlr', 'discriminative', 'full'),
  table=False,
  dropmult=1.0,
)
_arguments = config.arguments(VARIANTS, **_OPTIONS)


@_arguments
def get_config(variant, options):
  released = options.fidelity == 'fastai'
  data = 'embedded' if variant == 'tiny' else variant
  length, buckets = _LENGTH[data]
  epochs = options.epochs or _EPOCHS.get(variant, 15)
  base = {
    'name': f'ulmfit_{variant}_{options.method}',
    'model': {
      'name': 'awd_lstm',
      **recipe.sizes(options.size),
      **recipe.regularization(options.fidelity, classifier=True, times=options.dropmult),
    },
    'objective': {
      'name': 'classify',
      'dropout_pooled': 0.4 * options.dropmult,
      'pooled_length': 1400 if released else 0,
    },
    'data': {
      **recipe.text(recipe.DATA.get(variant, variant), options.direction, options.fidelity),
      'batching': {'name': 'documents', 'buckets': buckets},
      'batch_size': 32 if released else 64,
      'length': length,
    },
    'optim': {
      'optimizer': 'adam',
      'b1': 0.8 if released else 0.7,
      'b2': 0.99,
      'lr': 0.01,
      'weight_decay': 1e-6 if released else 0.0,
      'clip_norm': 25.0 if released else 0.0,
      **_rates(options.method, released, 2 if variant == 'tiny' else 3),
    },
    'train': {'epochs': epochs, 'log_every': 20},
    'evaluation': {
      'baselines': False,
      'which': 'last' if released else 'best',
      'split': fine_tuning.measured_split(variant, VARIANTS),
    },
    'samples': {'count': 0},
  }
  small = {
    'data': {'batch_size': 8, 'length': 64, 'batching': {'buckets': (32,)}},
    'objective': {'bptt': 16, 'head': (8,)},
  }
  task = glue.own(variant) if variant in recipe.OWN else {}
  return config.merge(base, task, *((config.tiny(), recipe.tiny(), small) if variant == 'tiny' else ()))


def _rates(method: str, released: bool, layers: int) -> dict:
  """Return schedule, layer learning rates and unfreezing for a row of table 7, for an encoder with this many layers."""
  settings: dict = {'schedule': SCHEDULES[method]}
  if method in _DISCRIMINATIVE:
    settings['layer_decay'] = 1 / 2.6
  if method == 'last':
    settings['stages'] = ((1, 0.0, 1.0, 0.1),)
  if method == 'chain_thaw':  # the head, the embeddings, each layer from the first on, all
    order = (1, *range(layers + 2, 1, -1))
    settings |= {**CHAIN_THAW, 'stages': (*((-group, 1.0, 1.0, 1 / 3) for group in order), (0, 0.0, 1.0, 1 / 8))}
  if method.startswith('freez'):
    settings['unfreeze_every'] = 1.0
  if method == 'gradual_unfreezing':
    settings |= {'stages': FASTAI_STAGES, 'ratio': 8.0} if released else {'unfreeze_every': 1.0}
  return settings


def _given(**values: Any) -> str:
  """Return the text of options that are not their defaults, which some variants of the stages do not have."""
  defaults = config.defaults(_OPTIONS)
  return ''.join(f',{name}={value}' for name, value in values.items() if value not in ('', defaults[name]))


@_arguments
def stages(variant: str, options: Any) -> list[dict]:
  """Return the stages of the pipeline in order; see `lmx pipeline`."""
  general = 'tiny' if variant == 'tiny' else options.general
  fidelity = '' if general in ('small', 'tiny') else options.fidelity  # these have their own dropout rates
  common_options = _given(fidelity=options.fidelity, size=options.size, dropmult=options.dropmult)
  planned = []

  def classifier(name: str, method: str, direction: str, start: str | None):
    text = variant + common_options + _given(method=method, direction=direction, epochs=options.epochs)
    tail = '_backward' if direction == 'backward' else ''
    change: dict[str, Any] = {'data.tokenizer_path': f'{{dir}}/2_lm{tail}/tokenizer'}
    if start:
      change |= {'train.init_from': f'{{dir}}/{start}', 'train.init_parts': ('model',)}
    planned.append({'name': name, 'config': f'experiments/ulmfit/classifier.py:{text}', 'overrides': change})

  directions = ('forward', 'backward') if options.table or options.direction == 'both' else (options.direction,)
  both = len(directions) == 2
  for direction in directions:
    tail = '_backward' if direction == 'backward' else ''
    planned += [
      {
        'name': f'1_general{tail}',
        'config': f'experiments/ulmfit/general.py:{general}{_given(fidelity=fidelity, direction=direction)}',
        'overrides': {},
      },
      {
        'name': f'2_lm{tail}',
        'config': f'experiments/ulmfit/lm.py:{variant}{common_options}'
        + _given(direction=direction, rates=options.rates, epochs=options.lm_epochs),
        'overrides': {'train.init_from': f'{{dir}}/1_general{tail}'},
      },
    ]
    if options.table and not tail:
      classifier('3_scratch', 'scratch', direction, None)
      classifier('3_no_lm_finetuning', 'gradual_unfreezing', direction, '1_general')
      for method in ('full', 'discriminative', 'stlr'):
        classifier(f'3_{method}', method, direction, '2_lm')
    classifier(f'3_classifier{tail}', options.method, direction, f'2_lm{tail}')
  if both:
    which = 'last' if options.fidelity == 'fastai' else 'best'  # the parameters that each recipe evaluates
    planned.append({'name': '4_ensemble', 'ensemble': ('3_classifier', '3_classifier_backward'), 'which': which})
  return planned


def sweep():
  yield from config.grid(optim__lr=[3e-3, 1e-2, 3e-2])
