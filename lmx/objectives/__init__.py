"""Objectives: the loss of a model and a batch. Each file is one objective, found by its name.

An objective exports
  Config: frozen dataclass;
  init(cfg, model, model_cfg, key) -> Params: its own head, {} if it has none;
  terms(cfg) -> names of the loss's terms; each is also a metric;
  weights(cfg, batch) -> {term: weight}: from the data alone, so a step can sum them over microbatches, devices
    and hosts before the backward pass;
  loss(cfg, model, model_cfg, params, batch, state, key=None) -> Output: sums of the terms, metrics and the new state;
  predict(cfg, model, model_cfg, params, batch, state) -> (predictions, state);
  report(cfg, totals, counts) -> {name: metric}: the metrics of an evaluation, 'loss' included, from the totals of a
    split: (sum, weight) pairs, and the rows of metrics that `loss` returns as arrays;
  headline(cfg) -> name of the headline metric;
  protocol(cfg, data, batches) -> phrases that describe the evaluation beyond the batches;
  shapes(cfg, batch_size, length) -> {key: ShapeDtypeStruct}: a batch of the data pipeline;
  summarize(cfg, outputs) -> {name: metric} (optional): metrics that need the predictions of all rows at once, from the
    arrays of `predict` and their labels 'truth';
  by_class(cfg, totals, names) -> {class: (right, predicted, true)} (optional): numbers of each class in an evaluation;
    `names` are the labels of rows;
  labelled(cfg) -> {leaf: axes} (optional): leaves of the head with an axis over labels, matched by name
    if another run has the labels in another order;
  PROGRESS (optional): True if the loss depends on the number of updates; `loss` then takes `progress`, (previous
    updates, updates of the run), None outside training;
  model_batch(cfg, batch) -> batch (optional): the batch with a row for each row of `Output.features`, and `valid_BT`
    if the loss depends on it; by default the batch itself;
  UNIT (optional): unit of the weight of its first term, by default 'tokens';
  SAMPLES: samples that a run prints at its end: 'text' (generated), 'gaps' (filled in), figures ('memory',
    'segmentations'), or 'none'.
A model may add its own terms in training, such as the activation penalties of the AWD-LSTM. It then exports
`penalties(cfg, params, features, batch) -> {name: sum}` and `penalty_weights(cfg, batch) -> {name: weight}`. The step
computes them from `Output.features`, so every objective returns its features.
The loss of a step is the sum over terms of sum_t / W_t, where W_t is the weight of the global batch. It is exact for
any sharding of the rows, and covers objectives with one denominator (causal LM) and with two (masked LM).
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from lmx.layers import softmax
from lmx.ops import softmax_loss
from lmx.registry import Registry
from lmx.types import Array, Batch, Features, Model, Objective, Params, State

_registry = Registry(__name__, 'objective', Objective, excluded=('rows', 'continuation', 'next_sentence', 'head_input'))
names, get = _registry.names, _registry.get


def default(model: Model, manifest: Any) -> tuple[Objective, Any]:
  """Return (objective of a model, its Config with the model's OBJECTIVE_FIELDS, resolved with a manifest)."""
  objective = get(model.OBJECTIVE)
  return objective, objective.resolve(objective.Config(**model.OBJECTIVE_FIELDS), manifest)


def mean(pair: tuple[float, float]) -> float:
  """Return sum over weight, NaN where the weight is 0."""
  return pair[0] / pair[1] if pair[1] else math.nan


def begin(stateful: bool, model: Model, model_cfg: Any, batch: Batch, state: State) -> State:
  """Return the state that a batch starts from: the carried one without a gradient; a fresh one for rows of `reset_B`,
  without `stateful`, and where none is carried ('()')."""
  if stateful and 'reset_B' not in batch:
    return jax.lax.stop_gradient(state)
  fresh = model.init_state(model_cfg, len(jax.tree.leaves(batch)[0]))  # every key leads with the rows
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
