"""Averages of the parameters, used in evaluation and generation instead of them.

`Average` is an exponential moving average. It carries the sum of the weights it has given so far. Started from nothing
(debiased, as in Adam's arXiv 1412.6980 section 3) that sum grows from 0 to 1 and `value` divides by it; started from
the parameters it is 1 throughout, which is the plain average of TensorFlow's `ExponentialMovingAverage`.

`Mean` is the plain mean of averaged SGD (Polyak & Juditsky 1992) from some update on: from the first, or from when the
validation loss has stopped to fall (NT-ASGD: Merity et al. 2018, arXiv 1708.02182, algorithm 1; `triggered` is its
condition). Until it begins it follows the parameters. `lag` gives what torch.optim.ASGD(t0=0, lambd=0) does, which the
released code uses: the factor of the rate and the weight of the mean are those of the update before, so a window's
rate belongs to the window after it, and the parameters after the first update drop out of the mean again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from lmx.types import Array, Params


class Average(NamedTuple):
  """An exponential moving average.

  Attributes:
    mean: weighted sum of the parameters so far, shaped like them.
    weight: sum of the weights, scalar float32.
  """

  mean: Params
  weight: Array


class Mean(NamedTuple):
  """The mean of averaged SGD.

  Attributes:
    mean: the parameters until the averaging has begun, then their mean.
    begun: whether it has; bool scalar. The loop sets it.
    updates: number of them since then, int32 scalar.
    factor: of the rate in the update before, float32 scalar.
  """

  mean: Params
  begun: Array
  updates: Array
  factor: Array


State = Average | Mean | None


def init(params: Params, decay: float, *, debias: bool = True) -> Average | None:
  """Start an average at nothing (`debias`) or at `params`; None if `decay` is 0, for no average."""
  if not decay:
    return None
  if debias:
    return Average(jax.tree.map(jnp.zeros_like, params), jnp.zeros((), jnp.float32))
  return Average(jax.tree.map(jnp.array, params), jnp.ones((), jnp.float32))


def init_mean(params: Params, *, begun: bool) -> Mean:
  """Start a mean; `begun`: it averages from the first update."""
  return Mean(jax.tree.map(jnp.array, params), jnp.asarray(begun), jnp.zeros((), jnp.int32), jnp.ones(()))


def factor(average: State, now: Array, lag: bool) -> Array:
  """The factor of the rate that this update is made with: `now`, or with `lag` that of the update before.

  Args:
    average: before the update.
    now: the batch's own factor (`rate_B`), float32 scalar.
    lag: see above; matters once a mean has begun, and not in its first update.
  """
  if not lag or not isinstance(average, Mean):
    return now
  return jnp.where(average.updates > 0, average.factor, now)


def update(average: State, params: Params, decay: float = 0.0, *, now: Array | float = 1.0, lag: bool = False) -> State:
  """Take in the parameters after an update.

  Args:
    average: so far.
    params: after the update.
    decay: of an `Average`, which moves by 1 - decay towards `params`.
    now: of a `Mean`: the batch's factor of the rate, kept for the next update.
    lag: of a `Mean`: see above.
  """
  if average is None:
    return None
  if isinstance(average, Average):
    mean = optax.incremental_update(params, average.mean, 1.0 - decay)
    return Average(mean, decay * average.weight + (1.0 - decay))
  count = jnp.where(average.begun, average.updates + 1, 0)
  divisor = count - 1 if lag else count
  weight = 1.0 / jnp.maximum(divisor, 1).astype(jnp.float32)
  mixed = lambda: jax.tree.map(lambda m, p: m + weight * (p - m), average.mean, params)
  mean = jax.lax.cond(divisor <= 1, lambda: params, mixed)
  return Mean(mean, average.begun, count, jnp.asarray(now, jnp.float32))


def value(average: State, params: Params) -> Params:
  """The averaged parameters: what to evaluate. `params` themselves while nothing has been averaged."""
  if average is None:
    return params
  if isinstance(average, Mean):
    return average.mean
  return _value(average, params)


@jax.jit
def _value(average: Average, params: Params) -> Params:
  begun = average.weight > 0
  scale = 1.0 / jnp.where(begun, average.weight, 1.0)
  return jax.tree.map(lambda m, p: jnp.where(begun, m * scale, p), average.mean, params)


def triggered(losses: Sequence[float], loss: float, window: int) -> bool:
  """Return True if averaging begins: `loss` exceeds the lowest but for the last `window` (algorithm 1, line 6).

  Args:
    losses: of the validations before, in order.
    loss: of this one.
    window: n, 5 in the paper; nothing is triggered before more than n validations.
  """
  return len(losses) > window and loss > min(losses[: len(losses) - window])
