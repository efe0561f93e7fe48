"""Everything that an update changes, except the model's own state."""

from __future__ import annotations

import warnings
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.traverse_util import flatten_dict

from lmx.errors import InputWarning, NonFiniteLoss
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
  """Return the state before the first update.

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


def nonfinite(tree: Params) -> list[str]:
  """Return the names of the arrays of a nested dict that have a NaN or an infinity, joined with '/'."""
  return [name for name, x in flatten_dict(dict(tree), sep='/').items() if not _is_finite(x)]


def _is_finite(x: Any) -> bool:
  """Return True for an array without NaN and infinity; NumPy reads those in the host's memory, and compiles nothing."""
  if isinstance(x, jax.Array) and not (x.is_fully_addressable and x.platform() == 'cpu'):
    return bool(jnp.isfinite(x).all())
  return bool(np.isfinite(np.asarray(x)).all())


def warn_nonfinite(source: object, tensors: Params, stacklevel: int = 3) -> None:
  """Warn of the tensors of `source` that have a NaN or an infinity, by their names."""
  if names := nonfinite(tensors):
    warnings.warn(f'{source}: tensors with NaN or infinity: {listed(names)}', InputWarning, stacklevel=stacklevel)


def nonfinite_error(subject: str, params: Params) -> NonFiniteLoss:
  """Return the error for a measurement that is NaN or infinite; it names the parameters that are.

  Args:
    subject: the measurement with its verb, such as 'the loss of split test is'.
    params: that were measured.
  """
  names = nonfinite(params)
  held = f'parameters with NaN or infinity: {listed(names)}' if names else 'all parameters are finite'
  return NonFiniteLoss(
    f'{subject} not finite; {held}. Train anew with a lower optim.lr or with optim.clip_norm, or '
    'measure an earlier checkpoint (--which)'
  )


def listed(names: list[str], most: int = 10) -> str:
  """Return the first `most` of the names in words, and how many more there are."""
  more = len(names) - most
  return ', '.join(names[:most]) + (f' and {more:,} more' if more > 0 else '')
