"""The optax transformation and learning rate of the `optim` section of a config.

The order inside one update: clip by the global norm, then by value, L2 into the gradient ('adam', 'sgd'), moments or
momentum, decoupled decay ('adamw': Loshchilov and Hutter 2019, arXiv 1711.05101; 'bert_adam': released BERT, where the
rate multiplies the decay too), factors of the groups, rate. Only `rate` counts updates: the transformation receives the
step, so a resumed or partly skipped run cannot drift from its schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lmx.layout import Layout, broadcast
from lmx.optim import Config, averaging, schedules, unfreeze
from lmx.optim import groups as groups_lib
from lmx.optim.adam import bias_correction, scale_by_raw_adam
from lmx.types import Array, Params

# google-research/bert, optimization.py; Graves 2013, arXiv 1308.0850, equation 45; Bahdanau et al. 2015, appendix B.2;
# 1e-8 elsewhere (arXiv 1412.6980, algorithm 1)
EPS = {'adadelta': 1e-6, 'bert_adam': 1e-6, 'rmsprop_graves': 1e-4}


def rate(cfg: Config, total_steps: int, steps_per_epoch: int) -> schedules.Schedule:
  """Return the function from the number of previous updates to the learning rate (before `lr_scale`).

  Args:
    cfg: the section.
    total_steps: number of updates of the run.
    steps_per_epoch: updates in an epoch, for 'step_decay'.
  """
  warmup = cfg.warmup_steps or round(cfg.warmup_fraction * total_steps)
  one = optax.constant_schedule(1.0)
  match cfg.schedule:
    case 'linear':
      decay = schedules.linear(cfg.end_fraction)
      factor = schedules.decayed(decay, warmup, cfg.schedule_origin, total_steps)
    case 'cosine':
      decay = schedules.cosine(cfg.end_fraction)
      factor = schedules.decayed(decay, warmup, cfg.schedule_origin, total_steps)
    case 'poly':
      decay = schedules.poly(cfg.power, cfg.end_fraction)
      factor = schedules.decayed(decay, warmup, cfg.schedule_origin, total_steps)
    case 'inverse_sqrt':
      factor = schedules.inverse_sqrt(max(warmup, 1), cfg.width)
    case 'milestones':
      warm = schedules.decayed(one, warmup, 'from_zero', total_steps)
      falls = schedules.milestones(steps_per_epoch, cfg.milestones, cfg.decay_rate)
      factor = lambda step: warm(step) * falls(step)
    case 'inverse_time':
      warm = schedules.decayed(one, warmup, 'from_zero', total_steps)
      slowing = schedules.inverse_time(cfg.decrease)
      factor = lambda step: warm(step) * slowing(step)
    case 'slanted_triangular' if cfg.stages:
      factor = unfreeze.rate_by_stage(cfg.stages, cfg.ratio, total_steps, steps_per_epoch, cfg.min_cut)
    case 'slanted_triangular':
      factor = schedules.slanted_triangular(total_steps, cfg.cut_fraction, cfg.ratio, cfg.min_cut)
    case 'step_decay':
      warm = schedules.decayed(one, warmup, 'from_zero', total_steps)
      steps = schedules.step_decay(steps_per_epoch, cfg.decay_after_epochs, cfg.decay_rate)
      factor = lambda step: warm(step) * steps(step)
    case _:  # 'constant', and 'plateau', whose reductions are in lr_scale
      factor = schedules.decayed(one, warmup, 'from_zero', total_steps)
  return lambda step: jnp.asarray(cfg.lr * factor(step), jnp.float32)


def notes(cfg: Config, total_steps: int, steps_per_epoch: int) -> list[str]:
  """Warn about each slanted triangle that is too short to rise over `cut_fraction` of its updates."""
  if cfg.schedule != 'slanted_triangular':
    return []
  triangles = [(total_steps, cfg.cut_fraction)]
  if cfg.stages:
    steps = unfreeze.stage_lengths(unfreeze.stage_starts(cfg.stages, steps_per_epoch), total_steps)
    triangles = [(count, stage[3]) for count, stage in zip(steps, cfg.stages, strict=True)]
  return [
    f'optim.cut_fraction: {cut:g} of {count:,} updates is less than {max(cfg.min_cut, 1)}; the learning rate has '
    f'its peak at update {cfg.min_cut + 1}'
    for count, cut in triangles
    if count * cut < max(cfg.min_cut, 1)
  ]


def plateau(cfg: Config, state: schedules.Plateau, score: float, ties: str = 'earlier') -> schedules.Plateau:
  """Return the plateau's state after a validation; its `scale` is the next `lr_scale`."""
  return state.observe(
    score,
    patience=cfg.patience,
    factor=cfg.factor,
    min_scale=cfg.min_lr / cfg.lr if cfg.lr else 0.0,
    threshold=cfg.threshold,
    ties=ties,
  )


