"""Initialisation of a model's word table from pre-trained vectors: `data.vectors`, or a file in `train.init_from`.

`data.vectors` is a text of vectors whose words also join the vocabulary (lmx/data/vectors.py). `train.init_from` may be
such a text, the binary format of word2vec or a model of fastText, for any model with a word table; its words give rows
to the vocabulary as it is.
"""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from lmx.config import schema
from lmx.data import pipeline, vectors
from lmx.data.corpus import Corpus
from lmx.errors import InputError
from lmx.interop import fasttext, word2vec
from lmx.models import registry
from lmx.runs import init
from lmx.types import Array, Model, Params


def add(taken: Params, run: schema.Run, shapes: Params, corpus: Corpus, key: Array) -> tuple[Params, str]:
  """Add the table of the model's WORD_TABLE, with the rows of `data.vectors`, to initial parameters.

  Rows of other words are the model's own. With `data.other_rows` = 'normal' they are shifted and scaled to the mean and
  standard deviation of all vector elements found, so they follow that normal distribution.

  Args:
    taken: parameters from `train.init_from`, {} without it.
    run: the run, with the vocabulary of its data.
    shapes: shapes of its parameters.
    corpus: its data.
    key: PRNG key of `init_params`.

  Returns:
    (`taken` and the table, a nested dict; a line for the log).

  Raises:
    InputError: `taken` has the table, the model has none, the file differs from the one by which the data were
      prepared, no word has a vector, or `vectors.read` raises.
  """
  path, name = run.data.vectors, _name(registry.get(run.model_name))
  leaves = flatten_dict(dict(taken), sep='/')
  if name in leaves:
    raise InputError(
      f'data.vectors: got {path} with train.init_from={run.train.init_from}, which also provides '
      f'{name}; expected one of them; set train.init_parts to parts without it, or data.vectors to '
      "''"
    )
  if vectors.digest(path) != corpus.manifest['vectors']:
    raise InputError(
      f"data.vectors: got {path}, which has changed since this run's vocabulary was built from it; "
      'restore the file, or start in another --workdir'
    )
  table, note = _table('data.vectors', path, run, shapes, corpus, key, run.data.other_rows)
  return unflatten_dict(leaves | table, sep='/'), note


def take(run: schema.Run, shapes: Params, corpus: Corpus, key: Array) -> tuple[Params, str]:
  """Return the word table with the rows of the file in `train.init_from`, other rows being the model's own.

  The table is the model's WORD_TABLE or the first leaf of its VOCABULARY.

  Args:
    run: the run, with the vocabulary of its data.
    shapes: shapes of its parameters.
    corpus: its data.
    key: PRNG key of `init_params`.

  Returns:
    (the table, a nested dict; a line for the log).

  Raises:
    InputError: `train.init_parts` names parts, the model has no word table, the vectors have another width than it, no
      word has a vector, or the file is damaged.
  """
  if run.train.init_parts:
    raise InputError(
      f'train.init_parts: got {", ".join(run.train.init_parts)} with train.init_from={run.train.init_from}, '
      'a word vector file; expected none; set train.init_parts=()'
    )
  path = os.path.expanduser(run.train.init_from)
  table, note = _table('train.init_from', path, run, shapes, corpus, key, 'model')
  return unflatten_dict(table, sep='/'), note


def _name(model: Model) -> str:
  """Return the name of a model's word table, '' if it has none."""
  name = model.WORD_TABLE or next(iter(model.VOCABULARY), '')
  return f'model/{name}' if name.startswith('embed/') else ''


def _table(
  field: str, path: str, run: schema.Run, shapes: Params, corpus: Corpus, key: Array, other_rows: str
) -> tuple[dict[str, np.ndarray], str]:
  """Return ({name: the word table with the rows of a file}, a line for the log)."""
  name = _name(registry.get(run.model_name))
  if name not in flatten_dict(dict(shapes), sep='/'):
    raise InputError(
      f"{field}: got {path} with a model without {name or 'a table of words'}; expected one; set {field} to ''"
    )
  table_VE = np.array(jax.jit(lambda key: flatten_dict(dict(init.init_params(run, key)), sep='/')[name])(key))
  words = pipeline.words(run.data, corpus.tokenizer)
  width = 'model.E' if hasattr(run.model, 'E') else 'model.D'
  known = _read(path, words, table_VE.shape[1], width)
  if not len(known.found):
    raise InputError(f'{field}: got {path} without a vector for any of the {len(words):,} words; expected some')
  if other_rows == 'normal':
    table_VE = (table_VE - table_VE.mean()) / table_VE.std() * known.rows_KE.std() + known.rows_KE.mean()
  table_VE[known.found] = known.rows_KE
  return {name: table_VE}, _note(name, path, known, len(words))


def _read(path: str, words: list[str], width: int, field: str) -> vectors.Vectors:
  """Return the vectors of a file in any of the formats."""
  if os.path.isfile(path):
    pairs: Any = None
    if fasttext.is_model(path):
      model = fasttext.read(path)
      found, pairs = model.matrix_RE.shape[1], lambda wanted: fasttext.select(path, model, wanted)
    elif found := word2vec.width_of_binary(path):
      pairs = lambda wanted: word2vec.select(path, wanted)
    if pairs and found != width:
      where = f'the width of the vectors in {path}'
      raise InputError(f'{field}: got {width}; expected {found}, {where}; set {field}={found}')
    if pairs:
      return vectors.look_up(words, width, pairs)
  return vectors.read(path, words, width, field)


def _note(name: str, path: str, known: vectors.Vectors, count: int) -> str:
  """Return the line for the log."""
  rules = ', '.join(f'{n:,} {rule}' for n, rule in zip(known.counts, vectors.RULES, strict=True) if n)
  repeated = f'; {known.duplicates:,} lines repeat a word, whose first vector is taken' if known.duplicates else ''
  return f'{name}: {len(known.found):,} of {count:,} rows found in {path} ({rules}){repeated}'
