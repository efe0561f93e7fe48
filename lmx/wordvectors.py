"""The vectors of words that a run has learned, as `metrics.embeddings.Vectors`."""

from __future__ import annotations

from typing import Any

import numpy as np

from lmx.data import pipeline
from lmx.data.batching import skipgrams
from lmx.errors import InputError
from lmx.metrics.embeddings import Vectors
from lmx.types import Params


def words(corpus: Any, data: pipeline.Config) -> list[str]:
  """Words of the training split, the most frequent first."""
  return [corpus.tokenizer.tokens[i] for i in _ids(corpus, data)]


def _ids(corpus: Any, data: pipeline.Config) -> np.ndarray:
  counts_V = skipgrams.words_counted(corpus, data.batching.words_only)
  return np.argsort(-counts_V, kind='stable')[: np.count_nonzero(counts_V)]


def of_tables(corpus: Any, data: pipeline.Config, params: Params) -> Vectors:
  """The rows of `embed/table` that belong to words of the training split, the most frequent first.

  Args:
    corpus: whose tokenizer numbers the rows.
    data: the run's section, which says what is a word.
    params: the model's.

  Raises:
    InputError: the model has no such table.
  """
  if 'table' not in params.get('embed', {}):
    raise InputError('this model has no table of word vectors (embed/table)')
  return Vectors(words(corpus, data), np.asarray(params['embed']['table'])[_ids(corpus, data)])


def of_run(loaded: Any) -> Vectors:
  """The vectors of a run given back by `lmx.load`."""
  return of_tables(pipeline.load(loaded.run.data), loaded.run.data, loaded.params['model'])
