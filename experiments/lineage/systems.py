"""From word2vec to XLNet under one budget: every system has the same text, parameters, tokens, tasks and tries.

  python -m launch.tables lineage --data=trec=DIR --data=sst2=DIR                size=small: hours of two cores
  python -m launch.tables lineage --options=size=base --data=text=DIR ...        days of one GPU, or a pod

  lmx train --config=experiments/lineage/systems.py:bert --workdir=runs/bert
  lmx train --config=experiments/lineage/systems.py:bert,stage=task,task=sst2 --workdir=runs/bert_sst2 \\
    --config.train.init_from=runs/bert --config.data.manual_dir=DIR

Each variant is a system, as in its paper except for the size:

  variant         pre-training objective                       on a task
  word2vec        skip-gram with negative samples              initial word vectors of a bidirectional LSTM
  elmo            next word, and previous word                 frozen, its mixed layers added to that LSTM's inputs
  ulmfit          next subword (AWD-LSTM)                      tuned on the task's text (`stage=text`), then unfrozen
  gpt             next subword (Transformer)                   fine-tuned, with the auxiliary language-model loss
  bert            masked LM, next-sentence prediction          fine-tuned
  transformer_xl  next subword, with a memory                  fine-tuned; a classifier is not in its paper
  xlnet           permutation LM (two streams)                 fine-tuned

  option   values
  stage    pretrain, text (ulmfit only), task
  size     small, medium, base: 1.3, 14 and 110 million parameters, equal within 3 percent; medium fits one GPU in
           minutes a run
  budget   16, 4, 1: times 0.26, 10 or 131 million tokens of pre-training
  text     pre-training text: embedded (the default of small; it has the texts of `topics`, without labels) or files
           (text of yours in data.manual_dir: train.txt ...)
  task     trec (kinds of questions), sst2 (sentiment of sentences), topics (which package of Python)
  rate     low, high: two rates are tried for every system

Options of another stage have no effect, because the table passes its `--options` to every run.

Small fine-tunes on 1,500 rows of a task, the same for every system, for four epochs; ULMFiT's `stage=text` reads their
texts. Medium and base fine-tune on all rows for three epochs. Validation and test splits are complete.

Subwords are WordPiece, trained on the pre-training text and shared by all systems except word2vec and ELMo. Those read
words, with a vocabulary of the same size; ELMo reads them by characters. `lmx describe --workdir=DIR` prints the
pre-training compute; skip-gram's is close to 0. It excludes ULMFiT's second stage and the tasks, and the parameter
counts of word2vec and ELMo exclude the task LSTM.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from experiments import config, fine_tuning
from experiments.bert import recipe as bert
from experiments.elmo import recipe as elmo
from experiments.gpt import recipe as gpt
from experiments.ulmfit import recipe as ulmfit
from experiments.word2vec import recipe as word2vec
from experiments.xlnet import recipe as xlnet

SYSTEMS = ('word2vec', 'elmo', 'ulmfit', 'gpt', 'bert', 'transformer_xl', 'xlnet')
VARIANTS = (*SYSTEMS, 'tiny')
TASKS = ('trec', 'sst2', 'topics')
_DATA = {'topics': 'embedded_topics', 'trec': 'trec', 'sst2': 'sst2'}


class Size(NamedTuple):
  """Sizes: vocabulary, then width, heads and layers of the Transformers, then rows and length of a batch, updates of
  the least budget, dropout, rate of pre-training, then rates, most rows (0: all) and epochs of a task, then the fields
  of the other systems."""

  V: int
  D: int
  H: int
  N: int
  rows: int
  length: int
  updates: int
  dropout: float
  lr: float
  rates: tuple[float, float]
  task_rows: int
  epochs: float
  awd: dict[str, int]
  elmo: dict[str, Any]
  vectors: int  # width of word2vec's
  cells: int  # of the LSTM on a task, each way


_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))  # Peters et al. 2018, as released
SIZES = {
  'small': Size(
    4096,
    128,
    4,
    4,
    16,
    64,
    250,
    0.0,
    1e-3,
    (3e-4, 1e-3),
    1500,
    4.0,
    {'E': 128, 'D': 208, 'N': 3},
    {'filters': ((1, 16), (2, 16), (3, 32), (4, 64)), 'cells': 332, 'projection': 80, 'highways': 1},
    160,
    96,
  ),
  'medium': Size(
    8192,
    384,
    6,
    6,
    64,
    128,
    1250,
    0.0,
    5e-4,
    (1e-4, 3e-4),
    0,
    3.0,
    {'E': 384, 'D': 796, 'N': 3},
    {'filters': _FILTERS[:5], 'cells': 1180, 'projection': 256, 'highways': 1},
    840,
    192,
  ),
  'base': Size(
    30_000,
    768,
    12,
    12,
    256,
    512,
    1000,
    0.1,
    2.5e-4,
    (2e-5, 5e-5),
    0,
    3.0,
    {'E': 768, 'D': 1900, 'N': 4},
    {'filters': _FILTERS, 'cells': 4096, 'projection': 512, 'highways': 2},
    1810,
    200,
  ),
}


def get_config(arg: str = ''):
  system, options = config.parse_arg(
    arg,
    VARIANTS,
    stage=('pretrain', 'text', 'task'),
    size=tuple(SIZES),
    budget=('16', '4', '1'),
    text=('auto', 'embedded', 'files'),
    task=TASKS,
    rate=('low', 'high'),
  )
  small = {}
  if system == 'tiny':
    system, small = 'bert', config.merge(config.tiny(), {'optim': {'warmup_fraction': 0.0}}).to_dict()
  if options.stage == 'text' and system != 'ulmfit':
    raise ValueError(f"stage=text is only for ulmfit, which learns a task's text first; {system} has no such stage")
  size = SIZES[options.size]
  own = options.stage == 'task' and system in ('word2vec', 'elmo')  # the task has its own model
  make = {'pretrain': _pretrained, 'text': _task_text, 'task': _tuned}[options.stage]
  base = {
    'name': f'lineage_{system}',
    'model': {} if own else {'name': _MODEL.get(system, system), **_sizes(system, size)},
    'data': {'tokenizer': 'wordpiece', 'vocab_size': size.V, 'lower_case': True},
    'train': {'log_every': 20},
    'evaluation': {'baselines': False},
    'samples': {'count': 0},
  }
  return config.merge(base, make(system, size, options), small)


_MODEL = {'ulmfit': 'awd_lstm'}
_WORDS: dict[str, dict[str, Any]] = {
  'word2vec': {'tokenizer': 'words'},
  'elmo': {'tokenizer': 'words', 'characters': 24, 'lower_case': False},
}


def _sizes(system: str, size: Size) -> dict[str, Any]:
  """Return the `model` section of the pre-training."""
  # The scale keeps the variance of a kernel's outputs at the papers' width of 768. With 0.02 at a width of 128, GPT and
  # Transformer-XL do not distinguish tokens in the first thousand updates.
  rate, std = size.dropout, round(0.02 * (768 / size.D) ** 0.5, 3)
  layers = {'D': size.D, 'H': size.H, 'N': size.N, 'init_std': std}
  off = {'dropout': rate, 'dropout_attention': rate}
  positions = {'D': size.D, 'T': 2 * size.length}
  # Relative positions need one more (D, D) matrix per layer: the feed-forward network is narrower by as much.
  relative = {**layers, **off, 'F': 4 * size.D - size.D // 2, 'M': size.length}
  return {
    'word2vec': {'variant': 'skipgram', 'D': size.vectors},
    'elmo': {'variant': 'mini', **size.elmo, 'dropout': rate},
    'ulmfit': {'variant': 'ptb', **size.awd, **ulmfit.regularization('fastai', times=0.5)},
    'gpt': {'variant': 'base', **layers, **positions, **gpt.dropout(rate)},
    'bert': {'variant': 'base', **layers, **positions, 'dropout_hidden': rate, 'dropout_attention': rate},
    'transformer_xl': {'variant': 'wt103_base', **relative, 'cutoffs': (), 'fidelity': 'pytorch'},
    'xlnet': {'variant': 'base', **relative, 'reuse': size.length // 2},
  }[system]


def _pretrained(system: str, size: Size, options: Any) -> dict[str, Any]:
  files = options.text == 'files' or (options.text == 'auto' and options.size != 'small')
  steps = int(options.budget) * size.updates
  batching: Any = {
    'word2vec': {'name': 'skipgrams', 'chunk': 32},
    'elmo': 'both_ways',
    'ulmfit': 'streams',
    'gpt': {'name': 'windows', 'stride': size.length},
    'bert': {'name': 'pairs', 'masking': 'dynamic', 'max_predictions': round(0.15 * size.length)},
    'transformer_xl': 'streams',
    'xlnet': {'name': 'permutations', 'reuse': size.length // 2},
  }[system]
  optim: dict[str, Any] = {
    'optimizer': 'adamw',
    'lr': size.lr,
    'eps': 1e-6,
    'weight_decay': 0.01,
    'clip_norm': 1.0,
    'groups': config.DECAY_MATRICES_ONLY,
    'schedule': 'linear',
    'warmup_fraction': 0.2,
  }
  if system == 'elmo':
    optim = elmo.ADAGRAD
  if system == 'ulmfit':
    optim = _slanted(size)
  if system == 'word2vec':
    optim = word2vec.sgd('skipgram')
  return {
    'data': {
      'dataset': 'text_files' if files else 'embedded',
      **_WORDS.get(system, {}),
      'batching': batching,
      'batch_size': size.rows,
      'length': size.length,
    },
    'optim': optim,
    'train': {'steps': steps, 'eval_every': steps},
    'evaluation': {'which': 'last'},
  }


def _slanted(size: Size) -> dict[str, Any]:
  """Return Adam and the schedule for both ULMFiT language models."""
  return {
    'optimizer': 'adam',
    'b1': 0.8,
    'b2': 0.99,
    'lr': 4 * size.lr,
    'clip_norm': 1.0,
    'schedule': 'slanted_triangular',
  }


def _task_text(system: str, size: Size, options: Any) -> dict[str, Any]:
  """Return ULMFiT's second stage (Howard and Ruder 2018, section 3.2): discriminative rates on the task's text."""
  del system
  return {
    'data': {**_rows(size, options), 'batching': 'streams', 'batch_size': 16, 'length': size.length},
    'optim': {**_slanted(size), 'layer_decay': 1 / 2.6},
    'train': {'epochs': 4},
  }


def _rows(size: Size, options: Any) -> dict[str, Any]:
  """Return the settings of a task's rows."""
  return {'dataset': _DATA[options.task], 'train_documents': size.task_rows}


