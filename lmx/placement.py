"""Devices that a computation is compiled for: mesh, activation sharding, and fast implementations.

The engine enters one `Placement` around each function that it compiles. Only `constrain` and operations
(lmx/ops/operation.py) read it. Nothing else asks which devices the process has, so a step can be compiled for devices
that the process lacks. Without a placement `constrain` is the identity, and every operation computes its equation.

Activations are sharded by the letters of their axes (the legend of lmx/types.py), with one table from letters to mesh
axes, as in Mesh TensorFlow (Shazeer et al. 2018, arXiv 1811.02084). Without constraints XLA shards activations as the
parameters that they meet, and gathers the rows of the batch.
"""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Rules = tuple[tuple[str, tuple[str, ...]], ...]  # axis letter -> the mesh axes that shard it
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
    mesh: mesh over `lmx.engine.MESH_AXES`.
    rules: mesh axes that shard each axis of an activation; an axis without a rule is not sharded.
    mapped: each device traces its own rows (`pmap`), so there is nothing to shard.
    implementation: function of an `Operation` that returns the function that computes it, None for its equation.
    logits: type in which products with a vocabulary's table are stored, where their operands have it too.
    reduce_dtype: type in which gradients of kernels and vocabulary tables are reduced over devices.
  """

  platform: str
  kind: str
  mesh: Mesh
  rules: Rules = RULES
  mapped: bool = False
  implementation: Callable[[Any], Callable[..., Any] | None] = lambda _: None
  logits: str = 'float32'
  reduce_dtype: str = 'float32'

  @property
  def devices(self) -> int:
    """Number of devices."""
    return self.mesh.size

  @property
  def row_shards(self) -> int:
    """Number of row shards of an array traced here."""
    return 1 if self.mapped else math.prod(self.mesh.shape[axis] for axis in dict(self.rules).get('B', ()))

  def spec(self, shape: Sequence[int], axes: str) -> PartitionSpec:
    """Return the mesh axes of each dimension; one without a letter, or not divided by them, is not sharded."""
    rules = dict(self.rules)
    mesh_axes = [rules.get(letter, ()) for letter in axes.ljust(len(shape))]
    divided = [n % math.prod(self.mesh.shape[a] for a in names) == 0 for n, names in zip(shape, mesh_axes, strict=True)]
    return PartitionSpec(*(names if names and fits else None for names, fits in zip(mesh_axes, divided, strict=True)))


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


def constrain(x: jax.Array, axes: str) -> jax.Array:
  """Shard an activation by the letters of its first axes, such as 'BTD', which name it for rematerialisation too."""
  x, placement = checkpoint_name(x, axes), current()
  if placement is None or placement.mapped or placement.devices == 1:
    return x
  return jax.lax.with_sharding_constraint(x, NamedSharding(placement.mesh, placement.spec(x.shape, axes)))


def jit(function: Callable[..., Any], static: int) -> Callable[..., Any]:
  """Return `jax.jit` of a function whose first `static` arguments are static; its cache distinguishes placements."""

  def traced(placement: Placement | None, *args: Any, **named: Any) -> Any:
    del placement  # the current one, which is part of the cache key
    return function(*args, **named)

  traced.__name__ = traced.__qualname__ = function.__name__
  compiled = jax.jit(traced, static_argnums=tuple(range(static + 1)))
  return functools.wraps(function)(lambda *args, **named: compiled(current(), *args, **named))
