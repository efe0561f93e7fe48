"""Averages of the parameters, which replace them in evaluation and generation.

`Average` is an exponential moving average with the sum of its weights. Initialised at zero
(debiased, as in Adam, arXiv 1412.6980, section 3), that sum grows from 0 to 1 and `value` divides by it. Initialised at
the parameters it is always 1, which is the plain average of TensorFlow's `ExponentialMovingAverage`.

`Mean` is the plain mean of averaged SGD (Polyak & Juditsky 1992) from some update on: the first, or the one at which
the validation loss stops falling (NT-ASGD: Merity et al. 2018, arXiv 1708.02182, algorithm 1; `is_triggered` is its
condition). Before that it equals the parameters. `lag` reproduces torch.optim.ASGD(t0=0, lambd=0), which the
released code uses: the learning rate factor and the mean's weight come from the previous update. So a window's rate
applies to the next window, and the parameters after the first update are removed from the mean again.
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
    mean: the parameters until averaging begins, then their mean.
    begun: True once averaging has begun; bool scalar, set by the loop.
    updates: number of updates since then, int32 scalar.
    factor: factor of the rate in the previous update, float32 scalar.
  """

  mean: Params
  begun: Array
  updates: Array
  factor: Array


State = Average | Mean | None


def init(params: Params, decay: float, *, debias: bool = True) -> Average | None:
  """Initialise an average at zero (`debias`) or at `params`; return None if `decay` is 0, for no average."""
  if not decay:
    return None
  if debias:
    return Average(jax.tree.map(jnp.zeros_like, params), jnp.zeros((), jnp.float32))
  return Average(jax.tree.map(jnp.array, params), jnp.ones((), jnp.float32))


def init_mean(params: Params, *, begun: bool) -> Mean:
  """Initialise a mean; `begun`: it averages from the first update."""
  return Mean(jax.tree.map(jnp.array, params), jnp.asarray(begun), jnp.zeros((), jnp.int32), jnp.ones(()))


def factor(average: State, now: Array, lag: bool) -> Array:
  """Return the factor of the rate of this update: `now`, or with `lag` the previous update's.

  Args:
    average: before the update.
    now: the batch's own factor (`rate_B`), float32 scalar.
    lag: see the module's docstring; applies once a mean has begun, except in its first update.
  """
  if not lag or not isinstance(average, Mean):
    return now
  return jnp.where(average.updates > 0, average.factor, now)


def update(average: State, params: Params, decay: float = 0.0, *, now: Array | float = 1.0, lag: bool = False) -> State:
  """Update the average with the parameters after an update.

  Args:
    average: the previous average.
    params: after the update.
    decay: for an `Average`, which moves by 1 - decay towards `params`.
    now: for a `Mean`: the batch's factor of the rate, stored for the next update.
    lag: for a `Mean`: see the module's docstring.
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
  """Return the averaged parameters, for evaluation; `params` themselves while nothing has been averaged."""
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


def is_triggered(losses: Sequence[float], loss: float, window: int) -> bool:
  """Return True if averaging begins: `loss` exceeds the minimum before the last `window` (algorithm 1, line 6).

  Args:
    losses: of the previous validations, in order.
    loss: of this one.
    window: n, 5 in the paper; averaging cannot begin before more than n validations.
  """
  return len(losses) > window and loss > min(losses[: len(losses) - window])
