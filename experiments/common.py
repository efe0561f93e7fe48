"""What experiment files share: reading `file.py:arg`, merging settings, and sweeps.

An experiment lists only what differs from the defaults of `lmx/config/`. Nothing here imports jax,
so that launchers start at once.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_collections

# Weight decay on matrices and embeddings; none on biases, gains and LayerNorm. Each is (regular expression, factor of
# the rate, factor of the decay); the first that is found in a parameter's name counts.
DECAY_MATRICES_ONLY = ((r'/(bias|scale)$', 1.0, 0.0), ('.*', 1.0, 1.0))


def gpt_dropout(rate: float) -> dict[str, float]:
  """The three rates of the Config of gpt and gpt2, all alike."""
  return {'dropout_embedding': rate, 'dropout_attention': rate, 'dropout_residual': rate}


# The tasks of GLUE (Wang et al. 2019, arXiv 1804.07461): what is found, and the figure that the benchmark reports.
GLUE: dict[str, dict[str, Any]] = {
  'cola': {'metric': 'matthews', 'positive': 'acceptable'},
  'sst2': {'metric': 'accuracy'},
  'mrpc': {'metric': 'f1', 'positive': 'equivalent'},
  'qqp': {'metric': 'f1', 'positive': 'duplicate'},
  'stsb': {'name': 'regress', 'metric': 'pearson'},
  'mnli': {'metric': 'accuracy'},
  'qnli': {'metric': 'accuracy'},
  'rte': {'metric': 'accuracy'},
  'wnli': {'metric': 'accuracy'},
}
CHOICES = ('swag', 'race', 'story_cloze')  # questions with choices
TESTED = ('snli', 'scitail', 'race', 'story_cloze')  # tasks whose test files have labels
GPT_MARKS = ('_start_', '_delimiter_', '_classify_')  # of a row (Radford et al. 2018, section 3.3), as released
LINEAR_HEAD = {'head': (), 'normalize': False, 'bptt': 0, 'init_std': 0.02, 'dropout_pooled': 0.1}  # BERT's and GPT's


def measured_split(variant: str, tested: Sequence[str] = TESTED) -> str:
  """Return `evaluation.split` of a task: the test split where its labels are public, else the validation split; of the
  user's own data the first of the two that has labels (README.md)."""
  if variant.startswith('own'):
    return 'test,valid'
  return 'test' if variant in tested else 'valid'


def task(name: str) -> dict[str, Any]:
  """The `objective` and `data` sections of a task: one of GLUE, 'snli', 'scitail', of CHOICES, or 'own' for a table of
  the user's, and 'own_scores' for one with numbers in the column of the label."""
  if name in CHOICES:
    return {'objective': {'name': 'multiple_choice'}, 'data': {'dataset': name}}
  if name.startswith('own'):
    scored = name == 'own_scores'
    objective = {'name': 'regress'} if scored else {'name': 'classify', 'metric': 'accuracy'}
    return {'objective': objective, 'data': {'dataset': 'table_files', 'scores': scored, 'hold_out_test': False}}
  return {
    'objective': {'name': 'classify', **GLUE.get(name, {'metric': 'accuracy'})},
    'data': {'dataset': f'glue/{name}' if name in GLUE else name},
  }


def tiny_task() -> dict[str, Any]:
  """`tiny` for the classification of rows: topics of the embedded corpus, one text a row."""
  rows = tiny_fine_tuning(dataset='embedded_topics', batching={'buckets': (), 'both_orders': False})
  changes = {
    'objective': {'name': 'classify', 'metric': 'accuracy', 'positive': ''},
    'data': {'hold_out_test': True},
    'evaluation': {'split': 'test'},
  }
  return config(rows, changes).to_dict()


def bert_fine_tuning(adam: str, lr: float, epochs: float) -> dict[str, Any]:
  """The `optim` and `train` sections of Devlin et al. 2019, appendix A.3.

  Args:
    adam: 'released' (without bias correction, as google-research/bert) or 'corrected'.
    lr: the highest rate, after a tenth of the updates.
    epochs: to train.
  """
  released = adam == 'released'
  optim = {
    'optimizer': 'bert_adam' if released else 'adamw',
    'eps': 1e-6,
    'lr': lr,
    'weight_decay': 0.01,
    'clip_norm': 1.0,
    'schedule': 'linear',
    'schedule_origin': 'from_zero' if released else 'after_warmup',
    'warmup_fraction': 0.1,
    'groups': DECAY_MATRICES_ONLY,
  }
  return {'optim': optim, 'train': {'epochs': epochs, 'init_parts': ('model',), 'like_init': True}}


