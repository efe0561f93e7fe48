"""The training step and the evaluation step, written once for the global batch.

Under `jit` the arrays are global and `axis` is None. Under `pmap` each device has its own rows, and loss weights,
gradient and metrics are reduced by `psum` over `axis`. The loss is
sum over terms of (sum over the global batch) / max(divisor of the global batch, 1). The divisors depend only on the
data, so they are known before the backward pass, and rows can be divided among devices and microbatches in any way.
By default they are the terms' weights (`objective.reduction`); the reported loss always has these.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.traverse_util import flatten_dict

from lmx.engine import VOCABULARY_TABLE, table_rows
from lmx.engine.state import TrainState
from lmx.errors import InputError
from lmx.kernels import devices
from lmx.optim import averaging
from lmx.types import Array, Batch, Copies, Model, Objective, Output, Params, State

Metrics = dict[str, Any]
TrainStep = Callable[..., tuple[TrainState, State, Metrics]]
EvalStep = Callable[..., tuple[Metrics, State]]
Parts = tuple[Model, Any, Objective, Any]  # model, its Config, objective, its Config
Wrap = Callable[[Params], Params]
_POSITIONS = ('weights_BT', 'weights_BP')  # weights of predicted positions


class Reduction(NamedTuple):
  """Reduction of gradients over devices.

  Attributes:
    place: shards a tree of the parameters' shapes as the parameters. The sum of the microbatches' gradients is sharded
      so; then XLA reduces it over devices once, after the last microbatch.
    by_device: under `jit`, returns a function evaluated on each device's rows, which reduces over the axis that it is
      given; None where XLA reduces.
    dtype: type in which gradients are reduced over an axis.
  """

  place: Callable[[Params], Params] = lambda tree: tree
  by_device: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
  dtype: str = 'float32'


class Divisors(NamedTuple):
  """Divisors by term: `loss`, of the loss whose gradient is computed, and `reported`, of the metric 'loss'."""

  loss: dict[str, Array]
  reported: dict[str, Array]

  def divide(self, sums: Mapping[str, Array]) -> tuple[Any, Any]:
    """Return (loss, reported loss) from the sums of the terms."""
    total = lambda divisors: sum(sums[term] / jnp.maximum(divisors[term], 1.0) for term in sums)
    return total(self.loss), total(self.reported)


def explain_missing_arrays(step: Callable[..., Any]) -> Callable[..., Any]:
  """Wrap a step, a function of (_, _, batch, ...): raise InputError if it reads an array that no batch has."""

  @functools.wraps(step)
  def run(first: Any, second: Any, batch: Batch, *more: Any, **named: Any) -> Any:
    try:
      return step(first, second, batch, *more, **named)
    except KeyError as error:
      key = error.args[0] if error.args else ''
      if key in batch or not re.fullmatch(r'[a-z_]+_[A-Z]+', str(key)):
        raise
      raise InputError(
        f'data.batching: got batches with {", ".join(sorted(batch))}, but the model or its objective reads "{key}"; '
        'set data.batching to one for this objective'
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
  reduction: Reduction | None = None,
  read_rows: Callable[[Batch, Array], Mapping[str, Array]] | None = None,
  by_group: Callable[[Params, Array, Array], dict[str, Array]] | None = None,
) -> TrainStep:
  """Return `train_step(state, model_state, batch, key, *, axis=None) -> (state, model_state, metrics)`.

  The step folds `state.step` into the run's base key, so a resumed run has the randomness of an uninterrupted one. If
  the loss or the gradient is not finite, only `state.step` advances.

  Args:
    model: the model's module.
    model_cfg: its Config.
    objective: the objective's module.
    objective_cfg: its Config.
    tx: the optimizer, from `optim.build.make`.
    rate: the schedule, from `optim.build.rate`, for the metrics.
    accumulate: number k of sequential microbatches; row r belongs to microbatch r % k.
    lengths: rows are assigned to microbatches by length, each truncated to the shortest of these that holds its rows.
    ema: decay of the average of the parameters, used where `state.ema` is an `averaging.Average`.
    lag: use the rate factor of the previous batch, see `optim.averaging`.
    total_steps: number of updates of the run, for an objective whose loss depends on it (`PROGRESS`).
    reduction: the reduction of gradients over devices, from `Engine.reduction`.
    read_rows: function of (batch, key) to the ids of the only rows to update (lmx/engine/table_rows.py); None: all.
    by_group: metrics of each group of parameters, from `optim.build.metrics_by_group`; None: none.

  Returns:
    The step. Its metrics are 'loss', 'grad_norm' (before clipping), 'lr', 'finite', and those of group and objective.
  """
  parts, (place, by_device, dtype) = (model, model_cfg, objective, objective_cfg), reduction or Reduction()

  def reduced(
    wrap: Wrap, params: Params, updates: Array, key: Array, batch: Batch, model_state: State, *, axis: str | None
  ) -> Any:
    """Return the result of `_gradient`, summed over `axis`."""
    key = key if axis is None else jax.random.fold_in(key, jax.lax.axis_index(axis))
    batch = _weigh_rows(objective_cfg, batch)
    divisors = training_divisors(*parts, batch, axis=axis)
    row_gradient = functools.partial(_gradient, parts, wrap, _optional_arguments(objective, axis, updates, total_steps))
    if lengths:
      batch, row_gradient = _by_length(batch, accumulate), functools.partial(_truncate, row_gradient, lengths, axis)
    placed = _whole if by_device else place
    grads, *others = _accumulate(row_gradient, accumulate, axis, params, divisors, batch, model_state, key, placed)
    return sum_over(axis, grads, dtype), *sum_over(axis, tuple(others[:2])), *others[2:]

  def train_step(state: TrainState, model_state: State, batch: Batch, key: Array, *, axis: str | None = None) -> Any:
    key = jax.random.fold_in(key, state.step)
    state, wrap, write = table_rows.restrict(state, read_rows(batch, key)) if read_rows else (state, _whole, _whole)
    reduce = by_device(functools.partial(reduced, wrap)) if by_device else functools.partial(reduced, wrap, axis=axis)
    grads, loss, metrics, new_model_state, statistics = reduce(state.params, state.step, key, batch, model_state)
    finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm := optax.tree.norm(grads))
    metrics |= {'loss': loss, 'grad_norm': grad_norm, 'finite': finite, 'lr': rate(state.step) * state.lr_scale}
    metrics |= by_group(grads, state.step, metrics['lr']) if by_group else {}
    update = lambda state: _update(state, grads, statistics, tx, ema, batch.get('rate_B'), lag, place)
    new, new_model_state = _if(finite, update, state), _where(finite, new_model_state, model_state)
    return write(new.replace(step=state.step + 1)), new_model_state, metrics

  return explain_missing_arrays(train_step)


def _whole(tree: Any) -> Any:
  """Return a tree, without a restriction to rows."""
  return tree


def _gradient(
  parts: Parts,
  wrap: Wrap,
  more: Mapping[str, Any],
  params: Params,
  divisors: Divisors,
  batch: Batch,
  model_state: State,
  key: Array,
) -> Any:
  """Return (gradient, reported loss, metrics, model state, statistics) of some rows."""

  def local(params: Params) -> Any:
    out = training_loss(*parts, wrap(_copy_tied(parts[0], params)), batch, model_state, key, **more)
    loss, reported = divisors.divide(out.sums)
    return loss, (reported, out.metrics, out.state, out.statistics)

  (_, (loss, metrics, model_state, statistics)), grads = jax.value_and_grad(local, has_aux=True)(params)
  return grads, loss, metrics, model_state, statistics


def _copy_tied(model: Model, params: Params) -> Params:
  """Return the parameters with `Copies` of the tables that the model names in `TIED`.

  Under tensor each copy is sharded by token. Then there are none if the model also ties tables that are not sharded,
  as for an adaptive softmax.
  """
  names = [name for name in model.TIED if name in flatten_dict(params['model'], sep='/')]
  axes = 'VD' if all(re.search(VOCABULARY_TABLE, name) for name in names) else ''
  for name in names:
    part, leaf = name.split('/')
    table_SVD = devices.copies(params['model'][part][leaf], axes)
    if table_SVD is not None:
      params = _replace(params, {'model': {part: {leaf: Copies(table_SVD)}}})
  return params


def _optional_arguments(objective: Objective, axis: str | None, updates: Array, total_steps: int) -> dict[str, Any]:
  """Return the optional arguments that an objective's `loss` declares."""
  more: dict[str, Any] = {'axis': axis} if objective.ACROSS_ROWS else {}
  if not objective.PROGRESS:
    return more
  if total_steps < 1:
    raise ValueError(f'{objective.__name__} needs total_steps, the number of updates of the run')
  return more | {'progress': (updates, total_steps)}


