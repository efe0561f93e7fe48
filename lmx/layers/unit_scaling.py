"""TensorFlow 0.11's default initialisation: uniform in +-sqrt(3 / fan-in), `uniform_unit_scaling_initializer`.

The fan-in is the product of all axes but the last. An LSTM has one matrix for its input and its state, whose fan-in is
the sum of both widths, zero biases and 1 in the forget gate (`BasicLSTMCell`). Other biases are zero, except those of a
convolution, which are variables without an initialiser and a fan-in of 1, as in allenai/bi-att-flow,
my/tensorflow/nn.py, line 160.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lmx.types import Array, Params


def redraw(params: Params, key: Array) -> dict[str, Any]:
  """Return newly initialised parameters in the tree of `params`.

  A dict with 'recurrent' is an LSTM of lmx/layers/recurrent.py, and vectors of one dict other than biases are rows of
  one matrix of width 1.
  """
  rows = sum(len(x) for name, x in params.items() if name in ('input', 'recurrent') or _is_vector(name, x))
  found: dict[str, Any] = {}
  for i, (name, x) in enumerate(sorted(params.items())):
    own_key = jax.random.fold_in(key, i)
    if isinstance(x, Mapping):
      found[name] = redraw(x, own_key)
    elif name.endswith('bias') and getattr(params.get('kernel'), 'ndim', 0) < 3:
      forget = jnp.arange(len(x)) // (len(x) // 4 or 1) == 1
      found[name] = jnp.where(forget & ('recurrent' in params), 1.0, jnp.zeros_like(x))
    else:
      limit = math.sqrt(3 / (rows or math.prod(x.shape[:-1])))
      found[name] = jax.random.uniform(own_key, x.shape, x.dtype, -limit, limit)
  return found


def _is_vector(name: str, x: Any) -> bool:
  return getattr(x, 'ndim', 0) == 1 and not name.endswith('bias')
