"""Objectives: the loss of a model and a batch. Each file is one objective, found by its name.

`lmx.types.Objective` is the interface, with the defaults of what a file omits.

A model may add its own terms in training, such as the activation penalties of the AWD-LSTM. It then exports
`penalties(cfg, params, features, batch) -> {name: sum}` and `penalty_weights(cfg, batch) -> {name: weight}`. The step
computes them from `Output.features`, so every objective returns its features.
The loss of a step is the sum over terms of sum_t / W_t, where W_t is the weight of the global batch or another divisor
(`Config.reduction`). It is exact for any sharding of the rows, and covers objectives with one denominator (causal LM)
and with two (masked LM).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_choice
from lmx.layers import softmax
from lmx.metrics.metric import LOSS, Metric
from lmx.ops import softmax_loss
from lmx.registry import Registry
from lmx.types import Array, Batch, Features, Model, Objective, Params, State

_SHARED = ('rows', 'row_objective', 'continuation', 'next_sentence', 'head_input')
REDUCTIONS = ('tokens', 'rows', 'row_means', 'sum')
_registry = Registry(__name__, 'objective', Objective, excluded=_SHARED)
names, get = _registry.names, _registry.get


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
  """Options of every objective's training loss.

  Attributes:
    reduction: divisor of the loss, over the global batch: 'tokens', the weight of all predictions; 'rows', the number
      of rows with a prediction, so that the loss is summed over a row; 'row_means', the same after each row's loss is
      divided by its own weight; 'sum', 1. Papers differ, and no learning rate converts one into another where rows
      have different lengths. Reported losses are means over tokens, and a model's penalties keep their divisors.
  """

  reduction: str = 'tokens'

  reductions: ClassVar[tuple[str, ...]] = REDUCTIONS  # those that the objective has

  def __post_init__(self) -> None:
    check_choice('objective.reduction', self.reduction, REDUCTIONS)
    if self.reduction not in self.reductions:
      raise InputError(
        f'objective.reduction: got "{self.reduction}"; expected one of {", ".join(self.reductions)}, which this '
        'objective has; set objective.reduction=tokens'
      )


def default(model: Model, manifest: Any) -> tuple[Objective, Any]:
  """Return (objective of a model, its Config with the model's OBJECTIVE_FIELDS, resolved with a manifest)."""
  objective = get(model.OBJECTIVE)
  return objective, objective.resolve(objective.Config(**model.OBJECTIVE_FIELDS), manifest)


def metrics() -> dict[str, Metric]:
  """Return all objectives' metrics by name; metrics of one name agree on the direction."""
  return {metric.name: metric for name in names() for metric in (LOSS, *get(name).METRICS)}


def mean(pair: tuple[float, float]) -> float:
  """Return sum over weight, NaN where the weight is 0."""
  return pair[0] / pair[1] if pair[1] else math.nan


def begin(stateful: bool, model: Model, model_cfg: Any, batch: Batch, state: State) -> State:
  """Return a batch's initial state: the carried one, without gradient; a fresh one for rows in `reset_B`, without
  `stateful`, or if none is carried ('()')."""
  if stateful and 'reset_B' not in batch:
    return jax.lax.stop_gradient(state)
  fresh = model.init_state(model_cfg, len(jax.tree.leaves(batch)[0]))  # rows are the leading axis of every key
  if not stateful or not jax.tree.leaves(state):
    return fresh

  def pick(new: Array, old: Array) -> Array:
    reset = batch['reset_B'].reshape((-1,) + (1,) * (old.ndim - 1))
    return jnp.where(reset, new, jax.lax.stop_gradient(old))

  return jax.tree.map(pick, fresh, state)


def summed_nll(
  model: Model, model_cfg: Any, params: Params, features: Features, targets_BT: Array, weights_BT: Array
) -> Array:
  """Return the weighted sum of the targets' negative log-likelihoods in nats, float32; weights have no gradient.

  Its gradient is computed in the forward pass (`softmax_loss.weighted_sum`), except for an adaptive softmax, which
  gathers a cluster's words from the whole batch.
  """
  if getattr(model_cfg, 'cutoffs', ()):
    nll_BT = model.nll(model_cfg, params, features, targets_BT)
    return jnp.sum(nll_BT * weights_BT, dtype=jnp.float32)

  def chunk_loss(x_BMD: Array, targets_BM: Array) -> tuple[Array, tuple[()]]:
    return model.nll(model_cfg, params, features._replace(last_BTD=x_BMD), targets_BM), ()

  return softmax_loss.weighted_sum(chunk_loss, features.last_BTD, targets_BT, weights_BT)[0]


def prediction_nll(
  model: Model, model_cfg: Any, params: Params, features: Features, batch: Batch, *, measure: bool
) -> tuple[Array, Array | None]:
  """Return (summed negative log-likelihood of the tokens at P positions in nats, number correct or None).

  Args:
    features: of these positions, (B, P, D).
    batch: targets_BP, weights_BP.
    measure: compute all logits and the number correct.
  """
  if measure:
    logits_BPV = model.logits(model_cfg, params, features)
    nll_BP = softmax.cross_entropy(logits_BPV, batch['targets_BP'])
    right = jnp.sum(softmax_loss.is_best(logits_BPV, batch['targets_BP']) * batch['weights_BP'])
    return jnp.sum(nll_BP * batch['weights_BP'], dtype=jnp.float32), right
  return summed_nll(model, model_cfg, params, features, batch['targets_BP'], batch['weights_BP']), None
