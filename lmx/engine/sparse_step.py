"""Training step of models that read their tables by row: its cost does not grow with the tables.

It is used if a model exports `rows` and the optimizer is plain SGD. A batch is then J sequential updates: arrays whose
axes begin with BJ are split along J. An update gathers its rows, differentiates the loss with respect to them
(the sum over the update, not the mean: word2vec's rate is per pair), and adds -rate times the gradient to the
rows; repeated rows accumulate. The rest of a table is untouched: no dense gradient, no copy, no average.

On a CPU the two halves of an update's rows are differentiated separately, then added in order: an operation is too
small to split over cores, but XLA runs two independent ones concurrently. A model may export `fused_updates` that
computes all updates of a batch in one operation instead.

The tables are carried through a loop and updated in place, so an update with a non-finite loss cannot be undone
afterwards: it and the later ones of the step are skipped, the earlier ones remain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax.traverse_util import flatten_dict, unflatten_dict

from lmx.engine.state import TrainState
from lmx.engine.step import explain_missing_arrays, sum_over, training_loss
from lmx.errors import InputError
from lmx.kernels import devices
from lmx.optim import build
from lmx.types import Array, Batch, Model, Objective, Params, Rows, State

_DENSE = ('momentum', 'nesterov', 'weight_decay', 'clip_norm', 'groups', 'layer_decay', 'ema', 'asgd', 'accumulate')


def is_sparse(cfg: build.Config) -> bool:
  """Return True if a model that exports `rows` is trained by the sparse step.

  Raises:
    InputError: the optimizer selects it, but another option needs whole tables.
  """
  if cfg.optimizer != 'sgd':
    return False
  dense = build.Config()
  for field in _DENSE:
    if getattr(cfg, field) != getattr(dense, field):
      raise InputError(
        f'optim.{field}: got {getattr(cfg, field)}; expected {getattr(dense, field)}, because plain SGD changes only '
        'the rows that a batch reads; other optimizers update whole tables'
      )
  return True


class _Parts(NamedTuple):
  """Parts of a step."""

  model: Model
  model_cfg: Any
  objective: Objective
  objective_cfg: Any
  replicate: Callable[[Array], Array]
  rows: Callable[[Any, Batch], Mapping[str, Any]]


def make(
  model: Model,
  model_cfg: Any,
  objective: Objective,
  objective_cfg: Any,
  rate: Callable[[Array], Array],
  *,
  replicate: Callable[[Array], Array] = lambda x: x,
) -> Callable[..., tuple[TrainState, State, dict[str, Any]]]:
  """Return a train step with the signature of `lmx.engine.step.make_train_step`.

  Args:
    model: a module that exports `rows(cfg, batch) -> {name: ids}`, names below params['model'] joined with '/', and ids
      one array or a tuple of several.
    model_cfg: its Config.
    objective: the objective's module.
    objective_cfg: its Config.
    rate: the schedule, from `optim.build.rate`.
    replicate: under jit over a mesh, replicates an array on every device; so rows are communicated, never a
      table.

  Returns:
    The step. Its metrics are those of the dense step; 'loss' is the mean as the objective reports it, 'grad_norm' that
    of the rows of the first update.
  """
  assert model.rows is not None  # see `is_sparse`
  parts = _Parts(model, model_cfg, objective, objective_cfg, replicate, model.rows)

  def train_step(state: TrainState, model_state: State, batch: Batch, key: Array, *, axis: str | None = None) -> Any:
    key = jax.random.fold_in(key, state.step)
    if axis is not None:
      key = jax.random.fold_in(key, jax.lax.axis_index(axis))
    lr = rate(state.step) * state.lr_scale
    fused = model.fused_updates(model_cfg, batch) if axis is None else None
    if fused is not None:
      return _fused_step(parts, fused, state, batch, lr, model_state)
    stacked = {k: jnp.swapaxes(v, 0, 1) for k, v in batch.items() if k.rpartition('_')[2].startswith('BJ')}
    fixed = {k: v for k, v in batch.items() if k not in stacked}
    names = parts.rows(model_cfg, fixed | {k: v[0] for k, v in stacked.items()})
    flat = flatten_dict(dict(state.params['model']), sep='/')
    others = {'model': {k: v for k, v in flat.items() if k not in names}, 'objective': state.params['objective']}

    def body(carry: Any, xs: Any) -> Any:
      (tables, is_finite), (index, part) = carry, xs
      inputs = fixed | part, model_state, jax.random.fold_in(key, index)
      tables, changes, metrics, is_finite = _update(parts, tables, others, inputs, lr, is_finite, axis)
      norm = jax.lax.cond(index == 0, optax.tree.norm, lambda _: jnp.float32(0), changes)
      return (tables, is_finite), (norm, metrics)

    count = next(iter(stacked.values())).shape[0]
    start = ({name: flat[name] for name in names}, jnp.bool_(True))
    (tables, is_finite), (norm, metrics) = jax.lax.scan(body, start, (jnp.arange(count), stacked))
    params = {'model': unflatten_dict(flat | tables, sep='/'), 'objective': state.params['objective']}
    sums = jax.tree.map(lambda x: jnp.sum(x, axis=0), metrics)
    mean = sum(sums[term][0] / jnp.maximum(sums[term][1], 1.0) for term in objective.terms(objective_cfg))
    norm = jnp.sqrt(sum_over(axis, jnp.square(norm[0]))) / jnp.maximum(lr, jnp.finfo(jnp.float32).tiny)
    sums |= {'loss': mean, 'grad_norm': norm, 'finite': is_finite, 'lr': lr}
    return state.replace(params=params, step=state.step + 1), model_state, sums

  return explain_missing_arrays(train_step)


def _fused_step(parts: _Parts, fused: Any, state: TrainState, batch: Batch, lr: Array, model_state: State) -> Any:
  """Compute `train_step` by one operation for all updates (the model's `fused_updates`)."""
  flat = flatten_dict(dict(state.params['model']), sep='/')
  tables, sums = fused(parts.model_cfg, {name: flat[name] for name in parts.model.ROW_TABLES}, batch, lr)
  params = {'model': unflatten_dict(flat | tables, sep='/'), 'objective': state.params['objective']}
  (term,) = parts.objective.terms(parts.objective_cfg)
  mean = sums['loss'] / jnp.maximum(sums['uses'], 1.0)
  metrics = {term: (sums['loss'], sums['uses']), 'loss': mean, 'grad_norm': sums['norm'], 'lr': lr}
  return state.replace(params=params, step=state.step + 1), model_state, metrics | {'finite': sums['finite']}


def _update(
  parts: _Parts, tables: dict[str, Array], others: Params, inputs: Any, lr: Array, is_finite: Array, axis: str | None
) -> Any:
  """Apply one update: (tables, -rate times the gradient of the rows, metrics, True if all was finite so far)."""
  batch, model_state, key = inputs
  derivatives: list[Any] = []
  sums: Any = None
  for half in _halves(batch) if axis is None else [batch]:
    ids = parts.rows(parts.model_cfg, half)
    read = {name: Rows(jax.tree.map(lambda i, t=tables[name]: _read(t, i), part)) for name, part in ids.items()}

    def local(read: Any, half: Batch = half) -> Any:
      params = {'model': unflatten_dict({**others['model'], **read}, sep='/'), 'objective': others['objective']}
      out = training_loss(
        parts.model, parts.model_cfg, parts.objective, parts.objective_cfg, params, half, model_state, key
      )
      return sum(out.sums.values()), out.metrics

    loss, derive, metrics = jax.vjp(local, read, has_aux=True)
    derivatives.append((ids, derive))
    sums = (loss, metrics) if sums is None else jax.tree.map(jnp.add, sums, (loss, metrics))
  loss, metrics = sum_over(axis, sums)
  is_finite &= jnp.isfinite(loss)
  # The learning rate scales the cotangent, because small arrays are cheaper to multiply than rows.
  changes = [(ids, derive(jnp.where(is_finite, -lr, 0.0))[0]) for ids, derive in derivatives]
  for ids, change in changes:
    for name in change:
      for i, rows in zip(jax.tree.leaves(ids[name]), jax.tree.leaves(change[name]), strict=True):
        i, rows = i.reshape(-1), rows.reshape(-1, rows.shape[-1])
        if axis is None:
          i, rows = parts.replicate(i), parts.replicate(rows)
        else:
          i, rows = (jax.lax.all_gather(x, axis, tiled=True) for x in (i, rows))
        tables = tables | {name: tables[name].at[i].add(rows, mode='promise_in_bounds')}
  read_ids, *parts_of_rows = jax.tree.leaves(changes[0][0]), *(jax.tree.leaves(change) for _, change in changes)
  # Table rows shared by the batch, such as the top of a tree, have one gradient.
  gradients = [sum(x) if i.ndim == 1 else x for i, *x in zip(read_ids, *parts_of_rows, strict=True)]
  return tables, gradients, metrics, is_finite


def _read(table_VD: Array, ids: Array) -> Array:
  return table_VD.at[ids].get(mode='promise_in_bounds')


def _halves(batch: Batch) -> list[Batch]:
  """Split the rows into halves on one CPU, which XLA computes concurrently on two cores; else return the batch."""
  is_rows = {name: name.rpartition('_')[2].startswith('B') for name in batch}
  size = next(batch[name].shape[0] for name in batch if is_rows[name])
  if not devices.is_one_device('cpu') or size % 2:
    return [batch]
  return [
    {name: x[first : first + size // 2] if is_rows[name] else x for name, x in batch.items()}
    for first in (0, size // 2)
  ]