def _tuned(system: str, size: Size, options: Any) -> dict[str, Any]:
  lr = size.rates[options.rate == 'high']
  base: dict[str, Any] = {
    'objective': {'name': 'classify', 'metric': 'accuracy'},
    'data': {**_rows(size, options), 'batch_size': 32, 'length': 64},
    'train': {'epochs': size.epochs, 'init_parts': ('model',)},
  }
  if system in ('word2vec', 'elmo', 'ulmfit'):
    base['data']['batching'] = {'name': 'documents', 'buckets': (16, 32, 48)}
    return config.merge(base, _on_vectors(system, size, lr)).to_dict()
  form = {'bert': 'bert', 'xlnet': 'xlnet'}.get(system, 'gpt')
  marks = {'gpt': gpt.SPECIAL_TOKENS, 'xlnet': xlnet.SUBWORDS['special_tokens'], 'bert': ()}[form]
  head = {
    'bert': {**fine_tuning.LINEAR_HEAD, 'pooling': 'pooled'},
    'xlnet': xlnet.HEAD,
    'gpt': {**fine_tuning.LINEAR_HEAD, 'pooling': 'last', 'lm_weight': 0.5 if system == 'gpt' else 0.0},
  }[form]
  memory = {'M': 0} if form == 'xlnet' or system == 'transformer_xl' else {}
  tuned = {
    'model': memory,
    'objective': head,
    'data': {
      'special_tokens': marks,
      'batching': {'name': 'texts', 'form': form, 'buckets': (16, 32, 48), **fine_tuning.ANY_LENGTH},
    },
  }
  return config.merge(base, bert.fine_tuning('corrected', lr, size.epochs), tuned).to_dict()


