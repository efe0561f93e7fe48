"""Rows of translation: source, hypothesis and reference of a pair; without a beam, the sums of its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx.evaluation.parts import Subject
from lmx.evaluation.rows import Measure, Row, totals
from lmx.metrics import translation

TRUTH = ('source', 'reference')


def collect(subject: Subject, outputs: Sequence[Any]) -> tuple[list[dict[str, Any]], str]:
  """Return {'row', 'source', 'hypothesis', 'reference'} of each pair; without a beam, see `totals.collect`."""
  if not subject.run.evaluation.beam:
    return totals.collect(subject, outputs)[0], 'sentences'
  return [
    {'row': i, 'source': one.source, 'hypothesis': one.translation, 'reference': one.reference}
    for i, one in enumerate(outputs)
  ], 'sentences'


def measure(metric: str, rows: Sequence[Row], results: Mapping[str, Any]) -> Measure | None:
  """Return BLEU or chrF, by the computation that its signature names, as a function of sentences."""
  if 'totals' in rows[0]:
    return totals.measure(metric, rows, results)
  if f'{metric}_signature' not in results:
    return None
  scorer, prepare = translation.from_signature(metric, results[f'{metric}_signature'])
  hypotheses, references = ([prepare(row[name]) for row in rows] for name in ('hypothesis', 'reference'))
  counts = scorer._extract_corpus_statistics(hypotheses, [references])  # as its own `PairedTest` does
  return Measure(np.asarray(counts), lambda some: scorer._compute_score_from_stats(some.sum(axis=0).tolist()).score)


def library_test(
  metric: str, a: Sequence[Row], b: Sequence[Row], results: Mapping[str, Any], test: str
) -> tuple[str, float] | None:
  """Return the p-value of sacreBLEU's `PairedTest` with its own numbers of samples and seed."""
  kind = {'randomization': 'ar', 'bootstrap': 'bs'}.get(test)
  if kind is None or f'{metric}_signature' not in results:
    return None
  from sacrebleu.significance import PairedTest

  scorer, prepare = translation.from_signature(metric, results[f'{metric}_signature'])
  systems: Any = [(name, [prepare(row['hypothesis']) for row in rows]) for name, rows in (('a', a), ('b', b))]
  references = [[prepare(row['reference']) for row in a]]
  scores: Any = PairedTest(systems, {metric: scorer}, references, test_type=kind)()[1]
  p = next(found for name, found in scores.items() if name != 'System')[1].p_value  # of the second system
  return f"sacreBLEU's paired {'bootstrap' if kind == 'bs' else 'approximate randomization'}", float(p)
