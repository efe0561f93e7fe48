"""Rows of a regression: score, predicted score, squared error and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx.evaluation.parts import Subject
from lmx.evaluation.rows import Measure, Row, begin_of_texts, column
from lmx.prediction import classification

TRUTH = ('label',)


def collect(subject: Subject, outputs: Sequence[Any]) -> tuple[list[dict[str, Any]], str]:
  """Return {'row', 'label', 'prediction', 'loss', 'text'} of each row; the text is the beginning of each text."""
  del outputs
  run, corpus, params, engine, split, _ = subject
  arrays = classification.compute_outputs(run, corpus, engine.to_one_device(params), split)
  pairs = zip(arrays['truth'].tolist(), arrays['scores_B'].tolist(), strict=True)
  return [
    {
      'row': i,
      'label': score,
      'prediction': found,
      'loss': (found - score) ** 2,
      'text': begin_of_texts(corpus, split, i, reverse=run.data.reverse),
    }
    for i, (score, found) in enumerate(pairs)
  ], 'rows'


def measure(metric: str, rows: Sequence[Row], results: Mapping[str, Any]) -> Measure | None:
  """Return the correlations, the root mean squared error or the loss, unless it has an auxiliary term."""
  statistics = {'pearson': _pearson, 'spearman': _spearman, 'rmse': _rmse}
  statistics |= {} if 'lm_nll' in results else {'loss': _squared_error}
  return Measure(column(rows, 'prediction', 'label'), statistics[metric]) if metric in statistics else None


def _pearson(pairs: np.ndarray) -> float:
  """Return Pearson's correlation, NaN of constant values."""
  with np.errstate(invalid='ignore', divide='ignore'):
    return float(np.corrcoef(pairs.T)[0, 1])


def _spearman(pairs: np.ndarray) -> float:
  from scipy import stats

  return _pearson(stats.rankdata(pairs, axis=0))


def _squared_error(pairs: np.ndarray) -> float:
  return float(np.mean(np.square(pairs[:, 0] - pairs[:, 1])))


def _rmse(pairs: np.ndarray) -> float:
  return float(np.sqrt(_squared_error(pairs)))
