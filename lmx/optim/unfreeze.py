"""Gradual unfreezing (Howard and Ruder 2018, arXiv 1801.06146, section 3.3): parameter groups become trainable one by
one, from the output downwards, within one run.

A group is a depth: the objective's head and the model's output matrix are group 0, the last layer is group 1, the
embeddings are the last group. Where the output matrix is the embedding, the last layer is group 0, with the output's
bias. A stage may also train a single group (chain-thaw: Felbo et al. 2017, arXiv 1708.00524). A frozen group does not
change: its gradient is excluded from the clipping norm and from its moments, and weight decay does not apply. Moments
and Adam's count of updates are stored per group. So those of a group start at its first update, as PyTorch's do, and
continue when the next group is unfrozen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lmx.optim import Stage, schedules
from lmx.optim.groups import Depth, level_of
from lmx.types import Array, Params

Trained = Callable[[Array], Array]  # update -> number of trained groups, or -n for a stage that trains only group n


def groups(params: Params, depth: Depth, n_layers: int, top: int) -> Params:
  """Return the group of each parameter, a tree of ints like `params`; see `optim.groups.exponents` for the arguments.

  `top` is the depth of group 0, see `optim.groups.top`.
  """

  def group(path: Any, _: Any) -> Any:
    return max(top - level_of(path, depth, n_layers), 0)

  return jax.tree_util.tree_map_with_path(group, params)


def by_epoch(epochs: float, steps_per_epoch: int) -> Trained:
  """Train one group from the start, and one more after each `epochs` epochs."""
  return lambda step: 1 + jnp.floor_divide(jnp.asarray(step), max(round(epochs * steps_per_epoch), 1))


def stage_starts(stages: Sequence[Stage], steps_per_epoch: int) -> list[int]:
  """Return the number of the first update of each stage."""
  begin = [0]
  for _, epochs, _, _ in stages[:-1]:
    begin.append(begin[-1] + max(round(epochs * steps_per_epoch), 1))
  return begin


def stage_lengths(begin: Sequence[int], total_steps: int) -> list[int]:
  """Return the number of updates of each stage, at least 1."""
  ends = [*begin[1:], max(total_steps, begin[-1] + 1)]
  return [end - start for start, end in zip(begin, ends, strict=True)]


def by_stage(stages: Sequence[Stage], steps_per_epoch: int) -> Trained:
  """Return the number of groups that an update's stage trains, or -n for only the n-th."""
  begin = jnp.asarray(stage_starts(stages, steps_per_epoch))
  count = jnp.asarray([stage[0] or jnp.iinfo(jnp.int32).max for stage in stages])
  return lambda step: count[jnp.searchsorted(begin, jnp.asarray(step), side='right') - 1]


def rate_by_stage(
  stages: Sequence[Stage], ratio: float, total_steps: int, steps_per_epoch: int, min_cut: int = 1
) -> schedules.Schedule:
  """Return one slanted triangle per stage, in sequence, as the released code's calls of `fit`."""
  begin = stage_starts(stages, steps_per_epoch)
  parts = [
    (start, factor, schedules.slanted_triangular(steps, cut, ratio, min_cut))
    for (_, _, factor, cut), start, steps in zip(stages, begin, stage_lengths(begin, total_steps), strict=True)
  ]

  def factor_at(step: Any) -> Any:
    rate = jnp.float32(0)
    for start, factor, triangle in parts:
      rate = jnp.where(jnp.asarray(step) >= start, factor * triangle(jnp.asarray(step) - start), rate)
    return rate

  return factor_at


def without_frozen(group: Params, trained: Trained) -> optax.GradientTransformationExtraArgs:
  """Set the gradient of frozen groups to zero."""

  def update(updates: Any, state: Any, params: Params | None = None, *, step: Array, **extra: Any) -> Any:
    del params, extra
    return _zero_frozen(updates, group, trained(step)), state

  return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def by_group(
  tx: optax.GradientTransformation, group: Params, trained: Trained
) -> optax.GradientTransformationExtraArgs:
  """Apply `tx`, which treats each parameter separately, with a state per group that is unchanged while it is frozen."""
  numbers = sorted(set(jax.tree.leaves(group)))
  masks = [jax.tree.map(lambda g, n=n: g == n, group) for n in numbers]
  inner = [optax.masked(tx, mask) for mask in masks]

  def update(updates: Any, state: Any, params: Params | None = None, *, step: Array, **extra: Any) -> Any:
    del extra
    count, states = trained(step), []
    for n, one, old in zip(numbers, inner, state, strict=True):
      updates, new = one.update(updates, old, params)
      states.append(jax.tree.map(lambda a, b, n=n: jnp.where(is_trained(n, count), a, b), new, old))
    return _zero_frozen(updates, group, count), tuple(states)

  return optax.GradientTransformationExtraArgs(lambda params: tuple(one.init(params) for one in inner), update)


def is_trained(group: int, count: Array) -> Array:
  """Return True if an update that trains `count` groups, or only group -count - 1, trains `group`."""
  return jnp.where(count < 0, group == -count - 1, group < count)


def _zero_frozen(updates: Params, group: Params, count: Array) -> Params:
  return jax.tree.map(lambda u, g: jnp.where(is_trained(g, count), u, jnp.zeros_like(u)), updates, group)
