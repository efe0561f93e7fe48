"""Initialisation of a model's word table from pre-trained vectors: `data.vectors`, or those of `train.init_from`.

`data.vectors` is a text of vectors whose words also join the vocabulary (lmx/data/vectors.py). `train.init_from` may be
such a text, the binary format of word2vec, a model of fastText, or the work directory of a run of word2vec, for any
model with a word table; its words give rows to the vocabulary as it is. A translation model may have a table for each
language. Each table then gets the vectors of the words in its own language's vocabulary.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterable

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from lmx.config import schema, word_vectors
from lmx.data import pipeline, vectors
from lmx.data.corpus import Corpus
from lmx.errors import InputError
from lmx.interop import fasttext, word2vec
from lmx.models import registry
from lmx.runs import init, restore
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
  path, leaves = run.data.vectors, flatten_dict(dict(taken), sep='/')
  for name in leaves.keys() & set(_names(registry.get(run.model_name))):
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
  tables, note = _tables('data.vectors', path, run, shapes, corpus, key, run.data.other_rows)
  return unflatten_dict(leaves | tables, sep='/'), note


def take(run: schema.Run, shapes: Params, corpus: Corpus, key: Array) -> tuple[Params, str]:
  """Return the word tables with the rows of the vectors in `train.init_from`, other rows being the model's own.

  The tables are the model's WORD_TABLE, or the embeddings of its VOCABULARY.

  Args:
    run: the run, with the vocabulary of its data.
    shapes: shapes of its parameters.
    corpus: its data.
    key: PRNG key of `init_params`.

  Returns:
    (the tables, a nested dict; a line for the log).

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
  tables, note = _tables('train.init_from', path, run, shapes, corpus, key, 'model')
  return unflatten_dict(tables, sep='/'), note


def _names(model: Model) -> list[str]:
  """Return the possible names of a model's word tables."""
  names = (model.WORD_TABLE,) if model.WORD_TABLE else model.VOCABULARY
  return [f'model/{name}' for name in names if name.startswith('embed/')]


def _tables(
  field: str, path: str, run: schema.Run, shapes: Params, corpus: Corpus, key: Array, other_rows: str
) -> tuple[dict[str, np.ndarray], str]:
  """Return ({name: word table with the rows of a file}, a line for the log)."""
  model = registry.get(run.model_name)
  possible, leaves = _names(model), flatten_dict(dict(shapes), sep='/')
  names = [name for name in possible if name in leaves]
  if not names:
    table = possible[0] if possible else 'a table of words'
    raise InputError(f"{field}: got {path} with a model without {table}; expected one; set {field} to ''")
  of_source = {f'model/{name}' for name in model.SOURCE_VOCABULARY}
  tokenizers = [corpus.tokenizer if name in of_source else corpus.tokenizer.target for name in names]
  words = [pipeline.words(run.data, tokenizer) for tokenizer in tokenizers]
  own = jax.jit(lambda key: [flatten_dict(dict(init.init_params(run, key)), sep='/')[name] for name in names])(key)
  wanted = [word for its in words for word in its]
  size = own[0].shape[1]
  known = _read(path, wanted, size, 'model.E' if getattr(run.model, 'E', 0) == size else 'model.D')
  if not len(known.found):
    raise InputError(f'{field}: got {path} without a vector for any of the {len(wanted):,} words; expected some')
  tables: dict[str, np.ndarray] = {}
  counts, start = [], 0
  for name, table_VE, its in zip(names, map(np.array, own), words, strict=True):
    if other_rows == 'normal':
      table_VE = (table_VE - table_VE.mean()) / table_VE.std() * known.rows_KE.std() + known.rows_KE.mean()
    own_K = (known.found >= start) & (known.found < start + len(its))
    table_VE[known.found[own_K] - start] = known.rows_KE[own_K]
    side = f" ({'source' if name in of_source else 'target'}'s words)" if corpus.tokenizer.is_separate else ''
    counts.append(f'{name}{side}: {own_K.sum():,} of {len(its):,} rows')
    tables[name], start = table_VE, start + len(its)
  return tables, _note(', '.join(counts), path, known)


def _read(path: str, words: list[str], width: int, field: str) -> vectors.Vectors:
  """Return the vectors of a file in any of the formats."""
  is_run = not os.path.isfile(path) and word_vectors.is_run(path)
  found = word_vectors.width(path) if is_run else word_vectors.binary_width(path) if os.path.isfile(path) else 0
  if not found:
    return vectors.read(path, words, width, field)
  if found != width:
    where = f'the width of the vectors in {path}'
    raise InputError(f'{field}: got {width}; expected {found}, {where}; set {field}={found}')
  return vectors.look_up(words, width, functools.partial(_of_run if is_run else _of_binary, path))


def _of_binary(path: str, wanted: Collection[str]) -> Iterable[tuple[str, np.ndarray]]:
  """Return the words of a binary file among `wanted`, with their vectors."""
  if fasttext.is_model(path):
    return fasttext.select(path, fasttext.read(path), wanted)
  return word2vec.select(path, wanted)


def _of_run(path: str, wanted: Collection[str]) -> Iterable[tuple[str, np.ndarray]]:
  """Return the words of a run of word2vec among `wanted`, with their vectors."""
  loaded = restore.load(path, 'best')
  table_VD = np.asarray(loaded.params['model']['embed']['table'])
  words = pipeline.words(loaded.run.data, loaded.tokenizer)
  return ((word, table_VD[i]) for i, word in enumerate(words) if word in wanted)


def _note(counts: str, path: str, known: vectors.Vectors) -> str:
  """Return the line for the log; `counts` gives the rows found of each table."""
  rules = ', '.join(f'{n:,} {rule}' for n, rule in zip(known.counts, vectors.RULES, strict=True) if n)
  repeated = f'; {known.duplicates:,} lines repeat a word, whose first vector is taken' if known.duplicates else ''
  return f'{counts} found in {path} ({rules}){repeated}'
