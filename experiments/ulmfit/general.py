"""ULMFiT stage 1: a general-domain AWD-LSTM language model (Howard and Ruder 2018, arXiv 1801.06146, section 3.1).

  lmx train --config=experiments/ulmfit/general.py:wikitext103 --workdir=runs/general

  variant      corpus                                             hardware and time
  wikitext103  WikiText-103, as in the paper (103M words)         one GPU, a day
  wikitext2    WikiText-2 (2M words), the same recipe             one GPU, hours
  text         text of your own: --config.data.manual_dir=DIR     as long as the text is
  small        the same at E 128, D 256 with Adam, for two cores  an hour for two million words

The paper prints no metric for this stage. Section 4.1: AWD-LSTM with E 400, D 1150, N 3, BPTT 70; trained as in Merity
et al. (2018), to which section 3.1 refers: windows of variable length with a proportional learning rate. Options:
`direction=backward` reads every document backwards; `fidelity=fastai` has the dropout rates of the released
`finetune_lm.py`; `dropmult=F` scales all dropout rates except `small`'s, 0 for table 5's vanilla model. The vocabulary
has 60,000 words, max_vocab of the released `pretrain_lm.py`, line 27. Deviation:
words are lower-cased and split from punctuation, without fastai's special tokens for capitals and repeats.
"""

from __future__ import annotations

from experiments import config
from experiments.ulmfit import recipe

VARIANTS = ('wikitext103', 'wikitext2', 'text', 'small', 'tiny')


@config.arguments(VARIANTS, fidelity=('paper', 'fastai'), direction=('forward', 'backward'), epochs=0, dropmult=1.0)
def get_config(variant, options):
  dataset = variant if variant.startswith('wikitext') else 'text_files'
  base = {
    'name': f'ulmfit_general_{variant}',
    'model': {
      'name': 'awd_lstm',
      **recipe.sizes('paper'),
      **recipe.regularization(options.fidelity, times=options.dropmult),
    },
    'data': {
      'dataset': dataset,
      'tokenizer': 'words',
      'lower_case': True,
      'vocab_size': 60000,
      'min_count': 3,
      'reverse': options.direction == 'backward',
      'batching': recipe.windows('paper', scale_rate=True),
      'batch_size': 80,
      'length': 70,
      'eval_batch_size': 10,
    },
    'optim': {'optimizer': 'sgd', 'lr': 30.0, 'clip_norm': 0.25, 'weight_decay': 1.2e-6, 'asgd': 'triggered'},
    'train': {'epochs': options.epochs or 14, 'log_every': 100},
    'samples': {'count': 0},
  }
  small = {
    'model': {
      **recipe.sizes('small'),
      'dropout_weight': 0.2,
      'dropout_hidden': 0.1,
      'dropout_output': 0.1,
      'dropout_input': 0.1,
      'dropout_embedding': 0.02,
    },
    'data': {
      'dataset': 'text_files',
      'vocab_size': 30000,
      'batch_size': 40,
      'batching': recipe.windows('small', scale_rate=True),
    },
    'optim': {
      'optimizer': 'adam',
      'b1': 0.8,
      'b2': 0.99,
      'lr': 4e-3,
      'weight_decay': 0.0,
      'asgd': 'off',
      'schedule': 'slanted_triangular',
    },
    'train': {'epochs': options.epochs or 4},
    'evaluation': {'baselines': False},
  }
  changes = {'small': (small,), 'tiny': (small, config.tiny(), recipe.tiny())}
  return config.merge(base, *(changes[variant] if variant in changes else ()))


def sweep():
  yield from config.grid(seed=[0, 1, 2])
