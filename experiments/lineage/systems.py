"""From the NPLM to XLNet on one text: every system has the same tokenizer, parameters, tokens, tries and tasks.

  python -m launch.tables lineage --data=corpus=DIR --data=blimp=DIR ...        runs a stage (docs/lineage.md)
  lmx train --config=experiments/lineage/systems.py:gpt2,budget=4,lr=3e-3 --workdir=runs/gpt2 \\
    --config.data.manual_dir=DIR
  lmx train --config=experiments/lineage/systems.py:gpt2,stage=task,task=imdb --workdir=runs/imdb \\
    --config.train.init_from=runs/gpt2 --config.data.manual_dir=DIR

  variant         year  pre-training objective             on a task
  nplm            2003  next subword from the last 8       mean, maximum and last of the hidden layer
  lstm            2014  next subword                       the same of the last layer
  awd_lstm        2017  next subword                       the same
  elmo            2018  next and previous subword          frozen, its mixed layers added to an LSTM's inputs
  gpt             2018  next subword                       last token, with the auxiliary language-model loss
  bert            2018  masked subwords, next sentence     first token
  gpt2            2019  next subword                       last token
  transformer_xl  2019  next subword, with a memory        last token; a classifier is not in its paper
  xlnet           2019  permutations (two streams)         last token

`word2vec` is no language model: its word vectors are the initial ones of a bidirectional LSTM on a task. Two further
variants read words: `lstm_words` and `nplm_words`, with the 33,000 most frequent words, and count the unknown ones. Two
are no systems: n-gram models read the data of `ngrams`, and `tokenizer` has the whole text.

  option   values
  stage    pretrain, task
  size     mini, small, medium, base: 3, 11, 25 and 85 million parameters without embeddings, equal within 3 percent;
           tiny for tests, with design=tokens
  budget   1, 4, 16, 64: millions of tokens that GPT-2 reads, of the first 0.75, 3, 12 million words, or of all
  design   tokens: every system reads the budget's tokens; flops: every system has the operations of GPT-2's training,
           as `lmx describe` counts them, and the number of tokens differs
  lr       learning rate, one of 3e-5 to 1e-1; four are tried for every system
  task     imdb (5,000 reviews, one epoch, the first 256 tokens), sst2 (67,349 phrases, one epoch)

Equal for all systems: the subwords (8,192 byte-level BPE, trained on the whole training text), the text, the parameters
without embeddings, the tokens of an update, AdamW with a linear warm-up over 10% and cosine decay, clipping at 1, and
the grid of rates. Not equal: the embeddings (LSTM and NPLM have wider ones), the order of the text, and the share of
tokens that are predicted: BERT 15%, XLNet 1/6, ELMo each token twice.

Deviations from the papers: the sizes; AdamW for all (the papers have SGD for NPLM, LSTM and AWD-LSTM, Adagrad for
ELMo, Adam without decay for Transformer-XL), so AWD-LSTM has no averaged SGD, and its windows have one length. No
dropout, except AWD-LSTM's and its penalties, at half of fastai's rates. NPLM has no direct connections. The LSTM's
output is tied to its embedding, and its initial parameters are uniform in +-0.2 at size mini, not 0.1. Every system
reads BPE: BERT's paper has WordPiece, XLNet's SentencePiece. BERT has the next-sentence loss of its paper, and new
masks each epoch. ELMo's characters are the bytes of a subword, its softmax is over all subwords. Transformer-XL has
no adaptive softmax.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from experiments import config, fine_tuning
from experiments.bert import recipe as bert
from experiments.gpt import recipe as gpt
from experiments.ulmfit import recipe as ulmfit
from experiments.word2vec import recipe as word2vec
from experiments.xlnet import recipe as xlnet

SYSTEMS = ('nplm', 'lstm', 'awd_lstm', 'elmo', 'gpt', 'bert', 'gpt2', 'transformer_xl', 'xlnet')
WORD_SYSTEMS = ('nplm_words', 'lstm_words')
_TEXTS = ('tokenizer', 'ngrams')
VARIANTS = (*SYSTEMS, *WORD_SYSTEMS, 'word2vec', *_TEXTS, 'tiny')
RECURRENT = ('nplm', 'lstm', 'awd_lstm', 'elmo')
BUDGETS = ('1', '4', '16', '64')
WORDS = {'1': 750_000, '4': 3_000_000, '16': 12_000_000, '64': 0}  # first words of the text that a budget reads; 0: all
DESIGNS = ('tokens', 'flops')
RATES = ('1e-3', '3e-5', '1e-4', '3e-4', '3e-3', '1e-2', '3e-2', '1e-1')  # the default first
TASKS = {'imdb': 'imdb', 'sst2': 'sst2_phrases'}
SPECIAL_TOKENS = ('<pad>', '<cls>', '<sep>', '<mask>', *gpt.SPECIAL_TOKENS)


class Size(NamedTuple):
  """Width, heads and layers of the Transformers; tokens of an update and length of a row; cells of the recurrent
  systems and hidden units of the NPLM; ELMo's sizes; cells of its task LSTM, each way."""

  D: int
  H: int
  N: int
  tokens: int
  length: int
  lstm: int
  awd: int
  nplm: int
  elmo: dict[str, Any]
  task: int


