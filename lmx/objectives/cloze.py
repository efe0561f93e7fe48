"""Cloze questions: choose the ending with the highest probability.

For the Children's Book Test an ending is a candidate for the missing word and the rest of its sentence (Radford et al.
2019, section 3.2). There is no head: probabilities are those of the language model, not divided by an ending's length.
In training the loss is that of a softmax over the endings' log-probabilities.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lmx.metrics.metric import ACCURACY
from lmx.objectives import continuation, row_objective
from lmx.types import Array, Batch, Features, Model, Output, Params, State

METRICS = (ACCURACY,)
ROWS = 'classification'
UNIT = 'questions'  # unit of the loss's weight
model_batch = continuation.model_batch
weights, report = row_objective.weights, row_objective.means


@dataclasses.dataclass(frozen=True)
class Config(row_objective.Terms):
  """Only the options of `objectives.Config`."""


def _scores(model: Model, model_cfg: Any, params: Params, batch: Batch, key: Array | None) -> tuple[Array, Features]:
  """Return the log-probability of each ending in nats, (B, G), and the features of every sequence."""
  features, all_features, flat, G = continuation.features(model, model_cfg, params['model'], batch, key)
  return -continuation.nll(model, model_cfg, params['model'], features, flat).reshape(-1, G), all_features


def loss(
  cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State, key: Array | None = None
) -> Output:
  """Return the negative log-probability of the right endings among those of a row in nats.

  Args:
    params: {'model': ...}.
    batch: tokens_BGT, valid_BGT, positions_BGP, targets_BGP, weights_BGP, row_weights_B, and labels_B, right endings.
    state: passed through; every row starts from a fresh state.
    key: PRNG key of dropout; None at evaluation.

  Returns:
    Output with sums {'nll'} and metrics {'nll', 'accuracy'}.
  """
  scores_BG, features = _scores(model, model_cfg, params, batch, key)
  (total, right_B), count = row_objective.label_nll(scores_BG, batch), weights(cfg, batch)['nll']
  metrics = {'nll': (total, count), 'accuracy': (jnp.sum(right_B), count)}
  return Output({'nll': total}, metrics, state, features=features)


def predict(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """Return ({'logits_BC': log-probabilities of the endings, float32}, state)."""
  del cfg
  return {'logits_BC': _scores(model, model_cfg, params, batch, None)[0]}, state


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """Return the metric's protocol: the choice of an ending."""
  del cfg, batches
  return ['the end with the highest probability', *(['detokenised'] if data.detokenize else [])]


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Return the shapes of a batch of questions with ten endings each."""
  del cfg
  return continuation.shapes(batch_size, length, choices=10)
