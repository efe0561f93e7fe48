"""Rows of minimal pairs: the scores of the good and the bad sentence, and whether the pair is correct.

The accuracy is tested over paradigms, `accuracy_pairs` and the accuracy of a phenomenon over pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx.evaluation.rows import Measure, Row, column

TRUTH = ('paradigm', 'pair', 'good', 'bad')
UNITS = {'accuracy': 'paradigms', 'accuracy_per_token': 'paradigms'}


def collect(subject: Any, outputs: Sequence[Any]) -> tuple[list[dict[str, Any]], str]:
  """Return the rows of scored pairs.

  Args:
    subject: not read.
    outputs: (pair, sums of both sentences, numbers of their tokens, what the pair counts by sums, by means) of each.

  Returns:
    {'row', 'paradigm', 'phenomenon', 'pair', 'good', 'bad', 'good_score' and 'bad_score' in nats, 'good_tokens',
    'bad_tokens', 'correct', 'correct_per_token'} of each pair.
  """
  del subject
  names = ('good_score', 'bad_score', 'good_tokens', 'bad_tokens', 'correct', 'correct_per_token')
  return [
    {
      'row': i,
      'paradigm': pair.paradigm,
      'phenomenon': pair.phenomenon,
      'pair': pair.id,
      'good': pair.good,
      'bad': pair.bad,
      **dict(zip(names, (*sums, *tokens, by_sum, by_mean), strict=True)),
    }
    for i, (pair, sums, tokens, by_sum, by_mean) in enumerate(outputs)
  ], 'pairs'


def measure(metric: str, rows: Sequence[Row], results: Mapping[str, Any]) -> Measure | None:
  """Return an accuracy as a function of paradigms, or of pairs."""
  del results
  names = list(dict.fromkeys(row['paradigm'] for row in rows))
  if metric in UNITS:
    paradigm_N = np.asarray([names.index(row['paradigm']) for row in rows])
    correct_N = column(rows, 'correct' if metric == 'accuracy' else 'correct_per_token')
    return Measure(np.bincount(paradigm_N, correct_N) / np.bincount(paradigm_N), np.mean)
  if metric == 'accuracy_pairs':
    correct_N = column(rows, 'correct')
    return Measure(correct_N, np.mean, is_binary=bool(np.isin(correct_N, (0, 1)).all()))
  phenomenon = metric.removeprefix('accuracy_')
  values = [(row['correct'], names.index(row['paradigm'])) for row in rows if row['phenomenon'] == phenomenon]
  return Measure(np.asarray(values, np.float64), _mean_of_paradigms) if values else None


def _mean_of_paradigms(values: np.ndarray) -> float:
  paradigm_N = values[:, 1].astype(np.int64)
  count_P = np.bincount(paradigm_N)
  return float((np.bincount(paradigm_N, values[:, 0])[count_P > 0] / count_P[count_P > 0]).mean())
