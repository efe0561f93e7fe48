"""Packing of text rows into fewer sequences, to reduce padding.

`packed_PT` of a batch has the index into the rows of each token of P sequences, and -1 for padding
(lmx/data/batching/bucketed.py). A token keeps its position in its row and attends only to its row, so a model that
supports packed documents computes the same features for every token.

Axes: (B, T) are the rows and (P, T) the sequences, which may be of other lengths.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lmx.types import Array, Batch, Features


def pack(batch: Batch) -> Batch:
  """Return the model's batch: the keys over time of `batch` as (P, T, ...), with documents_BT and position_BT."""
  place_PT = batch['packed_PT']
  B, T = batch['tokens_BT'].shape
  live_PT, at_PT = place_PT >= 0, jnp.maximum(place_PT, 0)

  def take(x: Array) -> Array:
    x = x.reshape((B * T,) + x.shape[2:])[at_PT]
    return jnp.where(live_PT.reshape(live_PT.shape + (1,) * (x.ndim - 2)), x, jnp.zeros((), x.dtype))

  rows = {name: take(x) for name, x in batch.items() if name.rpartition('_')[2].startswith('BT')}
  return rows | {'documents_BT': at_PT // T, 'position_BT': at_PT % T}


def unpack(model: Any, model_params: Any, features: Features, batch: Batch) -> Features:
  """Unpack features to the rows of `batch`.

  Args:
    model: exports `pool(params, first_BD)`, which computes `Features.pooled_BD`.
    model_params: its parameters.
    features: of `pack(batch)`. Only last_BTD, pooled_BD, layers and raw_BTD are returned.
    batch: of the rows.
  """
  place_PT = batch['packed_PT']
  B, T = batch['tokens_BT'].shape
  to = jnp.where(place_PT < 0, B * T, place_PT).ravel()
  from_BT = jnp.zeros(B * T, jnp.int32).at[to].set(jnp.arange(to.size), mode='drop').reshape(B, T)
  rows = lambda x: x.reshape((to.size,) + x.shape[2:])[from_BT]
  last_BTD = rows(features.last_BTD)
  return Features(
    last_BTD,
    pooled_BD=model.pool(model_params, last_BTD[:, 0]),
    layers=None if features.layers is None else tuple(map(rows, features.layers)),
  )