def _on_vectors(system: str, size: Size, lr: float) -> dict[str, Any]:
  """Return the task settings of the systems with a task LSTM."""
  if system == 'ulmfit':
    return {
      'model': ulmfit.regularization('fastai', classifier=True, times=0.5),
      'objective': {'dropout_pooled': 0.2},
      'optim': {
        'optimizer': 'adam',
        'b1': 0.7,
        'b2': 0.99,
        'lr': 10 * lr,
        'layer_decay': 1 / 2.6,
        'clip_norm': 1.0,
        'schedule': 'slanted_triangular',
        'unfreeze_every': 0.5,
      },
    }
  task: dict[str, Any] = {
    'objective': {'bptt': 0, 'dropout_pooled': 0.2, 'dropout_head': 0.2},
    'optim': {'optimizer': 'adam', 'lr': 5 * lr, 'clip_norm': 5.0},
  }
  lstm = {'name': 'bilstm', 'N': 1, 'D': size.cells, 'dropout': 0.2, 'char_filters': ()}
  if system == 'word2vec':
    return task | {
      'model': {**lstm, 'variant': 'base', 'E': size.vectors},
      'data': _WORDS['word2vec'],
      'train': {'init_parts': ('model/embed=model/embed',)},
    }
  bilm = {f'bilm_{name}': value for name, value in size.elmo.items()}
  model = {**lstm, 'variant': 'elmo_mini', 'E': size.elmo['projection'], 'elmo': 'input', 'frozen': True, **bilm}
  return task | {
    'model': {**model, 'dropout_bilm': 0.0},
    'data': _WORDS['elmo'],
    'train': {'init_parts': ('model=model/bilm',)},
  }


def sweep():
  yield from config.grid(seed=[0, 1])
