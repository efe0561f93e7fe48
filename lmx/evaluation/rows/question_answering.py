"""Rows of question answering: the reference answers and the predicted answer of a question, exact match and F1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx.evaluation.parts import Subject
from lmx.evaluation.rows import Measure, Row, column
from lmx.metrics import squad

TRUTH = ('id', 'label')


def collect(subject: Subject, outputs: Sequence[Any]) -> tuple[list[dict[str, Any]], str]:
  """Return {'row', 'id', 'label', 'prediction', 'exact_match', 'f1'} of each question; 'label' lists the references."""
  del subject
  answers = {one.id: one for one in outputs}
  predictions = {key: one.text for key, one in answers.items()}
  truths = {key: one.truths or () for key, one in answers.items()}
  exact, f1 = (squad.score_each(predictions, truths, each) for each in (squad.exact_match, squad.f1))
  return [
    {
      'row': i,
      'id': key,
      'label': list(truths[key]),
      'prediction': predictions[key],
      'exact_match': exact[key],
      'f1': f1[key],
    }
    for i, key in enumerate(answers)
  ], 'questions'


def measure(metric: str, rows: Sequence[Row], results: Mapping[str, Any]) -> Measure | None:
  """Return exact match or F1 in percent as a function of questions."""
  del results
  if metric not in ('exact_match', 'f1'):
    return None
  return Measure(column(rows, metric), _percent, is_binary=metric == 'exact_match')


def _percent(shares: np.ndarray) -> float:
  return float(100 * np.mean(shares))
