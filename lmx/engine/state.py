"""Training state: everything that an update changes, except the model's own state."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
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
    step: number of batches so far, int32 scalar; the only counter of schedules, dropout keys and data.
    params: {'model': ..., 'objective': ...}, float32.
    opt_state: the optimizer's state.
    ema: running average of the parameters (`optim.averaging`), or None.
    lr_scale: float32 scalar that multiplies the scheduled rate; the loop reduces it on a validation plateau.
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
    ema: initial average of the parameters, from `optim.averaging.init`; None for no average.
  """
  return TrainState(
    step=jnp.zeros((), jnp.int32),
    params=params,
    opt_state=tx.init(params),
    ema=ema,
    lr_scale=jnp.ones((), jnp.float32),
  )


def leaf_name(path: Sequence[Any]) -> str:
  """Return a leaf's name from 'model' or 'objective' on, so that Adam moments are named like their parameter."""
  parts = [str(getattr(k, 'key', getattr(k, 'name', getattr(k, 'idx', k)))) for k in path]
  for start, part in enumerate(parts):
    if part in ('model', 'objective'):
      return '/'.join(parts[start:])
  return '/'.join(parts)


def nonfinite(tree: Params) -> list[str]:
  """Return the names, joined with '/', of the arrays of a nested dict that contain NaN or infinity."""
  return [name for name, x in flatten_dict(dict(tree), sep='/').items() if not _is_finite(x)]


def _is_finite(x: Any) -> bool:
  """Return True if an array is finite; host arrays are checked by NumPy, without compilation."""
  if isinstance(x, jax.Array) and not (x.is_fully_addressable and x.platform() == 'cpu'):
    return bool(jnp.isfinite(x).all())
  return bool(np.isfinite(np.asarray(x)).all())


def warn_nonfinite(source: object, tensors: Params, stacklevel: int = 3) -> None:
  """Warn about tensors of `source` that contain NaN or infinity, by name."""
  if names := nonfinite(tensors):
    warnings.warn(f'{source}: tensors with NaN or infinity: {format_names(names)}', InputWarning, stacklevel=stacklevel)


def nonfinite_error(subject: str, params: Params) -> NonFiniteLoss:
  """Return the error for a metric that is NaN or infinite; it names the parameters that are.

  Args:
    subject: the metric with its verb, such as 'the loss of split test is'.
    params: the evaluated parameters.
  """
  names = nonfinite(params)
  cause = f'parameters with NaN or infinity: {format_names(names)}' if names else 'all parameters are finite'
  return NonFiniteLoss(
    f'{subject} not finite; {cause}. Train again with a lower optim.lr or with optim.clip_norm, or evaluate an '
    'earlier checkpoint (--which)'
  )


def format_names(names: list[str], most: int = 10) -> str:
  """Return the first `most` names as text, and how many more there are."""
  more = len(names) - most
  return ', '.join(names[:most]) + (f' and {more:,} more' if more > 0 else '')
