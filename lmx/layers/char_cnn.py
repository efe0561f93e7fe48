"""Word vectors from characters: convolutions, max-pooling over time, highway layers and a projection.

Kim et al. 2016 (arXiv 1508.06615), sections 2.2 and 2.3; Jozefowicz et al. 2016 (arXiv 1602.02410); sizes and
initialisation of ELMo's release (Peters et al. 2018, arXiv 1802.05365). Max-pooling precedes the activation, as
released; for a non-decreasing activation the result is equal. The first highway gate multiplies the transformed
input, although the release names its parameters "carry".

Each word has C character ids: 0 is padding, and UTF-8 byte b has id b + 1. The table of 261 rows (256 bytes
and five special tokens) is indexed with id - 1, and id 0 gives zeros. The release's `n_characters` is therefore 261 in
training and 262 in prediction.

Axes: C characters, E width of a character, F filters of all widths, D width of the result.
"""

from __future__ import annotations

from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jax import lax

from lmx import ranges
from lmx.ops.dropout import dropout
from lmx.types import Array, Params

CHARACTERS = 261
WORD_LENGTH = 50  # released options: max_characters_per_token, the begin and end tokens of a word included
# Ids of special tokens; byte values end at 256.
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = 257, 258, 259, 260, 261
Size = Annotated[int, ranges.Limits(1)]
Filters = tuple[Annotated[tuple[Size, Size], ranges.Record(('width in characters', 'number of filters'))], ...]


def init(key: Array, filters: Filters, width: int, highways: int, projection: int) -> Params:
  """Initialise the parameters as the released code does.

  Args:
    filters: (width, number) of each convolution.
    width: E.
    highways: number of highway layers.
    projection: D; 0 for no projection, then D is F.

  Returns:
    {'characters': (261, E), 'convolution_i': {'kernel' (w, E, n), 'bias'}, 'highway_i': {'gate_kernel', 'gate_bias',
    'kernel', 'bias'}, 'projection' (if any): {'kernel' (F, D), 'bias'}}.
  """
  table_key, projection_key, *keys = jax.random.split(key, 2 + len(filters) + 2 * highways)
  params: dict[str, Any] = {'characters': jax.random.uniform(table_key, (CHARACTERS, width), jnp.float32, -1.0, 1.0)}
  for n, (size, count) in enumerate(filters):
    kernel = jax.random.uniform(keys[n], (size, width, count), jnp.float32, -0.05, 0.05)  # Kim et al., section 3.1
    params[f'convolution_{n}'] = {'kernel': kernel, 'bias': jnp.zeros(count, jnp.float32)}
  F = sum(count for _, count in filters)
  for n in range(highways):
    gate_key, kernel_key = keys[len(filters) + 2 * n :][:2]
    params[f'highway_{n}'] = init_highway(gate_key, kernel_key, F)
  if projection:
    params['projection'] = {
      'kernel': _normal(projection_key, F, projection),
      'bias': jnp.zeros(projection, jnp.float32),
    }
  return params


def init_highway(gate_key: Array, kernel_key: Array, width: int, gate_bias: float = -2.0) -> Params:
  """Initialise a highway layer: {'gate_kernel' (width, width), 'gate_bias', 'kernel', 'bias'}."""
  return {
    'gate_kernel': _normal(gate_key, width, width),
    'gate_bias': jnp.full(width, gate_bias, jnp.float32),
    'kernel': _normal(kernel_key, width, width),
    'bias': jnp.zeros(width, jnp.float32),
  }


def _normal(key: Array, width_in: int, width: int) -> Array:
  return width_in**-0.5 * jax.random.normal(key, (width_in, width), jnp.float32)


def _named(params: Params, prefix: str) -> list[Params]:
  names = [name for name in params if name.startswith(prefix)]
  return [params[name] for name in sorted(names, key=lambda name: int(name.removeprefix(prefix)))]


def highway(params: Params, x_ND: Array) -> Array:
  """Return a highway layer's output, g (.) relu(W x + b) + (1 - g) (.) x with the gate g (Srivastava et al. 2015)."""
  part = {name: value.astype(x_ND.dtype) for name, value in params.items()}
  gate_ND = jax.nn.sigmoid(x_ND @ part['gate_kernel'] + part['gate_bias'])
  new_ND = jax.nn.relu(x_ND @ part['kernel'] + part['bias'])
  return gate_ND * new_ND + (1 - gate_ND) * x_ND


def apply(
  params: Params, characters_BTC: Array, dtype: str = 'float32', rate: float = 0.0, key: Array | None = None
) -> Array:
  """Return the vectors of words, (B, T, D) in `dtype`.

  Args:
    params: from `init`.
    characters_BTC: int32 ids, 0 to 261; C is at least the widest filter.
    rate: dropout rate of the characters' embeddings.
    key: PRNG key of that dropout; None at evaluation.
  """
  B, T, C = characters_BTC.shape
  ids_NC = characters_BTC.reshape(B * T, C)
  table = params['characters'].astype(dtype)
  x_NCE = jnp.take(table, jnp.maximum(ids_NC - 1, 0), axis=0, mode='clip') * (ids_NC > 0).astype(dtype)[..., None]
  x_NCE = dropout(x_NCE, rate, key)
  pooled = []
  for part in _named(params, 'convolution_'):
    y_NCF = lax.conv_general_dilated(
      x_NCE, part['kernel'].astype(dtype), (1,), 'VALID', dimension_numbers=('NWC', 'WIO', 'NWC')
    )
    pooled.append(jnp.max(y_NCF, axis=1) + part['bias'].astype(dtype))
  x_NF = jax.nn.relu(jnp.concatenate(pooled, -1))
  for part in _named(params, 'highway_'):
    x_NF = highway(part, x_NF)
  if last := params.get('projection'):
    x_NF = x_NF @ last['kernel'].astype(dtype) + last['bias'].astype(dtype)
  return x_NF.reshape(B, T, -1)
