"""Word vectors of a run or of a file, as `metrics.embeddings.Vectors`."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from lmx.data import pipeline, vectors
from lmx.data.batching import skipgrams
from lmx.errors import InputError
from lmx.interop import fasttext, word2vec
from lmx.metrics.embeddings import Vectors
from lmx.types import Params

_EXPECTED = (
  'expected a model with one table of embeddings, a row for each word of data.tokenizer "words", such as a run of '
  'word2vec, nplm, rnn_lm, awd_lstm or transformer'
)
_SIDES = {'source': ('source',), 'target': ('target', 'tokens'), '': ('table', 'tokens')}  # side -> names of its table


def words(corpus: Any, data: pipeline.Config, side: str = '') -> list[str]:
  """Return the words of the training split, or of one side of its pairs, the most frequent first."""
  tokenizer = corpus.tokenizer.target if side == 'target' else corpus.tokenizer
  return [tokenizer.tokens[i] for i in _ids(corpus, data, side)]


def _ids(corpus: Any, data: pipeline.Config, side: str) -> np.ndarray:
  counts_V = skipgrams.count_words(corpus, getattr(data.batching, 'words_only', False), side)
  return np.argsort(-counts_V, kind='stable')[: np.count_nonzero(counts_V)]


def from_tables(corpus: Any, data: pipeline.Config, params: Params, side: str = '') -> Vectors:
  """Return the rows of the embedding table that belong to words of the training split, the most frequent first.

  Args:
    corpus: the run's data, whose tokenizers number the rows.
    data: the run's data section, which defines words.
    params: the model's parameters.
    side: 'source' or 'target' of a model with a table for each; '' for the table of any other model.

  Raises:
    InputError: the model has no such table.
  """
  return Vectors(words(corpus, data, side), _table(params, side)[_ids(corpus, data, side)])


def _table(params: Params, side: str) -> np.ndarray:
  tables = {name: table for name, table in params.get('embed', {}).items() if np.ndim(table) == 2}
  if 'source' in tables and not side:
    raise InputError('--side: got none; expected source or target, because the model has a table for each')
  if not (names := [name for name in _SIDES[side] if name in tables]):
    if side and tables:
      raise InputError(f'--side: got {side}; expected none, because the model has one table; omit --side')
    raise InputError(f'the model has no word vector table; {_EXPECTED}')
  return np.asarray(tables[names[0]])


def from_file(path: str) -> Vectors:
  """Return the word vectors of a file: word2vec's binary format, a model of fastText, or a text (lmx/data/vectors.py).

  Raises:
    InputError: the file is damaged, or has another format.
  """
  if os.path.isfile(path) and fasttext.is_model(path):
    model = fasttext.read(path)
    pairs = fasttext.select(path, model, model.ids)
    return Vectors(*vectors.first_rows(path, ((word, row_E.tobytes()) for word, row_E in pairs)))
  if os.path.isfile(path) and word2vec.width_of_binary(path):
    return Vectors(*vectors.first_rows(path, word2vec.rows(path)))
  return Vectors(*vectors.read_all(path, '--vectors'))


def from_run(loaded: Any, side: str = '') -> Vectors:
  """Return the word vectors of a run from `lmx.load`. Raises InputError if it has none; `side` as in `from_tables`."""
  data = loaded.run.data
  if loaded.tokenizer.kind != 'words' or data.characters:
    got = 'data.characters' if data.characters else f'the tokenizer "{loaded.tokenizer.kind}"'
    raise InputError(f'{loaded.workdir}: got a run with {got}; {_EXPECTED}')
  _table(loaded.params['model'], side)
  return from_tables(loaded.corpus(), data, loaded.params['model'], side)