# Yang et al. 2019 (arXiv 1906.08237), zihangdai/xlnet: the last token's state, a layer with tanh, a linear layer.
XLNET_HEAD = {
  'pooling': 'last',
  'head': (0,),
  'activation': 'tanh',
  'normalize': False,
  'bptt': 0,
  'init_std': 0.02,
  'dropout_pooled': 0.0,
  'dropout_head': 0.1,
}
XLNET_PIECES = {'tokenizer': 'unigram', 'vocab_size': 31_998, 'special_tokens': ('<cls>', '<sep>')}


def xlnet_adam(adam: str, *, decay: bool = True) -> dict[str, Any]:
  """XLNet's optimizer as released (model_utils.py): clipping at 1, linear decay, and Adam of one of two forms.

  Args:
    adam: 'released' has no bias correction where there is weight decay; 'corrected' has it all the same.
    decay: weight decay 0.01; without, Adam is TensorFlow's.
  """
  return {
    'optimizer': 'bert_adam' if decay and adam == 'released' else 'adamw',
    'eps': 1e-6,
    'eps_form': 'corrected' if decay else 'uncorrected',
    'weight_decay': 0.01 if decay else 0.0,
    'clip_norm': 1.0,
    'schedule': 'linear',
    'groups': DECAY_MATRICES_ONLY,
  }


def xlnet_fine_tuning(lr: float, steps: int, warmup: int, epochs: float, *, decay: bool, adam: str) -> dict[str, Any]:
  """The `optim` and `train` sections of XLNet's fine-tuning, as released (model_utils.py).

  Args:
    lr: the highest rate.
    steps: updates; 0 trains for `epochs`.
    warmup: updates of it; 0 is a tenth of all.
    epochs: to train where `steps` is 0.
    decay: see `xlnet_adam`.
    adam: see `xlnet_adam`.
  """
  optim = {
    **xlnet_adam(adam, decay=decay),
    'lr': lr,
    **({'warmup_steps': warmup} if warmup else {'warmup_fraction': 0.1}),
  }
  length = {'steps': steps} if steps else {'epochs': epochs}
  return {'optim': optim, 'train': {**length, 'init_parts': ('model',), 'like_init': True}}


# Rows of any length meet in a batch, as released; a step reads them in four groups of like length, so that on a CPU
# fine-tuning takes half the time.
ANY_LENGTH = {'pool': 0, 'groups': 4}


def tiny_fine_tuning(**data: Any) -> dict[str, Any]:
  """`tiny` for fine-tuning, from nothing and on a part of the embedded corpus.

  Args:
    **data: of the `data` section, the data set among it.
  """
  changes = {
    'data': {'vocab_size': 500, 'batching': {'groups': 1}},
    'optim': {'warmup_fraction': 0.0},
    'train': {'epochs': 0.0},
  }
  return config(tiny(), changes, {'data': data}).to_dict()


# What the recipes of Merity et al. 2018 (arXiv 1708.02182, sections 4.1 and 5) share: NT-ASGD over windows of random
# length, as released. Validation in 10 streams, the final measurement in one.
AWD_LSTM: dict[str, Any] = {
  'model': {'name': 'awd_lstm'},
  'data': {
    'tokenizer': 'words',
    'batching': {'name': 'streams', 'random_length': True, 'length_multiple': 8},
    'length': 70,
    'eval_batch_size': 10,
    'eval_length': 70,
  },
  'optim': {
    'optimizer': 'sgd',
    'lr': 30.0,
    'clip_norm': 0.25,
    'weight_decay': 1.2e-6,
    'asgd': 'triggered',
    'nonmono': 5,
    'asgd_lag': True,
  },
  'train': {'log_every': 50},
  'evaluation': {'batch_size': 1},
}


def word2vec_rate(architecture: str) -> dict[str, Any]:
  """word2vec.c's: 0.025 (CBOW 0.05), falling with the words seen to 1e-4 of it."""
  lr = 0.05 if architecture == 'cbow' else 0.025
  return {'optimizer': 'sgd', 'lr': lr, 'schedule': 'linear', 'end_fraction': 1e-4}


