"""Rows of an objective whose metrics follow from the sums of its evaluation step: the sums of each row.

A row is a row of a batch: a pair of texts, an episode, an image, or a segment of a stream of text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from lmx import cast, objectives
from lmx.engine import precision, step
from lmx.evaluation import evaluate
from lmx.evaluation.parts import Subject
from lmx.evaluation.rows import Measure, Row
from lmx.models import registry
from lmx.types import Batch, Params, State


def collect(subject: Subject, outputs: Sequence[Any]) -> tuple[list[dict[str, Any]], str]:
  """Return {'row', 'totals': {name: [sum, weight], or the row's part of an array}} of each row of the batches."""
  del outputs
  run, corpus, params, engine, split, _ = subject
  model, objective = registry.get(run.model_name), objectives.get(run.objective_name)
  evaluate_batch = step.make_eval_step(model, run.measured, objective, run.objective)

  def evaluate_row(params: Params, state: State, row: Batch) -> Any:
    alone = jax.tree.map(lambda x: x[None], (state, row))
    metrics, state = evaluate_batch(params, *alone)
    sums = {name: value if isinstance(value, tuple) else value[0] for name, value in metrics.items()}
    return sums, jax.tree.map(lambda x: x[0], state)

  evaluate_rows = jax.jit(precision.wrap(run.matmul_precision, jax.vmap(evaluate_row, in_axes=(None, 0, 0))))
  batches = evaluate.final_batches(run, corpus, split)
  params, state = engine.to_one_device(params), model.init_state(run.measured, batches.batch_size)
  rows: dict[int, dict[str, Any]] = {}
  for i in range(batches.steps):
    batch = batches(i)
    found, state = evaluate_rows(params, state, batch)
    lists = {
      name: (np.stack(x, axis=1) if isinstance(x, tuple) else np.asarray(x)).tolist() for name, x in found.items()
    }
    for b in np.flatnonzero(batch['index_B'] >= 0):
      row = int(batch['index_B'][b])
      rows[row] = {'row': row, 'totals': {name: of_row[b] for name, of_row in lists.items()}}
  return [rows[row] for row in sorted(rows)], 'rows'


def measure(metric: str, rows: Sequence[Row], results: Mapping[str, Any]) -> Measure | None:
  """Return a metric that the objective reports from its sums, as a function of rows."""
  about = results['rows']
  objective = objectives.get(about['objective'])
  cfg = objective.Config(**cast.convert('objective', objective.Config, about['options']))
  shapes = {name: np.shape(x) for name, x in rows[0]['totals'].items()}
  ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes.values()])[:-1]
  # As `evaluate.measure` returns them: an array of all rows where the step returns one, else (sum, weight).
  is_array = {name: '_B' in name for name in shapes}

  def report(values: np.ndarray) -> Mapping[str, float]:
    totals: dict[str, Any] = {}
    for (name, shape), part in zip(shapes.items(), np.split(values, ends, axis=1), strict=True):
      totals[name] = part.reshape(-1, *shape) if is_array[name] else tuple(part.sum(axis=0).tolist())
    return objective.report(cfg, totals, {})

  values = np.array([np.concatenate([np.ravel(row['totals'][name]) for name in shapes]) for row in rows], np.float64)
  return Measure(values, lambda some: report(some)[metric]) if metric in report(values) else None
