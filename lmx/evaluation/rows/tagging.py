"""Rows of taggers: the labels and predicted labels of the words of a sentence, and its counts of spans."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from lmx.evaluation.parts import Subject
from lmx.evaluation.rows import Measure, Row
from lmx.metrics import spans
from lmx.objectives import tag
from lmx.prediction import batched

TRUTH = ('label',)


def collect(subject: Subject, outputs: Sequence[Any]) -> tuple[list[dict[str, Any]], str]:
  """Return {'row', 'label', 'prediction'} of each sentence, with 'spans' [right, predicted, true] if labels mark spans.

  'label' and 'prediction' are lists with a label for each word.
  """
  del outputs
  run, corpus, params, engine, split, _ = subject
  batches, names = batched.batches(run, corpus, split), run.objective.labels
  one = lambda *row: tag.count_spans(run.objective, *(x[None] for x in row)).sum(axis=1)
  count_spans = jax.jit(jax.vmap(one)) if spans.is_scheme(names) else None
  rows: list[dict[str, Any]] = [{} for _ in range(batches.examples)]
  for batch, found in batched.predict(run, batches, engine.to_one_device(params)):
    predicted_BT, words_BT = found['labels_BT'], found['words_BT']
    order_BT = np.argsort(batch['weights_BT'] <= 0, axis=1, kind='stable')  # words first, as in the predictions
    true_BT = np.take_along_axis(batch['labels_BT'], order_BT, axis=1)
    counts_B3 = None if count_spans is None else np.asarray(count_spans(predicted_BT, true_BT, words_BT))
    for b in np.flatnonzero(batch['index_B'] >= 0):
      texts = ([names[label] for label in labels_BT[b][words_BT[b]]] for labels_BT in (true_BT, predicted_BT))
      i = int(batch['index_B'][b])
      rows[i] = {'row': i, **dict(zip(('label', 'prediction'), texts, strict=True))}
      rows[i] |= {} if counts_B3 is None else {'spans': counts_B3[b].astype(int).tolist()}
  return rows, 'sentences'


def measure(metric: str, rows: Sequence[Row], results: Mapping[str, Any]) -> Measure | None:
  """Return accuracy or error of the words, or F1, precision or recall of the spans, as functions of sentences."""
  del results
  if metric in ('accuracy', 'error_percent'):
    pairs = ((row['label'], row['prediction']) for row in rows)
    counts = np.array([(sum(map(str.__eq__, true, found)), len(true)) for true, found in pairs], np.float64)
    return Measure(counts, _accuracy if metric == 'accuracy' else _error_percent)
  if metric.startswith('span_') and all('spans' in row for row in rows):
    return Measure(np.array([row['spans'] for row in rows], np.float64), functools.partial(_spans, metric))
  return None


def _accuracy(counts: np.ndarray) -> float:
  right, words = counts.sum(axis=0)
  return float(right / words)


def _error_percent(counts: np.ndarray) -> float:
  return 100 * (1 - _accuracy(counts))


def _spans(metric: str, counts: np.ndarray) -> float:
  return spans.compute_scores(*counts.sum(axis=0))[metric]