# Adagrad as ELMo's release has it (bilm-tf, training.py): rate 0.2, accumulator 1, clipping at 10, on a loss that is 20
# steps times half the sum of the two directions. Ours is that sum, 10 times smaller: so the clipping norm is 10 times
# smaller and the accumulator 100 times; the updates are the same.
ELMO_ADAGRAD = {'optimizer': 'adagrad', 'lr': 0.2, 'accumulator': 0.01, 'clip_norm': 1.0}


# Sizes of the task models that read no vectors trained elsewhere; those of Peters et al. 2018 do, and have 50 columns
# of them and 128 filters.
OWN_WORDS = {'E': 100, 'char_filters': ((3, 30),), 'char_projection': 30}


def elmo_task(bilm: str, place: str, fine_tune: bool) -> dict[str, Any]:
  """Settings of a task model with ELMo vectors, or without for place 'none'.

  Args:
    bilm: variant of models/elmo.py whose run is the start (train.init_from).
    place: 'none', 'input', 'output' or 'both'.
    fine_tune: train the biLM too, at a hundredth of the rate, instead of leaving it as it is.
  """
  if place == 'none':
    return {'model': {'variant': 'base'}}
  rate = 0.01 if fine_tune else 0.0
  return {
    'model': {'variant': f'elmo_{bilm}', 'elmo': place, 'frozen': not fine_tune, 'dropout_bilm': 0.1 * fine_tune},
    'optim': {'groups': (('^model/bilm/', rate, 0.0), ('.*', 1.0, 1.0))},
    'train': {'init_parts': ('model=model/bilm',)},
  }


# Adam and the schedule of Vaswani et al. 2017, section 5.3. With `width` the rate is the paper's formula times `lr`.
TRANSFORMER_ADAM = {'optimizer': 'adam', 'b1': 0.9, 'b2': 0.98, 'eps': 1e-9, 'schedule': 'inverse_sqrt'}


CHARACTER_ABLATIONS: dict[str, Any] = {  # options of `character_transformer`, rows of the paper's table
  'every_position': True,
  'every_layer': True,
  'second_target': True,
  'layer_positions': True,
  'optimizer': ('momentum', 'adam'),
}


def character_transformer(dataset: str, size: str, options: Any, *, small: bool) -> ml_collections.ConfigDict:
  """The character Transformer of Al-Rfou et al. 2018 (arXiv 1808.04444, section 3): enwik8.py and text8.py there.

  Args:
    dataset: 'enwik8' or 'text8'.
    size: the model's variant, 't12' or 't64'.
    options: as CHARACTER_ABLATIONS, chosen.
    small: in seconds on a laptop.
  """
  momentum = {'optimizer': 'sgd', 'lr': 3e-3, 'momentum': 0.99}
  adam = {'optimizer': 'adam', 'lr': 1e-4}  # the paper's other optimizer is not known here; the rate is ours
  base = {
    'name': f'character_transformer_{dataset}_{"tiny" if small else size}',
    'model': {
      'name': 'character_transformer',
      'variant': size,
      'positions': 'layers' if options.layer_positions else 'sinusoids',
    },
    'objective': {name: options[name] for name in ('every_position', 'every_layer', 'second_target')},
    'data': {
      'dataset': dataset,
      'tokenizer': 'bytes',
      'batching': {'name': 'windows', 'second': options.second_target},
      'batch_size': 16,
      'length': 512,
      'eval_batch_size': 64,
    },
    'optim': momentum if options.optimizer == 'momentum' else adam,
    'train': {'steps': 4_000_000, 'eval_every': 20_000, 'log_every': 200},
    'checkpoint': {'every_steps': 4000},
    'evaluation': {'baselines': False, 'stride': 1, 'batch_size': 256},
  }
  changes = {'optim': {'warmup_steps': 0}, 'evaluation': {'stride': 16, 'batch_size': 64}}
  return config(base, *((tiny(), changes) if small else ()))


