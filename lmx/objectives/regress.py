"""Regression of a score of rows, one text or two, with any model; see lmx/objectives/rows.py for the encoding.

One linear output and the mean squared error, as for STS-B in the fine-tuning of BERT (Devlin et al. 2019, section 4.1).
Both correlations are over the whole split, computed on the host (lmx/metrics/correlation.py).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lmx.errors import InputError, check_choice
from lmx.metrics import correlation
from lmx.metrics.metric import Metric
from lmx.objectives import mean, row_objective, rows
from lmx.types import Array, Batch, Model, Output, Params, State, Totals

METRICS = (
  *correlation.METRICS,
  Metric('rmse', False, shown=False),
  Metric('deviation_ratio', None, shown=False),
  Metric('lm_nll', False, shown=False),
)
HEADLINES = ('pearson', 'spearman', 'rmse')
EVALUATION, PREDICTION, ROWS = 'regression', 'classification', 'regression'
UNIT = 'rows'  # unit of the loss's weight
ACROSS_ROWS = True  # batch normalisation: `loss` takes `axis`
model_batch, init = rows.model_batch, rows.init
terms, weights, protocol = row_objective.terms, row_objective.weights, row_objective.protocol


@dataclasses.dataclass(frozen=True)
class Config(rows.Config):
  """Options of the objective, in addition to those of `rows.Config`.

  Attributes:
    metric: headline metric, one of HEADLINES.
  """

  metric: str = 'pearson'

  term = 'squared_error'
  is_scored = True

  def __post_init__(self) -> None:
    super().__post_init__()
    check_choice('objective.metric', self.metric, HEADLINES)


def resolve(cfg: Config, manifest: Any) -> Config:
  """Return the config unchanged; raise InputError if the data set has no scores."""
  if not manifest.get('scores'):
    raise InputError(
      f'data set {manifest["dataset"]["name"]} has no scores; objective "regress" needs a set such as '
      'glue/stsb, or table_files with data.scores=true'
    )
  return cfg


def loss(
  cfg: Config,
  model: Model,
  model_cfg: Any,
  params: Params,
  batch: Batch,
  state: State,
  key: Array | None = None,
  *,
  axis: str | None = None,
) -> Output:
  """Return the squared error of the scores.

  Args:
    params: {'model': ..., 'objective': the head}.
    batch: that of `rows.read`, and scores_B.
    state: passed through; every row starts from a fresh state.
    key: PRNG key of dropout; None at evaluation.
    axis: see `lmx.layers.normalization.batch_norm`.

  Returns:
    Output with sums {'squared_error'} and, with `lm_weight`, 'lm'; metrics of the same and, at evaluation, 'pairs_B3':
    prediction, score and weight of every row.
  """
  outputs = rows.read(cfg, model, model_cfg, params, batch, key, axis)
  x_B, y_B, weights_B = outputs.scores_BGC[:, 0, 0], batch['scores_B'], batch['row_weights_B']
  y_B = jnp.where(weights_B > 0, y_B, 0)
  total = jnp.sum(jnp.square(x_B - y_B) * weights_B)
  pairs = {'pairs_B3': jnp.stack([x_B, y_B, weights_B], axis=1)} if key is None else {}
  return row_objective.output(cfg, outputs, batch, state, total, pairs)


def predict(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """Return ({'scores_B': float32}, state)."""
  return {'scores_B': rows.read(cfg, model, model_cfg, params, batch, None).scores_BGC[:, 0, 0]}, state


def headline(cfg: Config, metrics: Any) -> str:
  """Return the headline metric."""
  del metrics
  return cfg.metric


def report(cfg: Config, totals: Totals, counts: Any) -> dict[str, float]:
  """Return {'loss', 'rmse', 'pearson', 'spearman'} (see `correlations`) and 'deviation_ratio'.

  The last is the standard deviation of the predictions divided by the deviation of the scores, unless these are equal.
  With an auxiliary loss there is also 'lm_nll'.
  """
  del counts
  pairs_R3 = totals['pairs_B3']
  predictions_R, scores_R, _ = pairs_R3[pairs_R3[:, 2] > 0].T
  means = row_objective.means(cfg, totals)
  metrics = {'loss': means.pop('loss'), 'rmse': math.sqrt(mean(totals['squared_error']))}
  if not correlation.is_constant(scores_R):
    metrics['deviation_ratio'] = float(np.std(predictions_R, dtype=np.float64) / np.std(scores_R, dtype=np.float64))
  return metrics | correlation.correlations(predictions_R, scores_R) | means


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Return the shapes of a batch of rows."""
  del cfg
  return rows.shapes(batch_size, length) | {'scores_B': jax.ShapeDtypeStruct((batch_size,), jnp.float32)}
