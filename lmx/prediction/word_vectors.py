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


def words(corpus: Any, data: pipeline.Config) -> list[str]:
  """Return the words of the training split, the most frequent first."""
  return [corpus.tokenizer.tokens[i] for i in _ids(corpus, data)]


def _ids(corpus: Any, data: pipeline.Config) -> np.ndarray:
  counts_V = skipgrams.count_words(corpus, getattr(data.batching, 'words_only', False))
  return np.argsort(-counts_V, kind='stable')[: np.count_nonzero(counts_V)]


def from_tables(corpus: Any, data: pipeline.Config, params: Params) -> Vectors:
  """Return the rows of the embedding table that belong to words of the training split, the most frequent first.

  Args:
    corpus: the run's data, whose tokenizer numbers the rows.
    data: the run's data section, which defines words.
    params: the model's parameters.

  Raises:
    InputError: the model has no such table.
  """
  return Vectors(words(corpus, data), _table(params)[_ids(corpus, data)])


def _table(params: Params) -> np.ndarray:
  embed = params.get('embed', {})
  tables = [embed[name] for name in ('table', 'tokens') if np.ndim(embed.get(name, 0)) == 2]
  if not tables:
    raise InputError(f'the model has no word vector table; {_EXPECTED}')
  return np.asarray(tables[0])


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


def from_run(loaded: Any) -> Vectors:
  """Return the word vectors of a run from `lmx.load`. Raises InputError if it has none."""
  data = loaded.run.data
  if loaded.tokenizer.kind != 'words' or data.characters:
    got = 'data.characters' if data.characters else f'the tokenizer "{loaded.tokenizer.kind}"'
    raise InputError(f'{loaded.workdir}: got a run with {got}; {_EXPECTED}')
  _table(loaded.params['model'])
  return from_tables(loaded.corpus(), data, loaded.params['model'])
