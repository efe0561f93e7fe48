"""Exponential moving average of the parameters, used in evaluation instead of them.

The average carries the sum of the weights it has given so far. Started from nothing (debiased, as in Adam's
arXiv 1412.6980 section 3) that sum grows from 0 to 1 and `value` divides by it; started from the parameters it is 1
throughout, which is the plain average of TensorFlow's `ExponentialMovingAverage`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from lmx.types import Array, Params


class Average(NamedTuple):
  """A running average.

  Attributes:
    mean: weighted sum of the parameters so far, shaped like them.
    weight: sum of the weights, scalar float32.
  """

  mean: Params
  weight: Array


def init(params: Params, decay: float, *, debias: bool = True) -> Average | None:
  """Starts an average at nothing (`debias`) or at `params`; None if `decay` is 0, for no average."""
  if not decay:
    return None
  if debias:
    return Average(jax.tree.map(jnp.zeros_like, params), jnp.zeros((), jnp.float32))
  return Average(jax.tree.map(jnp.array, params), jnp.ones((), jnp.float32))


def update(average: Average | None, params: Params, decay: float) -> Average | None:
  """Moves the average by 1 - decay towards `params`."""
  if average is None:
    return None
  mean = optax.incremental_update(params, average.mean, 1.0 - decay)
  return Average(mean, decay * average.weight + (1.0 - decay))


def value(average: Average | None, params: Params) -> Params:
  """The averaged parameters: what to evaluate. `params` themselves while nothing has been averaged."""
  if average is None:
    return params
  return _value(average, params)


@jax.jit
def _value(average: Average, params: Params) -> Params:
  begun = average.weight > 0
  scale = 1.0 / jnp.where(begun, average.weight, 1.0)
  return jax.tree.map(lambda m, p: jnp.where(begun, m * scale, p), average.mean, params)
