"""The training step and the evaluation step, written once for the global batch.

Under `jit` the arrays are global and `axis` is None. Under `pmap` each device sees its rows, and `axis` names the
devices: the weights of the loss, the gradient and the metrics are then summed over it. The loss is
sum over terms of (sum over the global batch) / max(weight of the global batch, 1); since the weights come from the data
alone, they are known before the backward pass, and rows can be divided among devices and microbatches in any way.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lmx.engine.state import TrainState
from lmx.errors import InputError
from lmx.optim import averaging
from lmx.types import Array, Batch, Model, Objective, Output, Params, State

Metrics = dict[str, Any]
TrainStep = Callable[..., tuple[TrainState, State, Metrics]]
EvalStep = Callable[..., tuple[Metrics, State]]
Parts = tuple[Model, Any, Objective, Any]  # model, its Config, objective, its Config


def explained(step: Callable[..., Any]) -> Callable[..., Any]:
  """The step, a function of (_, _, batch, ...), with an InputError where it reads an array that no batch has."""

  @functools.wraps(step)
  def run(first: Any, second: Any, batch: Batch, *more: Any, **named: Any) -> Any:
    try:
      return step(first, second, batch, *more, **named)
    except KeyError as error:
      key = error.args[0] if error.args else ''
      if key in batch or not re.fullmatch(r'[a-z_]+_[A-Z]+', str(key)):
        raise
      raise InputError(
        f'the model or its objective reads "{key}", but the batches have only {", ".join(sorted(batch))}: '
        'data.batching must be one for this objective'
      ) from error

  return run


def make_train_step(
  model: Model,
  model_cfg: Any,
  objective: Objective,
  objective_cfg: Any,
  tx: optax.GradientTransformationExtraArgs,
  rate: Callable[[Array], Array],
  *,
  accumulate: int = 1,
  lengths: Sequence[int] = (),
  ema: float = 0.0,
  lag: bool = False,
  total_steps: int = 0,
) -> TrainStep:
  """Return `train_step(state, model_state, batch, key, *, axis=None) -> (state, model_state, metrics)`.

  The key is the run's base key: the step folds `state.step` into it, so that a resumed run draws what an uninterrupted
  one draws. Where the loss or the gradient is not finite, parameters, optimizer state, average and model state stay
  as they were and only `state.step` moves on.

  Args:
    model: the model's module.
    model_cfg: its Config.
    objective: the objective's module.
    objective_cfg: its Config.
    tx: the optimizer, from `optim.build.make`.
    rate: the schedule, from `optim.build.rate`, for the metrics.
    accumulate: number k of microbatches, one after the other; row r belongs to microbatch r % k.
    lengths: rows are dealt to microbatches by their length instead, and each is cut to the shortest of these lengths
      that holds its longest row; one program holds them all. For batches whose rows do not go on in the next.
    ema: decay of the average of the parameters, read where `state.ema` is an `averaging.Average`.
    lag: whether the factor of the rate is that of the batch before, see `optim.averaging`.
    total_steps: updates of the whole run, for an objective whose loss changes with them (`PROGRESS`).

  Returns:
    The step. Its metrics are the scalars 'loss', 'grad_norm' (before clipping), 'lr' and 'finite' (bool), and the
    objective's (sum, weight) pairs.
  """
  parts = (model, model_cfg, objective, objective_cfg)

  def train_step(
    state: TrainState, model_state: State, batch: Batch, key: Array, *, axis: str | None = None
  ) -> tuple[TrainState, State, Metrics]:
    key = jax.random.fold_in(key, state.step)
    if axis is not None:
      key = jax.random.fold_in(key, jax.lax.axis_index(axis))
    weights = sum_over(axis, training_weights(*parts, batch))
    rows_gradient = functools.partial(_gradient, parts, _more(objective, axis, state.step, total_steps))
    if lengths:
      batch, rows_gradient = _by_length(batch, accumulate), functools.partial(_cut, rows_gradient, lengths, axis)
    found = _accumulated(rows_gradient, accumulate, state.params, weights, batch, model_state, key)
    grads, loss, metrics = sum_over(axis, found[:3])
    grad_norm = optax.tree.norm(grads)
    finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
    metrics |= {'loss': loss, 'grad_norm': grad_norm, 'finite': finite}
    metrics['lr'] = rate(state.step) * state.lr_scale
    new, new_model_state = _where(
      finite, (_updated(state, grads, found[4], tx, ema, batch.get('rate_B'), lag), found[3]), (state, model_state)
    )
    return new.replace(step=state.step + 1), new_model_state, metrics

  return explained(train_step)


def _gradient(
  parts: Parts,
  more: Mapping[str, Any],
  params: Params,
  weights: dict,
  batch: Batch,
  model_state: State,
  key: Array,
) -> Any:
  """Return (gradient, loss, metrics, model state, statistics) of some rows."""

  def local(params: Params) -> Any:
    out = training_loss(*parts, params, batch, model_state, key, **more)
    loss = sum(out.sums[term] / jnp.maximum(weights[term], 1.0) for term in out.sums)
    return loss, (out.metrics, out.state, out.statistics)

  (loss, (metrics, model_state, statistics)), grads = jax.value_and_grad(local, has_aux=True)(params)
  return grads, loss, metrics, model_state, statistics


def _more(objective: Objective, axis: str | None, made: Array, total_steps: int) -> dict[str, Any]:
  """Return the optional arguments that an objective's `loss` declares."""
  more: dict[str, Any] = {'axis': axis} if getattr(objective, 'ACROSS_ROWS', False) else {}
  if not getattr(objective, 'PROGRESS', False):
    return more
  if total_steps < 1:
    raise ValueError(f'{objective.__name__} needs total_steps, the number of updates of the run')
  return more | {'progress': (made, total_steps)}