def make_eval_step(model: Model, model_cfg: Any, objective: Objective, objective_cfg: Any) -> EvalStep:
  """Return `eval_step(params, model_state, batch, *, axis=None) -> (metrics, model_state)`.

  `params` are those to evaluate, see `optim.averaging.value`. The metrics are the objective's: (sum, weight) pairs,
  to be summed over batches and divided once, and arrays with a row for each row of the global batch.
  """

  def eval_step(params: Params, model_state: State, batch: Batch, *, axis: str | None = None) -> tuple[Metrics, State]:
    out = objective.loss(objective_cfg, model, model_cfg, params, batch, model_state)
    pairs = {name: value for name, value in out.metrics.items() if isinstance(value, tuple)}
    arrays = {name: value for name, value in out.metrics.items() if name not in pairs}
    return {**sum_over(axis, pairs), **rows_over(axis, arrays)}, out.state

  return explain_missing_arrays(eval_step)


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
    InputError: the model has penalties, but the objective returns no features for them.
  """
  loss = jax.named_scope(objective.name)(objective.loss)
  out: Output = loss(objective_cfg, model, model_cfg, params, batch, model_state, key, **more)
  model_batch = objective.model_batch(objective_cfg, batch)
  weights = model.penalty_weights(model_cfg, model_batch)
  if not weights:
    return out
  if out.features is None:
    raise InputError(
      f'objective.name: got {objective.name}, which ignores penalties; expected an objective that adds '
      f'{", ".join(weights)} to its loss; fix the objective, or set their weights in model to 0'
    )
  sums = model.penalties(model_cfg, params['model'], out.features, model_batch)
  metrics = {name: (total, weights[name]) for name, total in sums.items()}
  return out._replace(sums=out.sums | sums, metrics=out.metrics | metrics)


def training_weights(
  model: Model, model_cfg: Any, objective: Objective, objective_cfg: Any, batch: Batch
) -> dict[str, Array]:
  """Return the weight of each term of `training_loss`, summed over these rows."""
  weights: dict[str, Array] = objective.weights(objective_cfg, batch)
  return weights | model.penalty_weights(model_cfg, objective.model_batch(objective_cfg, batch))


def training_divisors(
  model: Model, model_cfg: Any, objective: Objective, objective_cfg: Any, batch: Batch, *, axis: str | None = None
) -> Divisors:
  """Return the divisors of each term of `training_loss` by `objective.reduction`, over the global batch.

  A penalty of the model is always divided by its own weight.
  """
  reported: dict[str, Array] = sum_over(axis, training_weights(model, model_cfg, objective, objective_cfg, batch))
  if objective_cfg.reduction == 'rows':
    return Divisors(reported | sum_over(axis, _count_rows(objective, objective_cfg, batch)), reported)
  if objective_cfg.reduction == 'sum':
    ones = dict.fromkeys(objective.weights(objective_cfg, batch), jnp.ones(()))
    return Divisors(reported | ones, reported)
  return Divisors(reported, reported)


def _count_rows(objective: Objective, objective_cfg: Any, batch: Batch) -> dict[str, Array]:
  """Return the number of rows in which a term has a weight."""
  rows = {name: x for name, x in batch.items() if name.rpartition('_')[2].startswith('B')}  # not those of packed rows
  one = lambda row: objective.weights(objective_cfg, {name: x[None] for name, x in row.items()})
  return {term: jnp.sum(weights_B > 0, dtype=jnp.float32) for term, weights_B in jax.vmap(one)(rows).items()}


def _weigh_rows(objective_cfg: Any, batch: Batch) -> Batch:
  """Return the batch to train on: with 'row_means' the weights of each row's predictions have the sum 1."""
  if objective_cfg.reduction != 'row_means':
    return batch

  def share(weights_BT: Array) -> Array:
    total_B1 = jnp.sum(weights_BT, axis=1, keepdims=True)
    return weights_BT / jnp.where(total_B1 > 0, total_B1, 1.0)

  return {**batch, **{name: share(batch[name]) for name in _POSITIONS if name in batch}}


