"""Rows of left-to-right language models: loss and number of predicted tokens of a document, line or window.

Rows are the documents of the split. If it has one document, they are its lines, which end with the end-of-text token;
without lines, windows of `data.length` consecutive tokens.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx.data.splits import Split
from lmx.evaluation import evaluate
from lmx.evaluation.parts import Subject
from lmx.evaluation.rows import Measure, Row, column


def collect(subject: Subject, outputs: Sequence[Any]) -> tuple[list[dict[str, Any]], str]:
  """Return {'row', 'loss': summed negative log-likelihood in nats, 'tokens': predicted tokens} of each row."""
  del outputs
  run, corpus, params, engine, split, _ = subject
  nll = evaluate.token_nll(run, corpus, engine.to_one_device(params), split)
  bounds, unit = _bounds(corpus.split(split), corpus.tokenizer.eos_id, run.data.length)
  sums = (np.diff(np.concatenate([[0], np.cumsum(x)])[bounds]) for x in (np.nan_to_num(nll), ~np.isnan(nll)))
  return [
    {'row': i, 'loss': float(loss), 'tokens': int(count)} for i, (loss, count) in enumerate(zip(*sums, strict=True))
  ], unit


def _bounds(split: Split, eos_id: int | None, length: int) -> tuple[np.ndarray, str]:
  """Return (start of each row and end of the last, unit of the rows)."""
  size = len(split.tokens)
  if len(split.offsets) > 2:
    return np.asarray(split.offsets), 'documents'
  ends = np.flatnonzero(np.asarray(split.tokens) == eos_id) + 1 if eos_id is not None else np.zeros(0, np.int64)
  if len(ends) > 1:
    return np.unique([0, *ends, size]), 'lines'
  return np.unique([*range(0, size, length), size]), 'windows'


def measure(metric: str, rows: Sequence[Row], results: Mapping[str, Any]) -> Measure | None:
  """Return the loss, perplexities or bits as functions of rows.

  Words, characters and bytes of a row are in proportion to its tokens, as in the whole split.
  """
  values = column(rows, 'loss', 'tokens')
  if metric == 'loss':
    return Measure(values, _loss)
  kind = metric.partition('_')[0]
  if kind not in ('perplexity', 'bits') or not math.isfinite(results[metric]) or not results['loss']:
    return None
  scale = (math.log(results[metric]) if kind == 'perplexity' else results[metric]) / results['loss']
  return Measure(values, functools.partial(_perplexity if kind == 'perplexity' else _bits, scale))


def _loss(values: np.ndarray) -> float:
  nll, tokens = values.sum(axis=0)
  return float(nll / tokens) if tokens else math.nan


def _perplexity(scale: float, values: np.ndarray) -> float:
  exponent = scale * _loss(values)
  return math.exp(exponent) if not exponent > 709 else math.inf


def _bits(scale: float, values: np.ndarray) -> float:
  return scale * _loss(values)