def transformer_xl_characters(dataset: str, size: str, tokenizer: str, *, small: bool) -> ml_collections.ConfigDict:
  """Transformer-XL over bytes or characters, as released: experiments/transformer_xl/enwik8.py and text8.py.

  Args:
    dataset: 'enwik8' or 'text8'.
    size: ending of the model's variant, '12l', '18l' or '24l'.
    tokenizer: 'bytes' or 'characters'.
    small: in seconds on a laptop.
  """
  large = size == '24l'
  far, clamp = (3800, 1000) if large else (2100, 820)
  base = {
    'name': f'transformer_xl_{dataset}_{"tiny" if small else size}',
    'model': {'name': 'transformer_xl', 'variant': f'{dataset}_{size}'},
    'data': {
      'dataset': dataset,
      'tokenizer': tokenizer,
      'batching': 'streams',
      'batch_size': 64 if large else 24,
      'length': 768 if large else 512,
      'eval_batch_size': 16,
      'eval_length': 128 if large else 80,
    },
    'optim': {
      'optimizer': 'adam',
      'lr': 2.5e-4,
      'clip_norm': 0.25,
      'schedule': 'cosine',
      'warmup_steps': 4000 if large else 0,
      'end_fraction': 0.01 if large else 0.004,
    },
    'train': {'steps': 400_000, 'eval_every': 4000, 'log_every': 200},
    'checkpoint': {'every_steps': 4000},
    'evaluation': {'baselines': False, 'model': {'M': far, 'clamp': clamp, 'same_length': True}},
  }
  seen = {'evaluation': {'model': {'M': 24, 'clamp': 12}}}
  return config(base, *((tiny(), seen) if small else ()))


def parse_arg(arg: str, variants: Sequence[str], **options: Any) -> tuple[str, ml_collections.ConfigDict]:
  """Splits 'variant,key=value,flag' into a variant and options.

  Args:
    arg: text after the colon of `--config=file.py:arg`; an empty one means the defaults.
    variants: the names allowed, the default first.
    **options: each option with its default, whose type the value given is turned into; a bare name means True. A
      tuple lists the values allowed, the default first.

  Returns:
    (variant, options).

  Raises:
    ValueError: unknown variant or option, or a value of another type than the default's.
  """
  variant = variants[0]
  found = {k: v[0] if isinstance(v, tuple) else v for k, v in options.items()}
  for i, part in enumerate(p.strip() for p in arg.split(',') if p.strip()):
    name, equals, text = part.partition('=')
    if i == 0 and not equals and name not in options:
      variant = _known(name, variants, 'variant')
    else:
      _known(name, options, 'option')
      found[name] = _value(name, text if equals else 'true', options[name])
  return variant, ml_collections.ConfigDict(found)


def _known(name: str, names: Sequence[str] | Mapping[str, Any], what: str) -> str:
  if name in names:
    return name
  close = difflib.get_close_matches(name, list(names), n=1)
  hint = f'; did you mean "{close[0]}"?' if close else '; known: ' + ', '.join(names)
  raise ValueError(f'this experiment has no {what} "{name}"{hint}')


def _value(name: str, text: str, default: Any) -> Any:
  if isinstance(default, tuple):
    return _known(text, default, f'{name} called')
  kind = type(default)
  try:
    if kind is bool:
      return {'true': True, 'false': False, '1': True, '0': False}[text.lower()]
    return kind(text)
  except (KeyError, ValueError):
    raise ValueError(f'option "{name}" is "{text}"; it must be of type {kind.__name__}') from None


def config(*parts: Mapping[str, Any]) -> ml_collections.ConfigDict:
  """Merges nested settings into one ConfigDict; what comes later wins."""
  merged: dict[str, Any] = {}
  for part in parts:
    _merge(merged, part)
  return ml_collections.ConfigDict(merged)


def _merge(into: dict[str, Any], part: Mapping[str, Any]) -> None:
  for key, value in part.items():
    if isinstance(value, Mapping):
      _merge(into.setdefault(key, {}), value)
    else:
      into[key] = value


def grid(**values: Sequence[Any]) -> Iterator[dict[str, Any]]:
  """Every combination of `section__key=[...]`, as overrides {'section.key': value}."""
  keys = [k.replace('__', '.') for k in values]
  for point in itertools.product(*values.values()):
    yield dict(zip(keys, point, strict=True))


