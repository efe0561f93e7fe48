"""Initial parameters of a run: from `train.init_from` and `data.vectors`, the rest newly initialised.

`train.init_from` is a finished run, whose parameters are taken by name; a file of word vectors, or a run of word2vec
that begins another model, for the word table; or a file for the backbone of an image model.
"""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Any

from flax.traverse_util import flatten_dict

from lmx.config import schema
from lmx.data.corpus import Corpus
from lmx.errors import InputError, InputWarning
from lmx.models import registry
from lmx.optim import groups
from lmx.types import Array, Params


def take(run: schema.Run, shapes: Params, corpus: Corpus, key: Array) -> tuple[Params, list[str]]:
  """Return the parameters that a run takes from elsewhere, and a log line for each source.

  Args:
    run: the run, with the vocabulary of its data.
    shapes: shapes of its parameters.
    corpus: its data.
    key: PRNG key of `init_params`.

  Raises:
    InputError: the source does not fit the run, see its module.
  """
  taken: Params = {}
  notes: list[str] = []
  if run.train.init_from:
    taken, note = _module(_source(run)).take(run, shapes, corpus, key)
    notes.append(note)
  if run.data.vectors:
    taken, note = _module('word_table').add(taken, run, shapes, corpus, key)
    notes.append(note)
  check_untrained(run, shapes, taken)
  return taken, notes


def _source(run: schema.Run) -> str:
  """Return the module of lmx/runs that reads `train.init_from`."""
  if not os.path.isfile(os.path.expanduser(run.train.init_from)):  # a finished run
    vectors = importlib.import_module('lmx.config.word_vectors')
    other = run.model_name != 'word2vec' and not run.train.init_parts
    return 'word_table' if other and vectors.is_run(run.train.init_from) else 'transfer'
  return 'backbone' if registry.get(run.model_name).READS == 'images' else 'word_table'


def _module(name: str) -> Any:
  return importlib.import_module(f'lmx.runs.{name}')


def check_untrained(run: schema.Run, shapes: Params, taken: Params) -> None:
  """Warn about newly initialised parameters that are never trained, because their rate in `optim.groups` is 0.

  Args:
    run: the run.
    shapes: its parameters.
    taken: those that `train.init_from` and `data.vectors` give.

  Raises:
    InputError: `train.init_parts` says that they are a run's, but `train.init_from` names none.
  """
  given = {'/'.join(path) for path in flatten_dict(dict(taken))}
  rates = groups.assign(run.optim.groups, shapes)
  missing = [name for name, group in rates.items() if not group[1] and name not in given]
  if not missing:
    return
  about = f'{missing[0]} and {len(missing) - 1:,} more' if len(missing) > 1 else missing[0]
  if run.train.init_parts and not run.train.init_from:
    raise InputError(
      f'train.init_from: got none; expected a run that provides {", ".join(run.train.init_parts)} of '
      f'train.init_parts: {about} would be random and never trained; set train.init_from=RUN, or '
      'choose a variant without them'
    )
  warnings.warn(
    f'optim.groups: learning rate 0 for {about}, which have no pre-trained values (train.init_from, '
    'data.vectors) and stay random',
    InputWarning,
    stacklevel=2,
  )