def make_eval_step(model: Model, model_cfg: Any, objective: Objective, objective_cfg: Any) -> EvalStep:
  """Return `eval_step(params, model_state, batch, *, axis=None) -> (metrics, model_state)`.

  `params` are those to be measured, see `optim.averaging.value`. The metrics are the objective's: (sum, weight) pairs,
  to be added up over batches and divided once, and arrays with a row for each row of the global batch.
  """

  def eval_step(params: Params, model_state: State, batch: Batch, *, axis: str | None = None) -> tuple[Metrics, State]:
    out = objective.loss(objective_cfg, model, model_cfg, params, batch, model_state)
    pairs = {name: value for name, value in out.metrics.items() if isinstance(value, tuple)}
    arrays = {name: value for name, value in out.metrics.items() if name not in pairs}
    return {**sum_over(axis, pairs), **rows_over(axis, arrays)}, out.state

  return explained(eval_step)


def training_loss(
  model: Model,
  model_cfg: Any,
  objective: Objective,
  objective_cfg: Any,
  params: Params,
  batch: Batch,
  model_state: State,
  key: Array,
  **more: Any,
) -> Output:
  """Return the Output of the objective in training, with the model's penalties among its sums and metrics.

  Raises:
    InputError: the model has penalties, but the objective gives no features to take them from.
  """
  out: Output = objective.loss(objective_cfg, model, model_cfg, params, batch, model_state, key, **more)
  read = _model_batch(objective, objective_cfg, batch)
  weights = _penalty_weights(model, model_cfg, read)
  if not weights:
    return out
  if out.features is None:
    name = objective.__name__.rpartition('.')[2]
    raise InputError(
      f'objective.name: got {name}, which takes no penalties; expected an objective that adds '
      f'{", ".join(weights)} to its loss; fix the objective, or set their factors in model to 0'
    )
  sums = model.penalties(model_cfg, params['model'], out.features, read)
  metrics = {name: (total, weights[name]) for name, total in sums.items()}
  return out._replace(sums=out.sums | sums, metrics=out.metrics | metrics)


def training_weights(
  model: Model, model_cfg: Any, objective: Objective, objective_cfg: Any, batch: Batch
) -> dict[str, Array]:
  """Return the weight that each term of `training_loss` is divided by, summed over these rows."""
  weights: dict[str, Array] = objective.weights(objective_cfg, batch)
  return weights | _penalty_weights(model, model_cfg, _model_batch(objective, objective_cfg, batch))


def _model_batch(objective: Objective, objective_cfg: Any, batch: Batch) -> Batch:
  """Return the batch with a row for each row of the objective's features."""
  return objective.model_batch(objective_cfg, batch) if hasattr(objective, 'model_batch') else batch


def _penalty_weights(model: Model, model_cfg: Any, batch: Batch) -> dict[str, Array]:
  return model.penalty_weights(model_cfg, batch) if hasattr(model, 'penalty_weights') else {}


