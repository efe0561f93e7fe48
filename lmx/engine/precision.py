"""Precision of a run's products: matrix products and convolutions of float32 arrays.

On a CPU their operands are float32. XLA's default rounds them to bfloat16 on a TPU, and to TF32 on an NVIDIA GPU from
Ampere on. JAX reads the setting when a product is traced, so every function of a run is traced at the
`matmul_precision` of its config. Outside a run the setting is that of lmx/types.py. Products of bfloat16 arrays are
the same at every setting.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import jax

CHOICES = ('float32', 'tensorfloat32', 'bfloat16', 'default')


def default(dtypes: Iterable[str]) -> str:
  """Return the default precision of a run: 'float32' if a model computes in float32, else 'default'."""
  return 'float32' if 'float32' in dtypes else 'default'


def scope(precision: str) -> AbstractContextManager[Any]:
  """Return a context in which functions are traced at `precision`."""
  return jax.default_matmul_precision(precision)


def wrap(precision: str, function: Callable[..., Any]) -> Callable[..., Any]:
  """Return `function`, traced at `precision` in every call."""

  @functools.wraps(function)
  def call(*args: Any, **named: Any) -> Any:
    with scope(precision):
      return function(*args, **named)

  return call


def run_scope(function: Callable[..., Any]) -> Callable[..., Any]:
  """Decorate a function whose first argument is a Run, or has a `run`: it computes at the run's precision."""

  @functools.wraps(function)
  def call(first: Any, *args: Any, **named: Any) -> Any:
    return wrap(getattr(first, 'run', first).matmul_precision, function)(first, *args, **named)

  return call
