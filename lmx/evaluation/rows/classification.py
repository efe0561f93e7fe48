"""Rows of classifiers, multiple choice and cloze questions: label, predicted label, its probability, loss and text."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx import objectives
from lmx.evaluation.parts import Subject
from lmx.evaluation.rows import Measure, Row, begin_of_texts, column
from lmx.metrics import by_class
from lmx.objectives import classify
from lmx.prediction import classification

TRUTH = ('label',)


def collect(subject: Subject, outputs: Sequence[Any]) -> tuple[list[dict[str, Any]], str]:
  """Return {'row', 'label', 'prediction', 'probability' of the prediction, 'loss' in nats, 'text'} of each row.

  The labels of choices are their indices. The text is the beginning of each text of the row.
  """
  del outputs
  run, corpus, params, engine, split, _ = subject
  objective = objectives.get(run.objective_name)
  arrays = classification.compute_outputs(run, corpus, engine.to_one_device(params), split)
  p_IC, truth_I = classification.softmax(arrays['logits_BC']), arrays['truth'].astype(np.int64)
  has_labels = bool(objective.labelled(run.objective))
  names = corpus.manifest['label_names'] if has_labels else [str(choice) for choice in range(p_IC.shape[1])]
  with np.errstate(divide='ignore'):
    loss_I = -np.log(p_IC[np.arange(len(truth_I)), truth_I])
  rows = [
    {
      'row': i,
      'label': names[label],
      'prediction': names[best],
      'probability': float(p_IC[i, best]),
      'loss': float(loss),
      'text': begin_of_texts(corpus, split, i, reverse=run.data.reverse),
    }
    for i, (label, best, loss) in enumerate(zip(truth_I, np.argmax(p_IC, axis=1), loss_I, strict=True))
  ]
  return rows, objective.UNIT


def measure(metric: str, rows: Sequence[Row], results: Mapping[str, Any]) -> Measure | None:
  """Return accuracy, the error in percent, F1, Matthews' correlation, macro F1 or the loss as functions of rows."""
  labels, predictions = (np.array([row[name] for row in rows], object) for name in ('label', 'prediction'))
  correct = (labels == predictions).astype(np.float64)
  if metric in ('accuracy', 'error_percent'):
    return Measure(correct, np.mean if metric == 'accuracy' else _error_percent, is_binary=True)
  if metric in ('f1', 'matthews') and 'positive' in results:
    is_positive, is_predicted = labels == results['positive'], predictions == results['positive']
    counts = np.stack([is_positive & is_predicted, is_predicted, is_positive], axis=1).astype(np.float64)
    return Measure(counts, functools.partial(_binary, metric))
  if metric == 'macro_f1':
    classes = results['labels']
    of_class = [np.stack([x == name for name in classes], axis=1) for x in (labels, predictions)]
    return Measure(np.stack([of_class[0] & of_class[1], of_class[1], of_class[0]], axis=2), _macro_f1)
  has_loss = metric == 'loss' and 'lm_nll' not in results  # which would add to the loss
  return Measure(column(rows, 'loss'), np.mean) if has_loss else None


def _error_percent(correct: np.ndarray) -> float:
  return float(100 * (1 - np.mean(correct)))


def _binary(metric: str, counts: np.ndarray) -> float:
  shares = np.ones(len(counts)) @ counts / len(counts)  # faster than a mean over few columns; sums of counts are exact
  return classify.binary_metrics(*shares)[metric]


def _macro_f1(counts: np.ndarray) -> float:
  return by_class.macro_f1(by_class.table({str(c): three for c, three in enumerate(counts.sum(axis=0))}))