def _accumulated(
  gradient: Any, k: int, params: Params, weights: Any, batch: Batch, model_state: State, key: Array
) -> Any:
  """`gradient` of the whole batch from k microbatches in a row, at the memory of one."""
  if k == 1:
    return gradient(params, weights, batch, model_state, key)

  def split(x: Any) -> Any:
    if x.shape[0] % k:
      raise ValueError(f'{x.shape[0]} rows cannot be divided among {k} microbatches')
    return jnp.swapaxes(x.reshape((x.shape[0] // k, k) + x.shape[1:]), 0, 1)

  def join(x: Any) -> Any:
    return jnp.swapaxes(x, 0, 1).reshape((-1,) + x.shape[2:])

  def body(total: Any, micro: Any) -> Any:
    index, rows, rows_state = micro
    grads, loss, metrics, rows_state, statistics = gradient(
      params, weights, rows, rows_state, jax.random.fold_in(key, index)
    )
    return jax.tree.map(jnp.add, total, grads), (loss, metrics, rows_state, statistics)

  micro = (jnp.arange(k), jax.tree.map(split, batch), jax.tree.map(split, model_state))
  zeros = jax.tree.map(jnp.zeros_like, params)
  grads, (loss, metrics, model_state, statistics) = jax.lax.scan(body, zeros, micro)
  total = lambda x: jnp.sum(x, axis=0)
  mean = lambda x: jnp.mean(x, axis=0)
  metrics, statistics = jax.tree.map(total, metrics), jax.tree.map(mean, statistics)
  return grads, total(loss), metrics, jax.tree.map(join, model_state), statistics


def _valid(batch: Batch) -> list[Array]:
  return [batch[key] for key in ('valid_BT', 'valid_BGT', 'source_valid_BS') if key in batch]


def _lengths(batch: Batch) -> Array:
  """Places of each row up to its last token, (B,); of the longest of its sequences where it has several."""
  ends = [jnp.where(valid, jnp.arange(1, valid.shape[-1] + 1), 0) for valid in _valid(batch)]
  return functools.reduce(jnp.maximum, [jnp.max(x, axis=tuple(range(1, x.ndim))) for x in ends])


def _by_length(batch: Batch, k: int) -> Batch:
  """The rows so ordered that microbatch j (rows j, j + k, ...) has the j-th part of them by length."""
  order_B = jnp.argsort(_lengths(batch)).reshape(k, -1).T.ravel()
  return {key: x[order_B] for key, x in batch.items()}


def parts(batch: Batch, k: int, lengths: Sequence[int], devices: int = 1) -> tuple[tuple[int, int], ...]:
  """(rows, places) of the microbatches that a step with `lengths` makes of a batch.

  Args:
    batch: on the host.
    k: number of microbatches.
    lengths: see `make_train_step`.
    devices: that deal their own rows, as under `pmap`.
  """
  longest_K = np.sort(np.asarray(_lengths(batch)).reshape(devices, -1)).reshape(devices, k, -1).max(axis=(0, 2))
  rows = len(_valid(batch)[0]) // k
  return tuple((rows, next(length for length in _steps(batch, lengths) if length >= n)) for n in longest_K)


def _steps(batch: Batch, lengths: Sequence[int]) -> tuple[int, ...]:
  """The lengths that a microbatch may be cut to, its own the last."""
  T = max(valid.shape[-1] for valid in _valid(batch))
  return (*sorted(length for length in lengths if length < T), T)


def _cut(
  gradient: Any,
  lengths: Sequence[int],
  axis: str | None,
  params: Params,
  weights: Any,
  batch: Batch,
  model_state: State,
  key: Array,
) -> Any:
  """`gradient` of the batch without the places that none of its rows needs, as far as `lengths` go."""
  # Which axis, by the letters of the name: T, or S for the source of a translation.
  places = {name: max(map(name.rpartition('_')[2].find, 'TS')) for name in batch}
  steps, longest = _steps(batch, lengths), jnp.max(_lengths(batch))
  if axis is not None:  # all devices take the same branch: there may be sums over them in it
    longest = jax.lax.pmax(longest, axis)

  def of(length: int) -> Any:
    def cut(name: str, x: Array) -> Array:
      axis = places[name]
      return x if axis < 0 else jax.lax.slice_in_dim(x, 0, min(length, x.shape[axis]), axis=axis)

    return lambda batch: gradient(params, weights, {name: cut(name, x) for name, x in batch.items()}, model_state, key)

  return jax.lax.switch(jnp.searchsorted(jnp.asarray(steps), longest), [of(length) for length in steps], batch)


def _updated(
  state: TrainState, grads: Params, statistics: Params | None, tx: Any, ema: float, rate_B: Array | None, lag: bool
) -> TrainState:
  now = jnp.ones(()) if rate_B is None else jnp.mean(rate_B)  # equal in all rows
  scale = state.lr_scale * averaging.factor(state.ema, now, lag)
  updates, opt_state = tx.update(grads, state.opt_state, state.params, step=state.step, lr_scale=scale)
  params = _replaced(optax.apply_updates(state.params, updates), statistics or {})
  average = averaging.update(state.ema, params, ema, now=now, lag=lag)
  return state.replace(params=params, opt_state=opt_state, ema=average)


def _replaced(params: Params, leaves: Params) -> Params:
  """`params` with some leaves changed, given as a nested dict of those alone."""
  inner = lambda name, x: _replaced(x, leaves[name]) if isinstance(x, Mapping) else leaves[name]
  return {name: inner(name, x) if name in leaves else x for name, x in params.items()}


def _where(condition: Array, new: Any, old: Any) -> Any:
  return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)


def sum_over(axis: str | None, tree: Any) -> Any:
  """The sum over the devices that `axis` names; the tree itself under `jit`, where it is global already."""
  return tree if axis is None else jax.lax.psum(tree, axis)


def rows_over(axis: str | None, tree: Any) -> Any:
  """The rows of all devices that `axis` names; the tree itself under `jit`, where it is global already."""
  return tree if axis is None else jax.lax.all_gather(tree, axis, tiled=True)
