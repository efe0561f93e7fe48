"""Auxiliary losses of the character Transformer: Al-Rfou et al. 2018 (arXiv 1808.04444), section "Auxiliary losses".

Each switch is a row of the paper's ablation table:
- every position: all positions of a window predict; otherwise only the last one;
- every layer: the layers below the last predict too. Layer l of N stops after l / (2N) of the training, so that in
  the second half only the last layer predicts;
- second target: each of these layers also predicts the character after the next, at half the weight.

The loss is the sum over layers and targets of the means over positions. Evaluation is that of causal_lm: every
position, the last layer, the next character.

The paper also prints that a layer is dropped every 62,500 updates of 4 million, for 64 layers. That would be l / N and
not end half-way; we follow the rule above, which it states first. We read "less and less" as fewer and fewer
contributing layers, because section 3 drops them one by one.

The update number (`progress`) determines which layers still predict; the others are not computed.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lmx import objectives, placement
from lmx.errors import InputError, check_range
from lmx.objectives import causal_lm
from lmx.types import Array, Batch, Model, Output, Params, State

METRICS = causal_lm.METRICS
EVALUATION, SAMPLES, ROWS = 'language_model', 'text', 'language_model'
PROGRESS = True
report, captions, shapes = causal_lm.report, causal_lm.captions, causal_lm.shapes
score, predict, protocol = causal_lm.score, causal_lm.predict, causal_lm.protocol


@dataclasses.dataclass(frozen=True)
class Config(objectives.Config):
  """Options of the objective, all for training only, in addition to those of `objectives.Config`.

  Attributes:
    every_position: predict at every position, not only at the last.
    every_layer: predict after every layer, as long as the schedule allows.
    second_target: also predict the token after the next.
    second_weight: weight of the second target.
  """

  every_position: bool = True
  every_layer: bool = True
  second_target: bool = True
  second_weight: float = 0.5  # "Multiple targets"

  stateful = False  # not a field: every window starts from a fresh state
  reductions: ClassVar[tuple[str, ...]] = ('tokens', 'rows', 'sum')

  def __post_init__(self) -> None:
    super().__post_init__()
    check_range('objective.second_weight', self.second_weight, 0)


_PLAIN = causal_lm.Config(stateful=False)


def headline(cfg: Config, metrics: Any) -> str:
  """Return 'bits_per_character', as in the paper."""
  del cfg, metrics
  return 'bits_per_character'


def _training_targets(cfg: Config, batch: Batch) -> tuple[Array, Array, Array]:
  """Return (weights of the next tokens, second targets, their weights), each (B, T)."""
  weights_BT = batch['weights_BT']
  if not cfg.every_position:  # the last position of the row with a weight
    to_come_BT = jnp.cumsum(weights_BT[:, ::-1] > 0, axis=1)[:, ::-1]
    weights_BT = weights_BT * (to_come_BT == 1)
  if 'second_BT' in batch:
    second_BT = batch['second_BT']
  else:  # taken from the same row's targets
    there_BT = batch['weights_BT'][:, 1:] > 0
    second_BT = jnp.pad(jnp.where(there_BT, batch['targets_BT'][:, 1:], -1), ((0, 0), (0, 1)), constant_values=-1)
  return weights_BT, jnp.maximum(second_BT, 0), weights_BT * (second_BT >= 0)


def weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """Return {'nll', 'layers', 'second'}: the number of predicting positions of each trained term."""
  weights_BT, _, second_weights_BT = _training_targets(cfg, batch)
  totals = {'nll': jnp.sum(weights_BT, dtype=jnp.float32)}
  totals |= {'layers': totals['nll']} if cfg.every_layer else {}
  return totals | ({'second': jnp.sum(second_weights_BT, dtype=jnp.float32)} if cfg.second_target else {})


def last_updates(layers: int, total_steps: int) -> list[int]:
  """Return the number of updates to which each layer but the last contributes: l / (2N) of all, rounded up."""
  quotient, remainder = divmod(total_steps, 2 * layers)  # so that no product exceeds 32 bits
  return [layer * quotient - (-layer * remainder // (2 * layers)) for layer in range(1, layers)]


def loss(
  cfg: Config,
  model: Model,
  model_cfg: Any,
  params: Params,
  batch: Batch,
  state: State,
  key: Array | None = None,
  *,
  progress: tuple[Array, int] | None = None,
) -> Output:
  """Return the negative log-likelihoods in nats; at evaluation (no key) those of causal_lm.

  Args:
    params: {'model': ...}, of a model with a classifier for each layer and target (`readouts`, `readout_nll`).
    batch: tokens_BT, targets_BT, weights_BT; second_BT (optional).
    state: passed through; every row starts from a fresh state.
    key: PRNG key of dropout, None at evaluation.
    progress: (previous updates, updates of the run); None: every layer contributes.

  Returns:
    Output with sums and metrics {'nll'} and in training {'layers': next tokens under the layers below the last,
    'second': second targets under all layers, times their weight}.

  Raises:
    InputError: the model has no such classifiers.
  """
  if model.readouts is None:
    raise InputError(
      'objective.name: got character_aux; expected a model that predicts after every layer; set '
      'model.name=character_transformer'
    )
  if key is None:
    return causal_lm.loss(_PLAIN, model, model_cfg, params, batch, state)
  start = model.init_state(model_cfg, batch['tokens_BT'].shape[0])
  features, _ = model.apply(model_cfg, params['model'], batch, start, key, all_layers=True)
  weights_BT, second_BT, second_weights_BT = _training_targets(cfg, batch)
  targets = {'next': (batch['targets_BT'], weights_BT), 'second': (second_BT, second_weights_BT)}
  targets = targets if cfg.second_target else {'next': targets['next']}
  *lower, highest = model.readouts(model_cfg, params['model'], features)
  last = _nll(model, model_cfg, highest, targets)
  below = _lower_layers(model, model_cfg, lower, targets, progress) if cfg.every_layer else {}
  sums = {'nll': last['next']} | ({'layers': below['next']} if cfg.every_layer else {})
  if cfg.second_target:
    sums['second'] = cfg.second_weight * (last['second'] + below.get('second', 0.0))
  term_weights = weights(cfg, batch)
  return Output(sums, {name: (value, term_weights[name]) for name, value in sums.items()}, state, features=features)


@functools.partial(placement.jit, static=2)  # so that equal layers are traced once
def _nll(model: Model, model_cfg: Any, readout: Any, targets: Any) -> dict[str, Array]:
  """Return {target: summed negative log-likelihood under the classifier of one layer}."""
  nll_BT = {target: model.readout_nll(model_cfg, readout, ids_BT, target) for target, (ids_BT, _) in targets.items()}
  return {target: jnp.sum(nll_BT[target] * targets[target][1], dtype=jnp.float32) for target in targets}


@functools.partial(placement.jit, static=2)
def _nll_before(
  model: Model, model_cfg: Any, readout: Any, targets: Any, updates: Array, stop: Array
) -> dict[str, Array]:
  """Return the same before update `stop`, else 0. The logits are recomputed in the backward pass."""
  compute = jax.checkpoint(functools.partial(_nll, model, model_cfg))
  return jax.lax.cond(
    updates < stop, compute, lambda *_: {target: jnp.zeros(()) for target in targets}, readout, targets
  )


def _lower_layers(
  model: Model, model_cfg: Any, readouts: Any, targets: Any, progress: tuple[Array, int] | None
) -> dict[str, Array]:
  """Return {target: sum over the layers below the last that still contribute}."""
  updates, stops = (
    (0, [1] * len(readouts)) if progress is None else (progress[0], last_updates(model_cfg.N, progress[1]))
  )
  total = {target: jnp.zeros(()) for target in targets}
  for readout, stop in zip(readouts, stops, strict=True):
    sums = _nll_before(model, model_cfg, readout, targets, jnp.asarray(updates, jnp.int32), jnp.int32(stop))
    total = jax.tree.map(jnp.add, total, sums)
  return total