def average(cfg: Config, params: Params) -> averaging.State:
  """Return the initial average of the parameters that the section selects; None for none."""
  if cfg.asgd != 'off':
    return averaging.init_mean(params, begun=cfg.asgd == 'start')
  return averaging.init(params, cfg.ema, debias=cfg.ema_debias)


def is_by_row(cfg: Config) -> bool:
  """Return True if an update leaves table rows with zero gradient unchanged and there is no average."""
  plain, whole = Config(), ('momentum', 'weight_decay', 'ema', 'asgd', 'stages', 'unfreeze_every')
  return cfg.optimizer in ('adagrad', 'sgd') and all(getattr(cfg, name) == getattr(plain, name) for name in whole)


def make(
  cfg: Config,
  params: Params,
  depth: groups_lib.Depth,
  n_layers: int,
  total_steps: int,
  steps_per_epoch: int,
  layout: Layout | None = None,
) -> optax.GradientTransformationExtraArgs:
  """Build the transformation from the global gradient to the parameter update.

  Its `update` takes two further keyword arguments: `step`, the number of the update, and `lr_scale`, a factor of
  the scheduled rate (default 1).

  Args:
    cfg: the section.
    params: {'model': ..., 'objective': ...} as the model initialises them, arrays or shapes; only names and numbers of
      axes are used.
    depth: path below params['model'] -> layer number (the model's `depth` with its config bound).
    n_layers: number of layers N; an objective's head has depth N + 1.
    total_steps: number of updates of the run.
    steps_per_epoch: updates in an epoch.
    layout: layout of the parameters that the transformation is applied to; None: that of `params`.

  Raises:
    InputError: `groups` do not cover the parameters, or one matches none.
  """
  powers = groups_lib.exponents(cfg.layer_decay_form, params, depth, n_layers)
  released = cfg.layer_decay_form == 'as_released'
  rates, decays = groups_lib.multipliers(cfg.groups, 1.0 if released else cfg.layer_decay, powers, params)
  if layout is not None:
    rates, decays, powers = layout.factors(rates), layout.factors(decays), layout.factors(powers)
  trained = _trained_groups(cfg, steps_per_epoch)
  if trained is not None:
    group = unfreeze.groups(params, depth, n_layers, groups_lib.top(cfg.layer_decay_form, params, depth, n_layers))
  eps = cfg.eps or EPS.get(cfg.optimizer, 1e-8)
  parts = [] if trained is None else [unfreeze.without_frozen(group, trained)]
  if cfg.clip_norm:
    parts.append(optax.clip_by_global_norm(cfg.clip_norm))
  if cfg.clip_value:
    parts.append(optax.clip(cfg.clip_value))
  if released:
    scale = lambda g, n: g * broadcast(cfg.layer_decay**n, g)
    parts.append(optax.stateless(lambda updates, _: jax.tree.map(scale, updates, powers)))
  decay = _add_decay(cfg, decays) if cfg.weight_decay else optax.identity()
  if cfg.optimizer in ('adadelta', 'adagrad', 'adam', 'rmsprop_graves', 'sgd'):
    parts.append(decay)
  moments = _moments(cfg, eps)
  if moments is not None:
    parts.append(moments if trained is None else unfreeze.by_group(moments, group, trained))
  if cfg.optimizer in ('adamw', 'bert_adam'):
    parts.append(decay)
  parts.append(_scale_by_rate(rate(cfg, total_steps, steps_per_epoch), rates))
  if trained is not None:
    parts.append(unfreeze.without_frozen(group, trained))  # weight decay, too
  return optax.chain(*parts)