def _accumulate(
  gradient: Any,
  k: int,
  axis: str | None,
  params: Params,
  divisors: Any,
  batch: Batch,
  model_state: State,
  key: Array,
  place: Callable[[Params], Params] = lambda tree: tree,
) -> Any:
  """Compute `gradient` of the whole batch from k sequential microbatches, with the memory of one.

  Statistics are averaged by the number of rows that are not padding, because a microbatch may have none.
  """
  if k == 1:
    return gradient(params, divisors, batch, model_state, key)

  def split(x: Any) -> Any:
    if x.shape[0] % k:
      raise ValueError(f'{x.shape[0]} rows cannot be divided among {k} microbatches')
    return jnp.swapaxes(x.reshape((x.shape[0] // k, k) + x.shape[1:]), 0, 1)

  def join(x: Any) -> Any:
    return jnp.swapaxes(x, 0, 1).reshape((-1,) + x.shape[2:])

  def body(total: Any, micro: Any) -> Any:
    index, rows, rows_state = micro
    grads, loss, metrics, rows_state, statistics = gradient(
      params, divisors, rows, rows_state, jax.random.fold_in(key, index)
    )
    return place(jax.tree.map(jnp.add, total, grads)), (loss, metrics, rows_state, statistics)

  micro = (jnp.arange(k), jax.tree.map(split, batch), jax.tree.map(split, model_state))
  zeros = place(jax.tree.map(jnp.zeros_like, params))
  grads, (loss, metrics, model_state, statistics) = jax.lax.scan(body, zeros, micro)
  total = lambda x: jnp.sum(x, axis=0)
  rows_K = sum_over(axis, _rows(micro[1]))
  mean = lambda x: total(jax.vmap(jnp.multiply)(rows_K, x)) / jnp.maximum(total(rows_K), 1.0)
  metrics, statistics = jax.tree.map(total, metrics), jax.tree.map(mean, statistics)
  return place(grads), total(loss), metrics, jax.tree.map(join, model_state), statistics


def _rows(micro: Batch) -> Array:
  """Return the number of rows that are not padding in each of stacked microbatches, (K,) float32."""
  if 'index_B' in micro:
    return jnp.sum(micro['index_B'] >= 0, axis=1, dtype=jnp.float32)
  shape = next(iter(micro.values())).shape[:2]
  return jnp.full(shape[0], shape[1], jnp.float32)


def _valid(batch: Batch) -> list[Array]:
  return [batch[key] for key in ('valid_BT', 'valid_BGT', 'valid_BS', 'source_valid_BS') if key in batch]


def _lengths(batch: Batch, arrays: Any = jnp) -> Array:
  """Return the length of each row up to its last token, (B,); the maximum over its sequences if it has several.

  `arrays` is the module that computes, NumPy on the host.
  """
  ends = [arrays.where(valid, arrays.arange(1, valid.shape[-1] + 1), 0) for valid in _valid(batch)]
  longest: Array = functools.reduce(arrays.maximum, [arrays.max(x, axis=tuple(range(1, x.ndim))) for x in ends])
  return longest


def _by_length(batch: Batch, k: int) -> Batch:
  """Order the rows so that microbatch j (rows j, j + k, ...) has the j-th part of them by length."""
  order_B = jnp.argsort(_lengths(batch)).reshape(k, -1).T.ravel()
  return {key: x[order_B] for key, x in batch.items()}


def microbatch_shapes(batch: Batch, k: int, lengths: Sequence[int], devices: int = 1) -> tuple[tuple[int, int], ...]:
  """Return (rows, positions) of the microbatches of a step with `lengths`.

  Args:
    batch: on the host.
    k: number of microbatches.
    lengths: see `make_train_step`.
    devices: number of devices that assign their own rows, as under `pmap`.
  """
  longest_K = np.sort(np.asarray(_lengths(batch, np)).reshape(devices, -1)).reshape(devices, k, -1).max(axis=(0, 2))
  rows = len(_valid(batch)[0]) // k
  return tuple((rows, next(length for length in _truncation_lengths(batch, lengths) if length >= n)) for n in longest_K)


def _truncation_lengths(batch: Batch, lengths: Sequence[int]) -> tuple[int, ...]:
  """Return the lengths to which a microbatch may be truncated, its own last."""
  T = max(valid.shape[-1] for valid in _valid(batch))
  return (*sorted(length for length in lengths if length < T), T)


def _truncate(
  gradient: Any,
  lengths: Sequence[int],
  axis: str | None,
  params: Params,
  divisors: Any,
  batch: Batch,
  model_state: State,
  key: Array,
) -> Any:
  """Compute `gradient` of the batch without positions that are padding in all rows, as far as `lengths` allow."""
  # The axis to truncate, by the key's letters: T, or S for a second text or a translation source.
  axes = {name: max(map(name.rpartition('_')[2].find, 'TS')) for name in batch}
  steps, longest = _truncation_lengths(batch, lengths), jnp.max(_lengths(batch))
  if axis is not None:  # all devices must take the same branch, because it may contain collectives
    longest = jax.lax.pmax(longest, axis)

  def branch(length: int) -> Any:
    def truncate(name: str, x: Array) -> Array:
      axis = axes[name]
      return x if axis < 0 else jax.lax.slice_in_dim(x, 0, min(length, x.shape[axis]), axis=axis)

    return lambda batch: gradient(
      params, divisors, {name: truncate(name, x) for name, x in batch.items()}, model_state, key
    )

  return jax.lax.switch(jnp.searchsorted(jnp.asarray(steps), longest), [branch(length) for length in steps], batch)


@jax.named_scope('optimizer')
def _update(
  state: TrainState,
  grads: Params,
  statistics: Params | None,
  tx: Any,
  ema: float,
  rate_B: Array | None,
  lag: bool,
  place: Callable[[Params], Params],
) -> TrainState:
  now = jnp.ones(()) if rate_B is None else jnp.mean(rate_B)  # equal in all rows
  scale = state.lr_scale * averaging.factor(state.ema, now, lag)
  updates, opt_state = tx.update(grads, state.opt_state, state.params, step=state.step, lr_scale=scale)
  params = _replace(optax.apply_updates(state.params, updates), statistics or {})
  # The average may be sharded over more devices. Without a constraint XLA would shard the gradients like it.
  average = None if state.ema is None else averaging.update(state.ema, place(params), ema, now=now, lag=lag)
  return state.replace(params=params, opt_state=opt_state, ema=average)


def _replace(params: Params, leaves: Params) -> Params:
  """Return `params` with some leaves replaced, given as a nested dict of only those."""
  inner = lambda name, x: _replace(x, leaves[name]) if isinstance(x, Mapping) else leaves[name]
  return {name: inner(name, x) if name in leaves else x for name, x in params.items()}


def _if(condition: Array, update: Callable[[TrainState], TrainState], state: TrainState) -> TrainState:
  """Return the updated state if the condition holds, else the state."""
  if devices.is_one_device('cpu'):  # there a select, which is not in place, takes 1.5 times as long
    return jax.lax.cond(condition, update, lambda state: state, state)
  return _where(condition, update(state), state)


def _where(condition: Array, new: Any, old: Any) -> Any:
  return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)


def sum_over(axis: str | None, tree: Any, dtype: str | None = None) -> Any:
  """Return the `psum` over `axis`, computed in `dtype` or each array's own; under `jit` the tree, which is global."""
  if axis is None:
    return tree
  total = lambda x: jax.lax.psum(x.astype(dtype or x.dtype), axis).astype(x.dtype)
  return jax.tree.map(total, tree) if dtype else jax.lax.psum(tree, axis)


def rows_over(axis: str | None, tree: Any) -> Any:
  """Return the rows of all devices of `axis`; under `jit` the tree itself, which is global already."""
  return tree if axis is None else jax.lax.all_gather(tree, axis, tiled=True)
