"""Fast paths of a stack of layers of one structure: traced once, or compiled once and scanned.

The loop over the layers stands in `stack` of lmx/layers/transformer.py and of lmx/layers/relative_block.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lmx import placement
from lmx.layout import Stacked
from lmx.types import Array, Params


@functools.partial(placement.jit, static=1)  # equal modules are traced once
def init(module: Any, key: Array, *inputs: Any, **named: Any) -> Params:
  """Initialise the parameters of a Linen module from example inputs."""
  return module.init(key, *inputs, **named)['params']


@functools.partial(placement.jit, static=1)
def apply(module: Any, params: Params, *inputs: Any, **named: Any) -> Any:
  """Apply a Linen module."""
  return module.apply({'params': params}, *inputs, **named)


def scan(
  layer: Callable[[Array, Any], tuple[Array, Any]], x: Array, layers: Sequence[Params], inputs: Sequence[Any]
) -> tuple[Array, list[Any]]:
  """Compute x, y = layer(x, (layers[i], *inputs[i])) for every i by one compiled layer, which compiles faster.

  Args:
    layer: function of a layer.
    x: input of the first layer.
    layers: parameters of each layer, of equal shapes; they are copied unless they are stacked.
    inputs: tuple of the other inputs of each layer, such as its cache and key, of equal shapes.

  Returns:
    (the last x, every y).
  """
  stack = lambda trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
  params = layers.tree if isinstance(layers, Stacked) else stack(layers)
  x, ys = jax.lax.scan(layer, x, (params, *stack(inputs)))
  return x, [jax.tree.map(lambda leaf, i=i: leaf[i], ys) for i in range(len(inputs))]
