"""Everything that an update changes, except the model's own state."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax.numpy as jnp
import optax

from lmx.types import Array, Params


class TrainState(flax.struct.PyTreeNode):
  """The training state.

  Attributes:
    step: batches used so far, int32 scalar; the only counter that schedules, dropout keys and data follow.
    params: {'model': ..., 'objective': ...}, float32.
    opt_state: the optimizer's state.
    ema: running average of the parameters (`optim.averaging`), or None.
    lr_scale: float32 scalar that multiplies the scheduled rate; the loop lowers it on a validation plateau.
  """

  step: Array
  params: Params
  opt_state: optax.OptState
  ema: Any
  lr_scale: Array


def create(params: Params, tx: optax.GradientTransformation, ema: Any = None) -> TrainState:
  """Returns the state before the first update.

  Args:
    params: {'model': ..., 'objective': ...}.
    tx: the optimizer, see `optim.build.make`.
    ema: start of the average of the parameters, from `optim.averaging.init`; None keeps none.
  """
  return TrainState(
    step=jnp.zeros((), jnp.int32),
    params=params,
    opt_state=tx.init(params),
    ema=ema,
    lr_scale=jnp.ones((), jnp.float32),
  )