_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))  # Peters et al. 2018, as released


def _elmo(filters: Any, cells: int, projection: int, highways: int = 1) -> dict[str, Any]:
  return {'filters': filters, 'cells': cells, 'projection': projection, 'highways': highways}


SIZES = {
  'mini': Size(256, 4, 4, 2048, 128, 444, 414, 771, _elmo(((1, 16), (2, 16), (3, 32), (4, 64)), 672, 128), 128),
  'small': Size(384, 6, 6, 4096, 128, 815, 797, 1733, _elmo(_FILTERS[:5], 1440, 192), 192),
  'medium': Size(512, 8, 8, 16_384, 256, 1255, 1259, 3078, _elmo(_FILTERS[:5], 2656, 256), 256),
  'base': Size(768, 12, 12, 65_536, 512, 2305, 2381, 6921, _elmo(_FILTERS, 4096, 512), 384),
  'tiny': Size(16, 2, 1, 128, 16, 16, 16, 16, _elmo(((1, 8), (2, 8)), 16, 8), 8),
}
# Operations of a training step per token, as `lmx describe` counts them.
OPERATIONS: dict[str, dict[str, float]] = {
  'mini': {
    'nplm': 56.8e6,
    'lstm': 40.7e6,
    'awd_lstm': 31.6e6,
    'elmo': 35.5e6,
    'gpt': 33.0e6,
    'bert': 22.4e6,
    'gpt2': 33.0e6,
    'transformer_xl': 38.0e6,
    'xlnet': 31.6e6,
  },
  'small': {
    'nplm': 149.1e6,
    'lstm': 103.8e6,
    'awd_lstm': 82.8e6,
    'elmo': 105.1e6,
    'gpt': 86.1e6,
    'bert': 70.2e6,
    'gpt2': 86.1e6,
    'transformer_xl': 99.4e6,
    'xlnet': 95.7e6,
  },
  'medium': {
    'nplm': 302.6e6,
    'lstm': 212.9e6,
    'awd_lstm': 176.5e6,
    'elmo': 199.0e6,
    'gpt': 188.7e6,
    'bert': 167.6e6,
    'gpt2': 188.7e6,
    'transformer_xl': 228.6e6,
    'xlnet': 240.7e6,
  },
  'base': {
    'nplm': 850.5e6,
    'lstm': 623.3e6,
    'awd_lstm': 547.9e6,
    'elmo': 726.5e6,
    'gpt': 604.0e6,
    'bert': 572.4e6,
    'gpt2': 604.0e6,
    'transformer_xl': 766.8e6,
    'xlnet': 863.6e6,
  },
}


def get_config(arg: str = ''):
  system, options = config.parse_arg(
    arg,
    VARIANTS,
    stage=('pretrain', 'task'),
    size=tuple(SIZES),
    budget=BUDGETS,
    design=DESIGNS,
    lr=RATES,
    task=tuple(TASKS),
  )
  small: dict[str, Any] = {}
  if system == 'tiny':
    system, small = 'gpt2', config.merge(config.tiny(), {'optim': {'warmup_fraction': 0.0}}).to_dict()
    small['data'] |= {'vocab_size': 500, 'words': 0}
  size, kind = SIZES[options.size], system.removesuffix('_words')
  if options.stage == 'task' and system not in (*SYSTEMS, 'word2vec'):
    expected = ', '.join((*SYSTEMS, 'word2vec'))
    raise ValueError(f'option "stage": got task with {system}; expected one of {expected}')
  own = options.stage == 'task' and system in ('elmo', 'word2vec')  # the task has its own model
  base = {
    'name': f'lineage_{system}',
    'model': {} if own else _model(kind, size),
    'data': _WORDS if system in (*WORD_SYSTEMS, 'word2vec') else _SUBWORDS,
    'train': {'log_every': 20},
    'evaluation': {'baselines': False},
    'samples': {'count': 0},
  }
  make = _tuned if options.stage == 'task' else _pretrained
  return config.merge(base, make(kind, size, options), small)