def ntm_tiny() -> dict[str, Any]:
  """Changes as of `tiny` for experiments of the Neural Turing Machine, whose data is generated."""
  return {
    'model': {'variant': 'tiny'},
    'objective': {'lengths': (2, 4)},
    'data': {
      'batching': {'task': 'copy', 'bits': 4, 'min_length': 1, 'eval_sequences': 8, 'test_lengths': (2, 4)},
      'batch_size': 4,
      'eval_batch_size': 0,
      'length': 3,
    },
    'train': {'steps': 20, 'eval_every': 10, 'log_every': 5},
    'optim': {'warmup_steps': 0},
    'samples': {'count': 2},
  }


def tiny(**model: Any) -> dict[str, Any]:
  """Changes that let any experiment run on a laptop in seconds: tiny model, embedded corpus, small batches.

  Args:
    **model: fields of the model that the tiny variant must not take from the experiment.
  """
  return {
    'model': {'variant': 'tiny', **model},
    'data': {'dataset': 'embedded', 'batch_size': 4, 'length': 32, 'eval_batch_size': 32, 'eval_length': 0},
    'train': {'steps': 20, 'eval_every': 10, 'log_every': 5},
    'optim': {'accumulate': 1, 'warmup_steps': 5},
    'evaluation': {'baselines': False},
    'samples': {'count': 1, 'tokens': 20},
  }


def xlnet_tiny() -> dict[str, Any]:
  """`tiny` for XLNet: rows of 32 of which 16 are remembered."""
  rows = {'vocab_size': 500, 'batching': {'reuse': 16}}
  return config(tiny(M=16, reuse=16), {'data': rows}).to_dict()


def ulmfit_size(size: str) -> dict[str, Any]:
  """Sizes of the AWD-LSTM of ULMFiT: 'paper' (arXiv 1801.06146, section 4.1), or 'small' for two cores."""
  return {'variant': 'ptb', **({'E': 400, 'D': 1150, 'N': 3} if size == 'paper' else {'E': 128, 'D': 256, 'N': 3})}


def ulmfit_regularization(fidelity: str, *, classifier: bool = False, times: float = 1.0) -> dict[str, float]:
  """Dropout rates of that model and factors of its activation penalties.

  Args:
    fidelity: 'paper' (section 4.1, all stages; the classifier has no penalties) or 'fastai' (finetune_lm.py and
      train_clas.py, both with alpha 2 and beta 1).
    classifier: whether it is the classifier's encoder.
    times: factor of every rate, the scripts' `dropmult`.
  """
  if fidelity == 'paper' or classifier:
    rates = (0.4, 0.3, 0.4, 0.05, 0.5)
  else:
    rates = (0.25, 0.15, 0.1, 0.02, 0.2)
  names = ('input', 'hidden', 'output', 'embedding', 'weight')
  penalties = (0.0, 0.0) if fidelity == 'paper' and classifier else (2.0, 1.0)
  found = {f'dropout_{name}': rate * times for name, rate in zip(names, rates, strict=True)}
  return found | dict(zip(('alpha', 'beta'), penalties, strict=True))


def ulmfit_windows(size: str, *, scale_rate: bool) -> dict[str, Any]:
  """Windows of variable length, as AWD-LSTM and both language models of ULMFiT read text.

  Args:
    size: 'paper' pads to a multiple of 8; 'small' to a multiple of 40, so that two shapes are compiled.
    scale_rate: the rate of an update follows the length of its window.
  """
  multiple = 8 if size == 'paper' else 40
  return {'name': 'streams', 'random_length': True, 'length_multiple': multiple, 'scale_rate': scale_rate}


ULMFIT_DATA = {'embedded': 'embedded_topics', 'own': 'table_files', 'tiny': 'embedded'}  # variant -> data set


def ulmfit_text(dataset: str, direction: str) -> dict[str, Any]:
  """How ULMFiT's language model and classifier read the same data set."""
  return {
    'dataset': dataset,
    'tokenizer': 'words',
    'lower_case': True,
    'vocab_size': 60000,
    'min_count': 2 if dataset == 'imdb' else 1,
    'reverse': direction == 'backward',
    **({'hold_out_test': False} if dataset == 'table_files' else {}),  # the validation file is measured
  }


def ulmfit_tiny() -> dict[str, Any]:
  """What of those settings the size for tests must not take."""
  return {
    'model': {'E': 12, 'D': 16, 'N': 2},
    'data': {'vocab_size': 500},
    'optim': {'warmup_steps': 0},
    'train': {'epochs': 0},
  }
