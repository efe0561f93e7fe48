"""Objectives: the loss of a model and a batch. One file is one objective, found by its name.

An objective exports
  Config: frozen dataclass;
  init(cfg, model, model_cfg, key) -> Params: its own head, {} if it has none;
  terms(cfg) -> names of the loss's terms; each is also a metric;
  weights(cfg, batch) -> {term: weight}: from the data alone, so a step can add them up over microbatches, devices
    and hosts before the backward pass;
  loss(cfg, model, model_cfg, params, batch, state, key=None) -> Output: sums of the terms, metrics and the new state;
  predict(cfg, model, model_cfg, params, batch, state) -> (predictions, state);
  report(cfg, totals, counts) -> {name: metric}: the metrics of an evaluation, 'loss' among them, from the totals of a
    split: pairs (sum, weight), and the rows of metrics that `loss` gives as arrays;
  headline(cfg) -> the name of the figure that is shown first;
  protocol(cfg, data, batches) -> words that say how it was measured beyond the batches;
  shapes(cfg, batch_size, length) -> {key: ShapeDtypeStruct}: a batch as the data side makes it;
  judge(cfg, found) -> {name: figure} (optional): figures that need what is predicted of all rows at once, from the
    arrays of `predict` with 'truth' beside them;
  labelled(cfg) -> {leaf: axes} (optional): leaves of the head that have a place for each label, to be matched by name
    where another run's labels stand in another order;
  PROGRESS (optional): True where the loss changes with the updates made; `loss` then takes `progress`, (updates made,
    updates of the run), None outside training;
  model_batch(cfg, batch) -> batch (optional): the batch with a row for each row of `Output.features`, and `valid_BT`
    where the loss depends on them; the batch itself unless exported;
  UNIT (optional): what the weight of its first term counts, 'tokens' unless named;
  SAMPLES: what a run shows of itself at its end: 'text' that it writes, 'gaps' that it fills, or 'none'.
A model may add terms of its own in training, such as the activation penalties of the AWD-LSTM: it exports
`penalties(cfg, params, features, batch) -> {name: sum}` and `penalty_weights(cfg, batch) -> {name: weight}`. The step
takes them from `Output.features`, so every objective returns the features that it reads.
The loss of a step is the sum over terms of sum_t / W_t with W_t the weight of the global batch: exact however the rows
are divided, and one mechanism for objectives with one denominator (causal LM) and with two (masked LM).
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from lmx.kernels import chunked_loss
from lmx.layers import softmax
from lmx.registry import Parts
from lmx.types import Array, Batch, Features, Model, Params, State

_parts = Parts(__name__, 'objective', apart=('rows', 'continuation', 'next_sentence'))
names, get = _parts.names, _parts.get


def mean(pair: tuple[float, float]) -> float:
  """Sum over weight, NaN where nothing was counted."""
  return pair[0] / pair[1] if pair[1] else math.nan


def begin(stateful: bool, model: Model, model_cfg: Any, batch: Batch, state: State) -> State:
  """The state that a batch starts from: the one carried, without a gradient, or a fresh one where a row begins anew or
  none is carried ('()')."""
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
  """Weighted sum of the targets' negative log-likelihoods in nats, float32; the weights have no gradient.

  Its gradient is computed in the forward pass (`chunked_loss.total`), except for an adaptive softmax, which collects a
  cluster's words from the batch as a whole.
  """
  if getattr(model_cfg, 'cutoffs', ()):
    nll_BT = model.nll(model_cfg, params, features, targets_BT)
    return jnp.sum(nll_BT * weights_BT, dtype=jnp.float32)

  def of_block(x_BMD: Array, targets_BM: Array) -> tuple[Array, tuple[()]]:
    return model.nll(model_cfg, params, features._replace(last_BTD=x_BMD), targets_BM), ()

  return chunked_loss.total(of_block, features.last_BTD, targets_BT, weights_BT)[0]


def predicted(
  model: Model, model_cfg: Any, params: Params, features: Features, batch: Batch, *, measure: bool
) -> tuple[Array, Array | None]:
  """(summed negative log-likelihood of the tokens at P places in nats; with `measure` how many are right, else None).

  Args:
    features: of these places, (B, P, D).
    batch: targets_BP, weights_BP.
    measure: form every score, as the accuracy needs.
  """
  if measure:
    logits_BPV = model.logits(model_cfg, params, features)
    nll_BP = softmax.cross_entropy(logits_BPV, batch['targets_BP'])
    right = jnp.sum(chunked_loss.is_best(logits_BPV, batch['targets_BP']) * batch['weights_BP'])
    return jnp.sum(nll_BP * batch['weights_BP'], dtype=jnp.float32), right
  return summed_nll(model, model_cfg, params, features, batch['targets_BP'], batch['weights_BP']), None
