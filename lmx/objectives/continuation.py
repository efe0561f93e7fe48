"""Shared parts of objectives on the end of a row (data.batching "continuations"): the scores of its tokens.

The model reads whole sequences, and its output layer the positions of the end alone: with 50,257 words and contexts of
a thousand tokens that is what takes the memory.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import InputError
from lmx.objectives import rows
from lmx.types import Array, Batch, Features, Model, Params


def features(
  model: Model, model_cfg: Any, params: Params, batch: Batch, key: Array | None
) -> tuple[Features, Features, Batch, int]:
  """(features at the positions to be predicted, (B * G, P, D), and at all; the batch with a sequence a row; G).

  Raises:
    InputError: the model sees what is to be predicted, or does not read tokens.
  """
  if not model.CAUSAL or not getattr(model, 'WORDS', True) or getattr(model, 'READS', 'tokens') != 'tokens':
    name = model.__name__.rpartition('.')[2]
    raise InputError(
      f'the end of a text is predicted by a model that reads tokens from left to right, which {name} is not'
    )
  flat, G = rows.sequences(batch)
  state = model.init_state(model_cfg, flat['tokens_BT'].shape[0])
  read = {name: flat[name] for name in ('tokens_BT', 'valid_BT')}
  found, _ = model.apply(model_cfg, params, read, state, key)
  at_BPD = jnp.take_along_axis(found.last_BTD, flat['positions_BP'][..., None], axis=1)
  return found._replace(last_BTD=at_BPD), found, flat, G


def model_batch(cfg: Any, batch: Batch) -> Batch:
  """Return the batch with one sequence a row."""
  del cfg
  return rows.sequences(batch)[0]


def nll(model: Model, model_cfg: Any, params: Params, found: Features, flat: Batch) -> Array:
  """Negative log-likelihood of each sequence's end in nats, (B * G,) float32."""
  nll_BP = model.nll(model_cfg, params, found, flat['targets_BP'])
  return jnp.sum(nll_BP * flat['weights_BP'], axis=1, dtype=jnp.float32)


def shapes(batch_size: int, length: int, *, choices: int = 0, room: int = 4) -> dict[str, Any]:
  """A batch of the batching: `choices` sequences a row, 0 for rows that are one."""
  sizes: dict[str, tuple[Any, int]] = {
    'tokens_BT': (jnp.int32, length),
    'valid_BT': (jnp.bool_, length),
    'positions_BP': (jnp.int32, room),
    'targets_BP': (jnp.int32, room),
    'weights_BP': (jnp.float32, room),
  }
  found = {name: jax.ShapeDtypeStruct((batch_size, size), dtype) for name, (dtype, size) in sizes.items()}
  if choices:
    grouped = lambda x: jax.ShapeDtypeStruct((batch_size, choices, *x.shape[1:]), x.dtype)
    found = {name.replace('_B', '_BG', 1): grouped(x) for name, x in found.items()}
    found['labels_B'] = jax.ShapeDtypeStruct((batch_size,), jnp.int32)
  return found | {'row_weights_B': jax.ShapeDtypeStruct((batch_size,), jnp.float32)}
