"""Bidirectional recurrent layers over each row's valid positions, which come first."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp

from lmx.layers import recurrent
from lmx.layers.reversal import reversal
from lmx.ops import rnn
from lmx.types import Array, Params

DIRECTIONS = ('forward', 'backward')


def init(keys: Sequence[Array], width: int, cells: int, cell: str = 'lstm') -> Params:
  """Initialise a layer: {'forward', 'backward'}, each uniform in +-1/sqrt(cells) as in PyTorch; two keys.

  Args:
    keys: PRNG keys of the two directions.
    width: of the input.
    cells: of one direction.
    cell: name in `lmx.ops.rnn.CELLS`; a GRU has PyTorch's second bias too.
  """
  bias = 'single' if rnn.get(cell).adds else 'double'
  return {
    direction: recurrent.init(cell, key, width, cells, scale=cells**-0.5, bias=bias)
    for direction, key in zip(DIRECTIONS, keys, strict=True)
  }


def layer(
  params: Params,
  x_BTD: Array,
  valid_BT: Array,
  *,
  cell: str = 'lstm',
  dtype: str = 'float32',
  backend: str = 'auto',
) -> Array:
  """Run a layer from a zero carry, (B, T, 2D): the forward outputs, then the backward ones."""
  index_BT1 = reversal(valid_BT)[..., None]
  reverse = lambda x_BTD: jnp.take_along_axis(x_BTD, index_BT1, axis=1)
  outputs = []
  for direction, input_BTD in (('forward', x_BTD), ('backward', reverse(x_BTD))):
    carry = recurrent.init_carry(cell, len(x_BTD), params[direction]['recurrent'].shape[0])
    y_TBD, _ = recurrent.layer(
      cell, params[direction], input_BTD.swapaxes(0, 1), carry, valid_BT.T, dtype=dtype, backend=backend
    )
    outputs.append(y_TBD.swapaxes(0, 1))
  return jnp.concatenate([outputs[0], reverse(outputs[1])], -1)
