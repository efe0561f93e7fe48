"""Shared by objectives on row endings (data.batching "continuations"): logits of an ending's tokens.

The model runs over whole sequences, and its output layer only over the ending's positions. With 50,257 words and
contexts of a thousand tokens the logits would dominate the memory.
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
  """Return (features at the predicted positions, (B * G, P, D), and at all; the batch with one sequence a row; G).

  Raises:
    InputError: the model attends to the predicted tokens, or does not read tokens.
  """
  if not model.CAUSAL or not model.WORDS or model.READS != 'tokens':
    raise InputError(
      f'model.name: got {model.name}; expected a left-to-right model of tokens, to predict the end of a text'
    )
  flat, G = rows.sequences(batch)
  state = model.init_state(model_cfg, flat['tokens_BT'].shape[0])
  inputs = {name: flat[name] for name in ('tokens_BT', 'valid_BT')}
  features, _ = model.apply(model_cfg, params, inputs, state, key)
  at_BPD = jnp.take_along_axis(features.last_BTD, flat['positions_BP'][..., None], axis=1)
  return features._replace(last_BTD=at_BPD), features, flat, G


def model_batch(cfg: Any, batch: Batch) -> Batch:
  """Return the batch with one sequence a row."""
  del cfg
  return rows.sequences(batch)[0]


def nll(model: Model, model_cfg: Any, params: Params, ending: Features, flat: Batch) -> Array:
  """Return the negative log-likelihood of each sequence's ending in nats, (B * G,) float32."""
  nll_BP = model.nll(model_cfg, params, ending, flat['targets_BP'])
  return jnp.sum(nll_BP * flat['weights_BP'], axis=1, dtype=jnp.float32)


def shapes(batch_size: int, length: int, *, choices: int = 0, room: int = 4) -> dict[str, Any]:
  """Return the shapes of a batch: `choices` sequences a row, 0 for rows of a single sequence."""
  sizes: dict[str, tuple[Any, int]] = {
    'tokens_BT': (jnp.int32, length),
    'valid_BT': (jnp.bool_, length),
    'positions_BP': (jnp.int32, room),
    'targets_BP': (jnp.int32, room),
    'weights_BP': (jnp.float32, room),
  }
  structs = {name: jax.ShapeDtypeStruct((batch_size, size), dtype) for name, (dtype, size) in sizes.items()}
  if choices:
    grouped = lambda x: jax.ShapeDtypeStruct((batch_size, choices, *x.shape[1:]), x.dtype)
    structs = {name.replace('_B', '_BG', 1): grouped(x) for name, x in structs.items()}
    structs['labels_B'] = jax.ShapeDtypeStruct((batch_size,), jnp.int32)
  return structs | {'row_weights_B': jax.ShapeDtypeStruct((batch_size,), jnp.float32)}
