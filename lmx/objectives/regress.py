"""A score of rows, one text or two, on top of any model: see lmx/objectives/rows.py for how it is read.

One linear output and the mean squared error, as for STS-B in the fine-tuning of BERT (Devlin et al. 2019, section 4.1).
Both correlations are of the predictions of the whole split, collected on the host (lmx/metrics/correlation.py).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_choice
from lmx.metrics import correlation
from lmx.objectives import mean, rows
from lmx.types import Array, Batch, Model, Output, Params, State, Totals

SAMPLES = 'none'
UNIT = 'rows'  # what the weight of the loss counts
ACROSS_ROWS = True  # batch normalisation: `loss` takes `axis`
model_batch = rows.model_batch
METRICS = ('pearson', 'spearman', 'rmse')


@dataclasses.dataclass(frozen=True)
class Config(rows.Config):
  """Options of the objective, beside those of `rows.Config`.

  Attributes:
    metric: the metric shown first: one of METRICS.
  """

  metric: str = 'pearson'

  def __post_init__(self) -> None:
    super().__post_init__()
    check_choice('objective.metric', self.metric, METRICS)


def settle(cfg: Config, manifest: Any) -> Config:
  """The config as it is; InputError if the data set has no scores."""
  if not manifest.get('scores'):
    raise InputError(
      f'data set {manifest["dataset"]["name"]} has no scores; objective "regress" needs a set such as '
      'glue/stsb, or table_files with data.scores=true'
    )
  return cfg


def init(cfg: Config, model: Model, model_cfg: Any, key: Array) -> Params:
  """The head, see `rows.init`."""
  return rows.init(cfg, 1, model, model_cfg, key)


def terms(cfg: Config) -> tuple[str, ...]:
  """('squared_error',), and 'lm' where the auxiliary loss has a weight."""
  return rows.terms(cfg, 'squared_error')


def weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """{'squared_error': number of rows}, and 'lm' that of sequences."""
  return rows.weights(cfg, 'squared_error', batch)


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
  """Squared error of the scores.

  Args:
    params: {'model': ..., 'objective': the head}.
    batch: as `rows.read` has it, and scores_B.
    state: passed through; every row begins anew.
    key: randomness of dropout; None at evaluation.
    axis: see `lmx.layers.normalization.batch_norm`.

  Returns:
    Output with sums {'squared_error'} and, with `lm_weight`, 'lm'; metrics of the same and, at evaluation, 'pairs_B3':
    prediction, score and weight of every row.
  """
  found = rows.read(cfg, model, model_cfg, params, batch, key, axis)
  x_B, y_B, weights_B = found.scores_BGC[:, 0, 0], batch['scores_B'], batch['row_weights_B']
  y_B = jnp.where(weights_B > 0, y_B, 0)
  total, count = jnp.sum(jnp.square(x_B - y_B) * weights_B), weights(cfg, batch)['squared_error']
  extra, measured = rows.auxiliary(cfg, found, batch)
  metrics: dict[str, Any] = {'squared_error': (total, count), **measured}
  if key is None:
    metrics['pairs_B3'] = jnp.stack([x_B, y_B, weights_B], axis=1)
  return Output({'squared_error': total, **extra}, metrics, state, found.statistics, found.features)


def predict(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """({'scores_B': float32}, state)."""
  return {'scores_B': rows.read(cfg, model, model_cfg, params, batch, None).scores_BGC[:, 0, 0]}, state


def headline(cfg: Config) -> str:
  """The metric shown first."""
  return cfg.metric


def report(cfg: Config, totals: Totals, counts: Any) -> dict[str, float]:
  """{'loss', 'rmse', 'pearson', 'spearman'}, and with an auxiliary loss 'lm_nll'; see `correlation.correlations`."""
  del counts
  pairs_R3 = totals['pairs_B3']
  predictions_R, scores_R, _ = pairs_R3[pairs_R3[:, 2] > 0].T
  means = {name: mean(totals[name]) for name in (*terms(cfg), 'lm_nll') if name in totals}
  squared = means.pop('squared_error')
  found = {'loss': squared + means.pop('lm', 0.0), 'rmse': math.sqrt(squared)}
  return found | correlation.correlations(predictions_R, scores_R) | means


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """Words on how rows were read, and how many."""
  del batches
  return rows.protocol(cfg, data)


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """A batch of rows."""
  del cfg
  return rows.shapes(batch_size, length) | {'scores_B': jax.ShapeDtypeStruct((batch_size,), jnp.float32)}
