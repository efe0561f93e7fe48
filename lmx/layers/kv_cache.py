"""The key/value cache of a causal Transformer.

Each row has its own position, so rows may differ in length and be reset separately. Padding is on the right; its keys
are after every real token's position, where the next tokens overwrite them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from lmx.errors import InputError
from lmx.ops.masks import AttentionMask, from_batch
from lmx.types import Array, Batch, State

Cache = tuple[Array, Array]  # keys and values of one layer so far, each (B, S, H, K)


def empty(batch_size: int, length: int, layers: int, heads: int, width: int, dtype: str, values: int = 0) -> State:
  """Return a cache for `length` positions, or () if `length` is 0.

  Returns:
    {'position_B': tokens read so far, 'layers': for each layer (keys, values), each (B, length, H, K)}, where H is
    `heads` and K `width`, or for the values `values` if that is not 0.
  """
  if not length:
    return ()
  layer = lambda: tuple(jnp.zeros((batch_size, length, heads, one), dtype) for one in (width, values or width))
  return {'position_B': jnp.zeros(batch_size, jnp.int32), 'layers': tuple(layer() for _ in range(layers))}


def positions(batch: Batch, state: State) -> tuple[Array, Array]:
  """Return the position of each token in the cache, (B, T), and the number of tokens read after the batch, (B,).

  Rows of `reset_B` restart at 0; padding (`valid_BT`) is not counted.
  """
  T = batch['tokens_BT'].shape[1]
  start_B = state['position_B']
  if 'reset_B' in batch:
    start_B = jnp.where(batch['reset_B'], 0, start_B)
  new = jnp.sum(batch['valid_BT'], axis=1, dtype=jnp.int32) if 'valid_BT' in batch else jnp.int32(T)
  return start_B[:, None] + jnp.arange(T, dtype=jnp.int32)[None], start_B + new


def write(cache: Cache, k_BTHK: Array, v_BTHK: Array, position_BT: Array) -> Cache:
  """Write keys and values at each token's position; positions beyond the end of the cache are dropped."""
  b_B1 = jnp.arange(k_BTHK.shape[0])[:, None]
  put = lambda old, new: old.at[b_B1, position_BT].set(new.astype(old.dtype), mode='drop')
  return put(cache[0], k_BTHK), put(cache[1], v_BTHK)


class Start(NamedTuple):
  """Inputs shared by the layers of a model.

  Attributes:
    mask: attention mask.
    layers: keys and values of each layer, None without a cache.
    position_BT: position of each token, None for 0 .. T-1.
    read_B: number of tokens read after this batch, None without a cache.
  """

  mask: AttentionMask
  layers: Any
  position_BT: Array | None
  read_B: Array | None


def begin(name: str, batch: Batch, state: State) -> Start:
  """Return the layers' inputs for a batch, which may continue a cache, each row at its own position.

  Args:
    name: name of the model, for messages.
    batch: tokens_BT; valid_BT, documents_BT with position_BT (packed documents), reset_B: all optional.
    state: () or a cache from `empty`.

  Raises:
    InputError: packed documents together with a cache.
  """
  if not state:
    return Start(from_batch(batch), None, batch.get('position_BT'), None)
  if 'documents_BT' in batch or 'position_BT' in batch:
    raise InputError(f'{name}: packed documents (documents_BT, position_BT) cannot be read into a key/value cache')
  position_BT, read_B = positions(batch, state)
  return Start(AttentionMask(query_position_BT=position_BT), state['layers'], position_BT, read_B)
