"""Loop over a stack of layers, which compiles each layer or one for all.

`init` and `apply` trace equal modules once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lmx import placement
from lmx.layout import Stacked, scope
from lmx.ops import rematerialisation
from lmx.types import Array, Params, is_recording_attention


@functools.partial(placement.jit, static=1)
def init(module: Any, key: Array, *inputs: Any, **named: Any) -> Params:
  """Initialise the parameters of a Linen module from example inputs."""
  return module.init(key, *inputs, **named)['params']


def apply(module: Any, params: Params, *inputs: Any, **named: Any) -> Any:
  """Apply a Linen module, in the caller's trace if attention is recorded."""
  run = _apply.__wrapped__ if is_recording_attention() else _apply  # type: ignore[attr-defined]
  return run(module, params, *inputs, **named)


@functools.partial(placement.jit, static=1)
def _apply(module: Any, params: Params, *inputs: Any, **named: Any) -> Any:
  return module.apply({'params': params}, *inputs, **named)


def loop(
  layer: Callable[[Array, Any], tuple[Array, Any]],
  x: Array,
  layers: Sequence[Params],
  inputs: Sequence[Any],
  *,
  scan: bool = False,
  remat: rematerialisation.Policy = 'none',
) -> tuple[Array, list[Any]]:
  """Compute x, y = layer(x, (layers[i], *inputs[i])) for every i.

  Args:
    layer: function of a layer.
    x: input of the first layer.
    layers: parameters of each layer, from `layout.layers`, which also names the layers in a profile.
    inputs: tuple of the other inputs of each layer, such as its cache and key.
    scan: compile one layer, which is faster to compile. Parameters and inputs then have equal shapes; they are copied
      unless they are stacked.
    remat: activations that are kept for the backward pass, see lmx/ops/rematerialisation.py.

  Returns:
    (the last x, every y).
  """
  if remat != 'none':
    layer = rematerialisation.layer(layer, remat, scan)
  if scan:
    stack = lambda trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    params = layers.tree if isinstance(layers, Stacked) else stack(layers)
    x, ys = jax.lax.scan(scope(layers)(layer), x, (params, *stack(inputs)))
    return x, [jax.tree.map(lambda leaf, i=i: leaf[i], ys) for i in range(len(inputs))]
  outputs = []
  for i, (params, more) in enumerate(zip(layers, inputs, strict=True)):
    x, y = scope(layers, i)(layer)(x, (params, *more))
    outputs.append(y)
  return x, outputs
