"""Placements on this process's devices, and their platform's XLA options."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from lmx.engine import MESH_AXES
from lmx.kernels import implementations
from lmx.placement import Placement


def of_devices(devices: Sequence[jax.Device], mesh: Mesh, **options: Any) -> Placement:
  """Return the placement on the devices of a mesh; `options`: its other attributes."""
  return Placement(devices[0].platform, devices[0].device_kind, mesh, implementation=implementations.find, **options)


@functools.cache
def of_process() -> Placement:
  """Return the placement on the default device of this process."""
  device = jax.devices()[0]
  mesh = Mesh(np.array([device]).reshape(1, 1, 1), MESH_AXES, axis_types=(AxisType.Auto,) * 3)
  return of_devices([device], mesh)


def compiler_options(platform: str) -> dict[str, str]:
  """Return XLA's options for a platform: fewer LLVM passes on a CPU, unless XLA_FLAGS sets them.

  Compilation takes three quarters of the time, and programs are as fast, because most work is in library matrix
  products. Random numbers are bit-equal.
  """
  level = 'xla_backend_optimization_level'
  return {level: '1'} if platform == 'cpu' and level not in os.environ.get('XLA_FLAGS', '') else {}


def jit_for_platform(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
  """Return `jax.jit(function, **options)` with `compiler_options` of the process's devices, looked up when called."""

  @functools.cache
  def compiled(platform: str) -> Callable[..., Any]:
    return jax.jit(function, compiler_options=compiler_options(platform), **options)

  @functools.wraps(function)
  def call(*args: Any, **named: Any) -> Any:
    return compiled(jax.default_backend())(*args, **named)

  return call