_SUBWORDS = {'tokenizer': 'bpe', 'vocab_size': 8192, 'special_tokens': SPECIAL_TOKENS}
_WORDS = {'tokenizer': 'words', 'vocab_size': 33_000}
_CHARACTERS = {'characters': 20}


def _model(system: str, size: Size) -> dict[str, Any]:
  """Return the `model` section of the pre-training."""
  # The scale keeps the variance of a kernel's outputs at the papers' width of 768. With 0.02 at a width of 128, GPT and
  # Transformer-XL do not distinguish tokens in the first thousand updates.
  std = round(0.02 * (768 / size.D) ** 0.5, 3)
  layers: dict[str, Any] = {'D': size.D, 'H': size.H, 'N': size.N}
  positions = {**layers, 'T': max(256, 2 * size.length)}
  # Relative positions need one more (D, D) matrix per layer: the feed-forward network is narrower by as much.
  relative = {**layers, 'init_std': std, 'F': 4 * size.D - size.D // 2, 'M': size.length}
  off = {'dropout': 0.0, 'dropout_attention': 0.0}
  # With 0.05 at a width of 444, half of 0.1 in the paper's small model, the LSTM predicts every token by its frequency
  # in the first 300 updates and its cells saturate; of 0.05, 0.1, 0.2 and 0.3 the loss after 200 was lowest with 0.2.
  # It falls with the width so that the variance of the first layer's sums stays.
  lstm = {'name': 'rnn_lm', 'variant': 'small', 'init_scale': round(0.2 * (444 / size.lstm) ** 0.25, 3)}
  return {
    'nplm': {'name': 'nplm', 'variant': 'mlp9', 'n': 9, 'm': 2 * size.D, 'h': size.nplm},
    'lstm': {**lstm, 'E': size.lstm, 'D': size.lstm, 'tied': True},
    'awd_lstm': {
      'name': 'awd_lstm',
      'variant': 'ptb',
      'E': size.D,
      'D': size.awd,
      **ulmfit.regularization('fastai', times=0.5),
    },
    'elmo': {'name': 'elmo', 'variant': 'mini', **size.elmo, 'dropout': 0.0},
    'gpt': {'name': 'gpt', 'variant': 'base', **positions, 'init_std': std, **gpt.dropout(0.0)},
    'bert': {
      'name': 'bert',
      'variant': 'base',
      **positions,
      'init_std': std,
      'dropout_hidden': 0.0,
      'dropout_attention': 0.0,
    },
    'gpt2': {'name': 'gpt2', 'variant': '124m', **positions, **gpt.dropout(0.0)},
    'transformer_xl': {
      'name': 'transformer_xl',
      'variant': 'wt103_base',
      **relative,
      **off,
      'cutoffs': (),
      'fidelity': 'pytorch',
    },
    'xlnet': {'name': 'xlnet', 'variant': 'base', **relative, **off, 'reuse': size.length // 2},
    'word2vec': {'name': 'word2vec', 'variant': 'skipgram', 'D': size.D},
    **dict.fromkeys(_TEXTS, {'name': 'gpt2', 'variant': '124m', **positions}),
  }[system]


def tokens(system: str, size: str, budget: str, design: str) -> float:
  """Return the tokens that a system reads in its pre-training."""
  given = 1e6 * int(budget)
  if design == 'flops' and size not in OPERATIONS:
    raise ValueError(f'option "design": got flops with size={size}; expected one of {", ".join(OPERATIONS)}')
  return given if design == 'tokens' else given * OPERATIONS[size]['gpt2'] / OPERATIONS[size][system]


def updates(system: str, size: str, budget: str, design: str) -> int:
  """Return the updates of a pre-training."""
  return round(tokens(system, size, budget, design) / SIZES[size].tokens)


def predicted(system: str, size: str) -> float:
  """Return the predictions of a pre-training per token that it reads."""
  length = SIZES[size].length
  return {'bert': round(0.15 * length) / length, 'xlnet': (length // 6) / length, 'elmo': 2.0}.get(system, 1.0)


def _pretrained(system: str, size: Size, options: Any) -> dict[str, Any]:
  length = size.length // 2 if system in RECURRENT else size.length
  batching: Any = {
    'elmo': 'both_ways',
    'bert': {'name': 'pairs', 'masking': 'dynamic', 'max_predictions': round(0.15 * length), 'dupe_factor': 1},
    'xlnet': {'name': 'permutations', 'reuse': length // 2},
    'word2vec': {'name': 'skipgrams', 'chunk': min(32, length)},
  }.get(system, 'windows' if system in ('gpt', 'gpt2') else 'streams')
  steps = updates(system if system in SYSTEMS else 'gpt2', options.size, options.budget, options.design)
  return {
    'data': {
      'dataset': 'text_files',
      'words': 0 if system == 'tokenizer' else WORDS[options.budget],
      **(_CHARACTERS if system == 'elmo' else {}),
      'batching': batching,
      'batch_size': size.tokens // length,
      'length': length,
    },
    'optim': word2vec.sgd('skipgram')
    if system == 'word2vec'
    else {**_ADAMW, 'lr': float(options.lr), 'schedule': 'cosine', 'end_fraction': 0.1},
    'train': {'steps': steps, 'eval_every': steps},
    'evaluation': {'which': 'last', 'split': 'valid'},
  }


_ADAMW: dict[str, Any] = {
  'optimizer': 'adamw',
  'b2': 0.95,
  'eps': 1e-6,
  'weight_decay': 0.01,
  'clip_norm': 1.0,
  'groups': config.DECAY_MATRICES_ONLY,
  'warmup_fraction': 0.1,
}


def _tuned(system: str, size: Size, options: Any) -> dict[str, Any]:
  length = {'imdb': 256, 'sst2': 64}[options.task]
  base: dict[str, Any] = {
    'objective': {'name': 'classify', 'metric': 'accuracy'},
    'evaluation': {'split': 'valid'},
    'data': {
      'dataset': TASKS[options.task],
      'train_documents': 5000 if options.task == 'imdb' else 0,
      'batch_size': 32,
      'length': length,
      'batching': {'name': 'texts', 'form': 'plain', 'buckets': (length // 4, length // 2), **fine_tuning.ANY_LENGTH},
    },
  }
  tuning = bert.fine_tuning('corrected', float(options.lr), 1.0)
  if system in ('elmo', 'word2vec'):
    return config.merge(base, tuning, _on_vectors(system, size)).to_dict()
  if system in RECURRENT:
    return config.merge(base, tuning, {'objective': {'bptt': 0, 'dropout_pooled': 0.1}}).to_dict()
  form = {'bert': 'bert', 'xlnet': 'xlnet'}.get(system, 'gpt')
  head = {
    'bert': {**fine_tuning.LINEAR_HEAD, 'pooling': 'pooled'},
    'xlnet': xlnet.HEAD,
    'gpt': {**fine_tuning.LINEAR_HEAD, 'pooling': 'last', 'lm_weight': 0.5 if system == 'gpt' else 0.0},
  }[form]
  special_tokens = gpt.SPECIAL_TOKENS if form == 'gpt' else SPECIAL_TOKENS
  return config.merge(
    base,
    tuning,
    {
      'model': {'M': 0} if system in ('transformer_xl', 'xlnet') else {},
      'objective': head,
      'data': {'special_tokens': special_tokens, 'batching': {'form': form}},
    },
  ).to_dict()


def _on_vectors(system: str, size: Size) -> dict[str, Any]:
  """Return the task settings of a bidirectional LSTM on ELMo's frozen vectors, or from word2vec's."""
  lstm = {'name': 'bilstm', 'N': 1, 'D': size.task, 'dropout': 0.2, 'char_filters': ()}
  task: dict[str, Any] = {
    'objective': {'bptt': 0, 'dropout_pooled': 0.2, 'dropout_head': 0.2},
    'train': {'like_init': False},
  }
  if system == 'word2vec':
    model: dict[str, Any] = {**lstm, 'variant': 'base', 'E': size.D}
    return config.merge(task, {'model': model, 'train': {'init_parts': ('model/embed=model/embed',)}}).to_dict()
  bilm = {f'bilm_{name}': value for name, value in size.elmo.items()}
  model = {**lstm, 'variant': 'elmo_mini', 'E': size.elmo['projection'], 'elmo': 'input', 'frozen': True, **bilm}
  changes = {
    'model': {**model, 'dropout_bilm': 0.0},
    'data': _CHARACTERS,
    'train': {'init_parts': ('model=model/bilm',)},
  }
  return config.merge(task, changes).to_dict()


def sweep():
  yield from config.grid(seed=[0, 1])
