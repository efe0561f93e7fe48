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
  normal = lambda key, shape: F**-0.5 * jax.random.normal(key, shape, jnp.float32)
  for n in range(highways):
    gate_key, kernel_key = keys[len(filters) + 2 * n :][:2]
    params[f'highway_{n}'] = {
      'gate_kernel': normal(gate_key, (F, F)),
      'gate_bias': jnp.full(F, -2.0, jnp.float32),
      'kernel': normal(kernel_key, (F, F)),
      'bias': jnp.zeros(F, jnp.float32),
    }
  if projection:
    params['projection'] = {
      'kernel': normal(projection_key, (F, projection)),
      'bias': jnp.zeros(projection, jnp.float32),
    }
  return params


def _named(params: Params, prefix: str) -> list[Params]:
  names = [name for name in params if name.startswith(prefix)]
  return [params[name] for name in sorted(names, key=lambda name: int(name.removeprefix(prefix)))]


def apply(params: Params, characters_BTC: Array, dtype: str = 'float32') -> Array:
  """Return the vectors of words, (B, T, D) in `dtype`.

  Args:
    params: from `init`.
    characters_BTC: int32 ids, 0 to 261; C is at least the widest filter.
  """
  B, T, C = characters_BTC.shape
  ids_NC = characters_BTC.reshape(B * T, C)
  table = params['characters'].astype(dtype)
  x_NCE = jnp.take(table, jnp.maximum(ids_NC - 1, 0), axis=0, mode='clip') * (ids_NC > 0).astype(dtype)[..., None]
  pooled = []
  for part in _named(params, 'convolution_'):
    y_NCF = lax.conv_general_dilated(
      x_NCE, part['kernel'].astype(dtype), (1,), 'VALID', dimension_numbers=('NWC', 'WIO', 'NWC')
    )
    pooled.append(jnp.max(y_NCF, axis=1) + part['bias'].astype(dtype))
  x_NF = jax.nn.relu(jnp.concatenate(pooled, -1))
  for part in _named(params, 'highway_'):
    gate_NF = jax.nn.sigmoid(x_NF @ part['gate_kernel'].astype(dtype) + part['gate_bias'].astype(dtype))
    new_NF = jax.nn.relu(x_NF @ part['kernel'].astype(dtype) + part['bias'].astype(dtype))
    x_NF = gate_NF * new_NF + (1 - gate_NF) * x_NF
  if last := params.get('projection'):
    x_NF = x_NF @ last['kernel'].astype(dtype) + last['bias'].astype(dtype)
  return x_NF.reshape(B, T, -1)
