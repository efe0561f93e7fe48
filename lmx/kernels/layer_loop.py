"""Loop over layers of one structure: traced once, optionally scanned or rematerialised; equal to a Python loop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lmx.types import Array, Params


@functools.partial(jax.jit, static_argnums=0)  # equal modules are traced once
def init(module: Any, key: Array, *inputs: Any, **named: Any) -> Params:
  """Initialise the parameters of a Linen module from example inputs."""
  return module.init(key, *inputs, **named)['params']


@functools.partial(jax.jit, static_argnums=0)
def apply(module: Any, params: Params, *inputs: Any, **named: Any) -> Any:
  """Apply a Linen module."""
  return module.apply({'params': params}, *inputs, **named)


def loop(
  layer: Callable[[Array, Any], tuple[Array, Any]],
  x: Array,
  inputs: Sequence[Any],
  *,
  scan: bool = False,
  remat: bool = False,
) -> tuple[Array, list[Any]]:
  """Compute x, y = layer(x, inputs[i]) for every i.

  Args:
    layer: function of a layer.
    x: input of the first layer.
    inputs: other inputs of each layer, such as its parameters, cache and key.
    scan: compile one layer and scan over stacked inputs; compiles faster, but copies the parameters.
    remat: recompute a layer's activations in the backward pass.

  Returns:
    (the last x, every y).
  """
  if remat:
    layer = jax.checkpoint(layer, prevent_cse=not scan)
  if scan:
    x, ys = jax.lax.scan(layer, x, jax.tree.map(lambda *leaves: jnp.stack(leaves), *inputs))
    return x, [jax.tree.map(lambda leaf, i=i: leaf[i], ys) for i in range(len(inputs))]
  outputs = []
  for each in inputs:
    x, y = layer(x, each)
    outputs.append(y)
  return x, outputs
