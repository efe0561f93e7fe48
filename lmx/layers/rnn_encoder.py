"""Recurrent encoder of a source text: forward, backward or bidirectional layers.

A bidirectional layer concatenates both outputs, the forward one first, each at its own position. Padding
is on the right, also for the backward direction, which starts at the last word of each row.

Axes: S source positions, which lead inside; E embedding; H width of an annotation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from lmx.layers import rnn_cell
from lmx.layers.reversal import reversal
from lmx.layout import scope
from lmx.ops.dropout import dropout
from lmx.ops.rnn import Carry
from lmx.types import Array, Params

Ends = Mapping[str, Carry]  # by direction


@jax.custom_vjp
def reorder(x_SBE: Array, index_SB: Array) -> Array:
  """Reorder each row by its index, a self-inverse permutation (`reversal`), which also reorders the gradient."""
  return jnp.take_along_axis(x_SBE, index_SB[..., None], axis=0)


reorder.defvjp(lambda x, index: (reorder(x, index), index), lambda index, g: (reorder(g, index), None))


def encode(
  cell: str,
  layers: Sequence[Params],
  x_BSE: Array,
  valid_BS: Array,
  keys: Sequence[Array | None],
  *,
  width: int,
  reverse: bool = False,
  rate: float = 0.0,
  dtype: str = 'float32',
  backend: str = 'auto',
) -> tuple[Array, list[Ends]]:
  """Encode each row.

  Args:
    cell: one of rnn_cell.CELLS.
    layers: parameters of each layer, from `layout.layers`: {'forward': ...} or {'forward': ..., 'backward': ...}.
    x_BSE: embeddings.
    valid_BS: bool; padding is on the right.
    keys: PRNG keys of the dropout of each layer's output.
    width: width of the state.
    reverse: read in reverse order; outputs are in the order of the text.
    rate: dropout rate.
    dtype: type of the products.
    backend: as for `recurrent.layer`.

  Returns:
    (annotations (B, S, H), last carries of each layer by direction).
  """
  valid_SB, index_SB = valid_BS.T, reversal(valid_BS).T
  zeros = rnn_cell.init_carry(cell, len(valid_BS), width)
  x_SBH = x_BSE.swapaxes(0, 1)
  x_SBH = reorder(x_SBH, index_SB) if reverse else x_SBH
  ends: list[Ends] = []
  for i, (layer, key) in enumerate(zip(layers, keys, strict=True)):
    outputs, end = [], {}
    for direction, params in sorted(layer.items(), reverse=True):  # forward first
      back = direction == 'backward'
      inputs_SBH = reorder(x_SBH, index_SB) if back else x_SBH
      run = scope(layers, i)(rnn_cell.layer)
      y_SBD, end[direction] = run(cell, params, inputs_SBH, zeros, valid_SB, dtype=dtype, backend=backend)
      outputs.append(reorder(y_SBD, index_SB) if back else y_SBD)
    x_SBH = dropout(jnp.concatenate(outputs, axis=-1), rate, key)
    ends.append(end)
  return (reorder(x_SBH, index_SB) if reverse else x_SBH).swapaxes(0, 1), ends
