"""Devices that a computation is compiled for: their platform, their mesh, and the sharding of activations.

The engine enters one `Placement` around each function that it compiles. Only `constrain` and the choice of a kernel
read it. Nothing else asks which devices the process has, so a step can be compiled for devices that the process lacks.
Without a placement `constrain` is the identity, and every layer computes its plain equation.

Activations are sharded by the letters of their axes (the legend of lmx/types.py), with one table from letters to mesh
axes, as in Mesh TensorFlow (Shazeer et al. 2018, arXiv 1811.02084). Without constraints XLA shards activations as the
parameters that they meet, and gathers the rows of the batch.
"""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

MESH_AXES = ('data', 'fsdp', 'tensor')
Rules = tuple[tuple[str, tuple[str, ...]], ...]  # letter of an axis, the mesh axes that shard it
RULES: Rules = (
  ('B', ('data', 'fsdp')),  # rows
  ('H', ('tensor',)),  # heads
  ('F', ('tensor',)),  # feed-forward width
  ('V', ('tensor',)),  # vocabulary
)


@dataclasses.dataclass(frozen=True)
class Placement:
  """Devices of a computation.

  Attributes:
    platform: 'cpu', 'gpu' or 'tpu'.
    kind: name of the devices, as JAX has it.
    mesh: mesh over MESH_AXES.
    rules: mesh axes that shard each axis of an activation; an axis without a rule is not sharded.
    mapped: each device traces its own rows (`pmap`), so there is nothing to shard.
  """

  platform: str
  kind: str
  mesh: Mesh
  rules: Rules = RULES
  mapped: bool = False

  @property
  def devices(self) -> int:
    """Number of devices."""
    return self.mesh.size

  @property
  def row_shards(self) -> int:
    """Number of shards of the rows of an array that is traced here."""
    return 1 if self.mapped else math.prod(self.mesh.shape[axis] for axis in dict(self.rules).get('B', ()))

  def spec(self, shape: Sequence[int], axes: str) -> PartitionSpec:
    """Return the mesh axes of each dimension; one without a letter, or not divided by them, is not sharded."""
    rules = dict(self.rules)
    mesh_axes = [rules.get(letter, ()) for letter in axes.ljust(len(shape))]
    divided = [n % math.prod(self.mesh.shape[a] for a in names) == 0 for n, names in zip(shape, mesh_axes, strict=True)]
    return PartitionSpec(*(names if names and fits else None for names, fits in zip(mesh_axes, divided, strict=True)))


def of_devices(devices: Sequence[jax.Device], mesh: Mesh, mapped: bool = False) -> Placement:
  """Return the placement on the devices of a mesh."""
  return Placement(devices[0].platform, devices[0].device_kind, mesh, mapped=mapped)


def compiler_options(platform: str) -> dict[str, str]:
  """Return XLA's options for a platform: on a CPU fewer passes of LLVM, unless XLA_FLAGS says.

  Programs are compiled in three quarters of the time and are as fast: most of their work is in products, which are a
  library's. Random numbers are equal to the bit.
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


@functools.cache
def of_process() -> Placement:
  """Return the placement on the default device of this process."""
  device = jax.devices()[0]
  mesh = Mesh(np.array([device]).reshape(1, 1, 1), MESH_AXES, axis_types=(AxisType.Auto,) * 3)
  return of_devices([device], mesh)


_current: contextvars.ContextVar[Placement | None] = contextvars.ContextVar('placement', default=None)


def current() -> Placement | None:
  """Return the placement of the function that is traced, or None."""
  return _current.get()


@contextmanager
def scope(placement: Placement | None) -> Iterator[None]:
  """Trace functions for `placement`."""
  token = _current.set(placement)
  try:
    yield
  finally:
    _current.reset(token)


def is_platform(name: str) -> bool:
  """Return True if the current placement is on this platform."""
  placement = current()
  return placement is not None and placement.platform == name


def is_one_device(name: str) -> bool:
  """Return True if the current placement is a single device of this platform."""
  placement = current()
  return placement is not None and placement.platform == name and placement.devices == 1


def row_shards(rows: int) -> int:
  """Return the number of devices that share an array of these rows, each with as many; 1 if they do not divide it."""
  placement = current()
  return placement.row_shards if placement is not None and rows % placement.row_shards == 0 else 1


def shards(shape: Sequence[int], axes: str) -> int:
  """Return the number of devices that share an array, see `constrain`."""
  placement = current()
  if placement is None or placement.mapped:
    return 1
  sharding = NamedSharding(placement.mesh, placement.spec(shape, axes))
  return math.prod(shape) // math.prod(sharding.shard_shape(tuple(shape)))


def constrain(x: jax.Array, axes: str) -> jax.Array:
  """Shard an activation by the letters of its first axes, such as 'BTD', which name it for rematerialisation too."""
  x, placement = checkpoint_name(x, axes), current()
  if placement is None or placement.mapped or placement.devices == 1:
    return x
  return jax.lax.with_sharding_constraint(x, NamedSharding(placement.mesh, placement.spec(x.shape, axes)))


def copies(x: jax.Array, axes: str = '') -> jax.Array | None:
  """Return a copy of an array for each shard of the rows, on its devices: (S, ...); None without such shards.

  Under fsdp it is gathered. Under tensor it is not: it stays sharded by the letters of its axes, and without them there
  are no copies.
  """
  placement = current()
  if placement is None or placement.mapped or placement.row_shards == 1:
    return None
  if not axes and placement.row_shards < placement.devices:
    return None
  return constrain(jax.numpy.broadcast_to(x, (placement.row_shards, *x.shape)), f'B{axes}')


def is_parameter_sharded() -> bool:
  """Return True if the current placement shards parameters over 'fsdp'."""
  placement = current()
  return placement is not None and not placement.mapped and placement.mesh.shape['fsdp'] > 1


def jit(function: Callable[..., Any], static: int) -> Callable[..., Any]:
  """Return `jax.jit` of a function whose first `static` arguments are static; its cache distinguishes placements."""

  def traced(placement: Placement | None, *args: Any, **named: Any) -> Any:
    del placement  # the current one, which is part of the cache's key
    return function(*args, **named)

  traced.__name__ = traced.__qualname__ = function.__name__
  compiled = jax.jit(traced, static_argnums=tuple(range(static + 1)))
  return functools.wraps(function)(lambda *args, **named: compiled(current(), *args, **named))