def metrics_by_group(
  cfg: Config,
  params: Params,
  depth: groups_lib.Depth,
  n_layers: int,
  steps_per_epoch: int,
  layout: Layout | None = None,
) -> Callable[[Params, Array, Array], dict[str, Array]] | None:
  """Return the function from (gradient, update, learning rate) to the metrics of each group of parameters.

  A group has one factor of the rate and is unfrozen at once. Its metrics are 'lr_of_<name>', 0 while it is frozen, and
  'grad_norm_of_<name>', before clipping. Returns None if there is one group. See `make` for the arguments.
  """
  form = 'by_depth' if cfg.layer_decay_form == 'as_released' else cfg.layer_decay_form
  decay = 1.0 if cfg.layer_decay_form == 'as_released' else cfg.layer_decay
  powers = groups_lib.exponents(form, params, depth, n_layers)
  rates, _ = groups_lib.multipliers(cfg.groups, decay, powers, params)
  trained = _trained_groups(cfg, steps_per_epoch)
  order = jax.tree.map(lambda _: 0, params)
  if trained is not None:
    order = unfreeze.groups(params, depth, n_layers, groups_lib.top(cfg.layer_decay_form, params, depth, n_layers))
  kinds = jax.tree.map(lambda number, rate: (number, -rate), order, rates)
  is_kind = lambda x: isinstance(x, tuple)
  every = sorted(set(jax.tree.leaves(kinds, is_leaf=is_kind)))
  if len(every) == 1:
    return None
  indices = jax.tree.map(every.index, kinds, is_leaf=is_kind)
  names = groups_lib.names(indices, len(every))
  indices = indices if layout is None else layout.factors(indices)

  def metrics(grads: Params, step: Array, rate: Array) -> dict[str, Array]:
    square = lambda g, i: jnp.sum(jnp.square(g.astype(jnp.float32)), axis=tuple(range(np.ndim(i), g.ndim)))
    squares = jax.tree.leaves(jax.tree.map(square, grads, indices))
    found: dict[str, Array] = {}
    for i, (name, (number, factor)) in enumerate(zip(names, every, strict=True)):
      parts = [jnp.sum(s * (np.asarray(n) == i)) for s, n in zip(squares, jax.tree.leaves(indices), strict=True)]
      is_trained = 1.0 if trained is None else unfreeze.is_trained(number, trained(step))
      found |= {f'lr_of_{name}': rate * -factor * is_trained, f'grad_norm_of_{name}': jnp.sqrt(sum(parts))}
    return found

  return metrics


def _moments(cfg: Config, eps: float) -> optax.GradientTransformation | None:
  if cfg.optimizer == 'adagrad':
    return optax.scale_by_rss(cfg.accumulator, cfg.eps)
  if cfg.optimizer == 'adadelta':
    return optax.scale_by_adadelta(cfg.rms_decay, eps)
  if cfg.optimizer == 'rmsprop_graves':
    by_deviation = optax.scale_by_stddev(cfg.rms_decay, eps)
    return optax.chain(by_deviation, optax.trace(cfg.momentum, cfg.nesterov)) if cfg.momentum else by_deviation
  if cfg.optimizer == 'bert_adam':
    return scale_by_raw_adam(cfg.b1, cfg.b2, eps, corrected=False)
  if cfg.optimizer != 'sgd' and cfg.eps_form == 'uncorrected':
    return scale_by_raw_adam(cfg.b1, cfg.b2, eps, corrected=True)
  if cfg.optimizer != 'sgd':
    return optax.scale_by_adam(cfg.b1, cfg.b2, eps)
  return optax.trace(cfg.momentum, cfg.nesterov) if cfg.momentum else None


def _trained_groups(cfg: Config, steps_per_epoch: int) -> unfreeze.Trained | None:
  """Return the function from an update to its number of trained groups; None if it always trains all."""
  if cfg.stages:
    return unfreeze.by_stage(cfg.stages, steps_per_epoch)
  return unfreeze.by_epoch(cfg.unfreeze_every, steps_per_epoch) if cfg.unfreeze_every else None


def _add_decay(cfg: Config, decays: Params) -> optax.GradientTransformationExtraArgs:
  corrected = cfg.optimizer == 'adamw' and cfg.decay_form == 'bias_corrected'

  def update(updates: Any, state: Any, params: Params | None = None, *, step: Array, **extra: Any) -> Any:
    del extra
    factor = cfg.weight_decay * (bias_correction(cfg.b1, cfg.b2, step + 1) if corrected else 1.0)
    add = lambda u, p, d: u + factor * broadcast(d, p) * p if np.any(d) else u
    return jax.tree.map(add, updates, params, decays), state

  return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def _scale_by_rate(schedule: schedules.Schedule, rates: Params) -> optax.GradientTransformationExtraArgs:
  def update(
    updates: Any, state: Any, params: Params | None = None, *, step: Array, lr_scale: Any = 1.0, **extra: Any
  ) -> Any:
    del params, extra
    now = -schedule(step) * lr_scale
    return jax.tree.map(lambda u, r: u * (now * broadcast(r, u)), updates, rates), state

  return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
