"""Parts of ELMo's experiments (Peters et al. 2018): optimizer of the biLM, settings of the task models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import config

# Adagrad as ELMo's release has it (bilm-tf, training.py): rate 0.2, accumulator 1, clipping at 10, on a loss that is 20
# steps times half the sum of the two directions. Ours is that sum, 10 times smaller: so the clipping norm is 10 times
# smaller and the accumulator 100 times; the updates are the same.
ADAGRAD = {'optimizer': 'adagrad', 'lr': 0.2, 'accumulator': 0.01, 'clip_norm': 1.0}
# Sizes of task models without pre-trained word vectors; Peters et al. 2018 have 50-dimensional vectors and 128 filters.
# --config.data.vectors=FILE gives vectors, whose width becomes model.E.
OWN_WORDS = {'E': 100, 'char_filters': ((3, 30),), 'char_projection': 30}
FIXED_WORDS = ('^model/embed/table$', 0.0, 0.0)  # of optim.groups: word vectors that are not trained
# Options of `tagger`.
TAGGER: dict[str, Any] = {
  'place': ('', 'input', 'output', 'both'),
  'bilm': ('mini', 'small', 'medium', 'original'),
  'fine_tune': False,
}


def fix_words(settings: dict[str, Any]) -> dict[str, Any]:
  """Return `settings` with optimizer groups that freeze word vectors, such as those of data.vectors."""
  groups = settings.get('optim', {}).get('groups', (('.*', 1.0, 1.0),))
  return {**settings, 'optim': {**settings.get('optim', {}), 'groups': (FIXED_WORDS, *groups)}}


def tagger(variant: str, options: Any) -> Any:
  """Return the settings of the tagger on WNUT-17, as wnut17.py describes them.

  Args:
    variant: a name; one that ends in 'elmo' adds ELMo vectors, 'tiny' is tiny.
    options: values of TAGGER.
  """
  base = {
    'name': f'wnut17_{variant}',
    'model': {'name': 'bilstm', 'dropout': 0.3, **({} if variant == 'tiny' else OWN_WORDS)},
    'objective': {'name': 'tag'},
    'data': {
      'dataset': 'wnut17',
      'tokenizer': 'words',
      'min_count': 2,  # rarer words share an embedding and differ by their characters
      'characters': 24,
      'batching': {'name': 'tagged', 'buckets': (16, 24, 32, 48, 64)},
      'batch_size': 32,
      'length': 128,
    },
    'optim': {'optimizer': 'adam', 'lr': 2e-3, 'schedule': 'linear', 'clip_norm': 5.0},
    'train': {'epochs': 20, 'best_by': 'headline', 'log_every': 50},
    # The F1 still rises after the likelihood of the labels has stopped rising.
    'evaluation': {'split': 'test', 'which': 'last'},
  }
  where = place(variant, options.place, 'input')
  size = task(options.bilm, where, options.fine_tune)
  tags = {'dataset': 'embedded_tags', 'length': 64, 'batching': {'buckets': ()}}
  small = config.merge(tiny(where, spelled=True), {'data': tags})
  return config.merge(base, size, small.to_dict() if variant == 'tiny' else {})


def place(variant: str, given: str, default: str) -> str:
  """Return where a variant adds ELMo vectors, for `task`; `tiny,place=both` adds them too.

  Args:
    variant: 'elmo' or a name that ends so, another one without ELMo, or 'tiny'.
    given: option `place`: '' is the default, and 'none' in `tiny`.
    default: the paper's place.
  """
  if variant.endswith('elmo'):
    return given or default
  return given or 'none' if variant == 'tiny' else 'none'


def stages(file: str, variant: str, options: Mapping[str, Any], known: Mapping[str, Any], text: str) -> list[dict]:
  """Return the stages of a pipeline: the biLM, its tuning on the text of the task, and the task.

  Args:
    file: the task's experiment.
    variant: its variant, one with ELMo.
    options: its options, with `bilm`.
    known: the options that it has, each with its default.
    text: variant of experiments/elmo/tuned.py.

  Raises:
    ValueError: the variant has no ELMo vectors.
  """
  is_tiny = variant == 'tiny' and options['place'] not in ('', 'none')
  if not (variant.endswith('elmo') or is_tiny):
    raise ValueError(f'stages: got {variant}, which reads no biLM; expected elmo; train it with `lmx train`')
  defaults, bilm = config.defaults(known), options['bilm']
  given = ''.join(f',{name}={value}' for name, value in options.items() if value != defaults[name])
  first = {'mini': 'text.py:mini'}.get(bilm, f'lm1b.py:{bilm}')
  tuned = f'{text},bilm={bilm}' if bilm != 'original' else text
  return [
    {'name': '1_bilm', 'config': f'experiments/elmo/{"quickstart.py:tiny" if is_tiny else first}', 'overrides': {}},
    {
      'name': '2_tuned',
      'config': f'experiments/elmo/tuned.py:{"tiny" if is_tiny else tuned}',
      'overrides': {'train.init_from': '{dir}/1_bilm'},
    },
    {
      'name': '3_task',
      'config': f'experiments/{file}:{variant}{given}',
      'overrides': {'train.init_from': '{dir}/2_tuned', 'train.init_parts': ('model=model/bilm',)},
    },
  ]


def tiny(elmo: str, *, spelled: bool = False) -> dict[str, Any]:
  """Return the changes for a tiny task model, which compiles in seconds without ELMo.

  Args:
    elmo: place of the ELMo vectors, 'none', 'input', 'output' or 'both'.
    spelled: without ELMo, words have vectors from their characters too.
  """
  changes = config.tiny(elmo=elmo)
  if elmo == 'none':
    changes['model'] |= {'mix_l2': 0.0} if spelled else {'mix_l2': 0.0, 'char_filters': ()}
  changes['data'] |= {'characters': 12 if spelled or elmo != 'none' else 0}
  changes['train'] |= {'init_parts': ()}  # its biLM is not trained
  return changes


def task(bilm: str, elmo: str, fine_tune: bool) -> dict[str, Any]:
  """Return the settings of a task model with ELMo vectors, or without them if `elmo` is 'none'.

  Args:
    bilm: variant of models/elmo.py of the run in train.init_from.
    elmo: 'none', 'input', 'output' or 'both'.
    fine_tune: train the biLM too, at 1% of the learning rate, instead of freezing it.
  """
  if elmo == 'none':
    return {'model': {'variant': 'base'}}
  rate = 0.01 if fine_tune else 0.0
  return {
    'model': {'variant': f'elmo_{bilm}', 'elmo': elmo, 'frozen': not fine_tune, 'dropout_bilm': 0.1 * fine_tune},
    'data': {'characters': 24 if bilm == 'mini' else 50},
    'optim': {'groups': (('^model/bilm/', rate, 0.0), ('.*', 1.0, 1.0))},
    'train': {'init_parts': ('model=model/bilm',)},
  }
