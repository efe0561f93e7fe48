"""Precision of the products of a run: matrix products and convolutions of float32 arrays.

On a CPU their operands are float32. XLA's default rounds them to bfloat16 on a TPU, and to TF32 on an NVIDIA GPU from
Ampere on. JAX reads the setting where a product is traced, so every function that computes for a run is traced at the
`matmul_precision` of its config. Outside of a run the setting is that of lmx/types.py. Products of bfloat16 arrays are
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
  """Return the precision of a run whose models compute in `dtypes`: 'float32' where one of them is, else 'default'."""
  return 'float32' if 'float32' in dtypes else 'default'


def scope(precision: str) -> AbstractContextManager[Any]:
  """Return a context in which functions are traced at `precision`."""
  return jax.default_matmul_precision(precision)


def wrap(precision: str, function: Callable[..., Any]) -> Callable[..., Any]:
  """Return `function`, traced at `precision` wherever it is called."""

  @functools.wraps(function)
  def call(*args: Any, **named: Any) -> Any:
    with scope(precision):
      return function(*args, **named)

  return call


def run_scope(function: Callable[..., Any]) -> Callable[..., Any]:
  """Decorate a function whose first argument is a Run, or has one as `run`: it computes at the run's precision."""

  @functools.wraps(function)
  def call(first: Any, *args: Any, **named: Any) -> Any:
    return wrap(getattr(first, 'run', first).matmul_precision, function)(first, *args, **named)

  return call
