"""Tracing scope of a run's functions: matrix product precision and placement.

The products are matrix products and convolutions of float32 arrays.

On a CPU their operands are float32. XLA's default rounds them to bfloat16 on a TPU, and to TF32 on an NVIDIA GPU from
Ampere on. JAX reads the setting when a product is traced, so every function of a run is traced at the
`matmul_precision` of its config. Outside a run the setting is that of lmx/types.py. Products of bfloat16 arrays are
the same at every setting.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import jax

from lmx import placement
from lmx.engine import devices
from lmx.placement import Placement


def default(dtypes: Iterable[str]) -> str:
  """Return the default precision of a run: 'float32' if a model computes in float32, else 'default'."""
  return 'float32' if 'float32' in dtypes else 'default'


@contextmanager
def scope(precision: str, where: Placement | None = None) -> Iterator[None]:
  """Trace functions at `precision`, for the devices `where`; None is this process's default device."""
  with jax.default_matmul_precision(precision), placement.scope(where or devices.of_process()):
    yield


def wrap(precision: str, function: Callable[..., Any], where: Placement | None = None) -> Callable[..., Any]:
  """Return `function`, traced in `scope(precision, where)` in every call."""

  @functools.wraps(function)
  def call(*args: Any, **named: Any) -> Any:
    with scope(precision, where):
      return function(*args, **named)

  return call


def run_scope(function: Callable[..., Any]) -> Callable[..., Any]:
  """Decorate a function whose first argument is a Run, or has a `run`: it computes at the run's precision."""

  @functools.wraps(function)
  def call(first: Any, *args: Any, **named: Any) -> Any:
    return wrap(getattr(first, 'run', first).matmul_precision, function)(first, *args, **named)

  return call
