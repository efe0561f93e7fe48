"""ELMo's bidirectional language model without its output layer (Peters et al. 2018, arXiv 1802.05365, 3.1 and 3.3).

Word vectors from characters, then N projected LSTM layers per direction, with a residual connection around each layer
but the first. The two directions share only the word vectors. Dropout is on the input of each layer; the residual
adds the input after dropout, as in the released code, where the dropout wrapper is the outer one.

There are two entry points. `run_streams` reads two texts, each in its own reading order, for training. `run_sentences`
reads one text, padded on the right. It adds begin and end tokens to each sentence, both directions read the same words,
and the outputs are aligned, without those tokens.

Axes: C characters of a word, P projection (width of one direction).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lmx import layout
from lmx.errors import InputError, check_choice, check_least
from lmx.layers import char_cnn, projected_lstm
from lmx.layers.reversal import reversal
from lmx.ops.dropout import dropout, split
from lmx.types import Array, Params, State

DIRECTIONS = ('forward', 'backward')


@dataclasses.dataclass(frozen=True)
class Sizes:
  """Sizes and switches; models that contain a biLM have the same fields in their Config."""

  filters: char_cnn.Filters
  characters: int
  highways: int
  cells: int
  projection: int
  layers: int
  cell_clip: float = 3.0
  proj_clip: float = 3.0
  dropout: float = 0.1
  dtype: str = 'float32'
  backend: str = 'auto'
  remat: bool = False


def check(cfg: Any, prefix: str = '') -> None:
  """Raise InputError if a size in the Config of a model with a biLM is out of range; its fields start with `prefix`."""
  check_choice('model.backend', cfg.backend, ('auto', 'scan', 'custom'))
  least = dict(characters=1, cells=1, projection=1, highways=0, cell_clip=0, proj_clip=0)
  check_least('model', cfg, **{f'{prefix}{name}': low for name, low in least.items()})
  filters = getattr(cfg, f'{prefix}filters')
  if not filters or any(len(pair) != 2 or min(pair) < 1 for pair in filters):
    raise InputError(f'model.{prefix}filters: got {filters}; expected (width in characters, number) pairs')


_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
# Released sizes by file name. 'mini' (for machines without accelerators) and 'tiny' are lmx's.
SIZES: dict[str, dict[str, Any]] = {
  'original': dict(filters=_FILTERS, characters=16, highways=2, cells=4096, projection=512, layers=2),
  'medium': dict(filters=_FILTERS, characters=16, highways=1, cells=2048, projection=256, layers=2),
  'small': dict(filters=_FILTERS, characters=16, highways=1, cells=1024, projection=128, layers=2),
  'mini': dict(
    filters=((1, 32), (2, 32), (3, 64), (4, 128), (5, 128)),
    characters=16,
    highways=1,
    cells=512,
    projection=128,
    layers=2,
  ),
  'tiny': dict(filters=((1, 4), (2, 6)), characters=5, highways=1, cells=9, projection=7, layers=2),
}


def init(sizes: Sizes, key: Array) -> Params:
  """Initialise {'embed': see `char_cnn.init`, 'layer_00': {'forward', 'backward'}, ...}."""
  embed_key, *keys = jax.random.split(key, 1 + 2 * sizes.layers)
  params = {'embed': char_cnn.init(embed_key, sizes.filters, sizes.characters, sizes.highways, sizes.projection)}
  for i in range(sizes.layers):
    params[layout.layer_name(i)] = {
      direction: projected_lstm.init(k, sizes.projection, sizes.cells, sizes.projection)
      for direction, k in zip(DIRECTIONS, keys[2 * i : 2 * i + 2], strict=True)
    }
  return params


def init_state(sizes: Sizes, batch_size: int) -> State:
  """Return zero carries: a tuple over layers of {'forward': (h, c), 'backward': (h, c)}."""
  carry = lambda: projected_lstm.init_carry(batch_size, sizes.cells, sizes.projection)
  return tuple({direction: carry() for direction in DIRECTIONS} for _ in range(sizes.layers))


def _run(
  sizes: Sizes, params: Params, direction: str, x_BTP: Array, valid_BT: Array | None, state: State, key: Array | None
) -> tuple[list[Array], list[projected_lstm.Carry]]:
  """Run one direction; return ([x, layer 1, .. layer N], each (B, T, P), [each layer's carry])."""
  x_TBP = x_BTP.swapaxes(0, 1)
  valid_TB = None if valid_BT is None else valid_BT.T

  def block(
    params: Params, x_TBP: Array, carry: projected_lstm.Carry, key: Array | None, residual: bool
  ) -> tuple[Array, projected_lstm.Carry]:
    x_TBP = dropout(x_TBP, sizes.dropout, key)
    y_TBP, carry = projected_lstm.layer(
      params,
      x_TBP,
      carry,
      valid_TB,
      cell_clip=sizes.cell_clip,
      proj_clip=sizes.proj_clip,
      dtype=sizes.dtype,
      backend=sizes.backend,
    )
    return x_TBP + y_TBP if residual else y_TBP, carry

  if sizes.remat:
    block = jax.checkpoint(block, static_argnums=(4,))
  outputs, carries = [x_BTP], []
  for i, k in enumerate(split(key, sizes.layers)):
    layer = jax.named_scope(layout.layer_name(i))(block)
    x_TBP, carry = layer(params[layout.layer_name(i)][direction], x_TBP, state[i][direction], k, i > 0)
    outputs.append(x_TBP.swapaxes(0, 1))
    carries.append(carry)
  return outputs, carries


def _run_both(
  sizes: Sizes, params: Params, inputs: tuple[Array, Array], valid_BT: Array | None, state: State, key: Array | None
) -> tuple[dict[str, list[Array]], State]:
  """Run both directions, each over its own input; return ({direction: outputs}, state)."""
  runs = {
    direction: _run(sizes, params, direction, x_BTP, valid_BT, state, k)
    for direction, x_BTP, k in zip(DIRECTIONS, inputs, split(key, 2), strict=True)
  }
  outputs = {direction: layers for direction, (layers, _) in runs.items()}
  carries = {direction: carries for direction, (_, carries) in runs.items()}
  return outputs, tuple({direction: carries[direction][i] for direction in DIRECTIONS} for i in range(sizes.layers))


def run_streams(
  sizes: Sizes, params: Params, forward_BTC: Array, backward_BTC: Array, state: State, key: Array | None = None
) -> tuple[list[Array], State]:
  """Run over two texts, the second for the backward direction and in its reading order.

  Returns:
    ([words, layer 1, .. layer N], each (B, T, 2P): the forward half at position t belongs to forward_BTC[:, t], the
    backward half to backward_BTC[:, t]; state).
  """
  embed = lambda c_BTC: char_cnn.apply(params['embed'], c_BTC, sizes.dtype)
  outputs, state = _run_both(sizes, params, (embed(forward_BTC), embed(backward_BTC)), None, state, key)
  pairs = zip(outputs['forward'], outputs['backward'], strict=True)
  return [jnp.concatenate(pair, -1) for pair in pairs], state


def add_boundaries(characters_BTC: Array, valid_BT: Array) -> tuple[Array, Array]:
  """Add the begin and end tokens to each row's words: (characters (B, T + 2, C), valid (B, T + 2))."""
  B, T, C = characters_BTC.shape
  word = lambda c: jnp.full(C, char_cnn.PAD).at[:3].set(jnp.array([char_cnn.BEGIN_WORD, c, char_cnn.END_WORD]))
  count_B1 = jnp.sum(valid_BT, axis=1, dtype=jnp.int32)[:, None]
  column_S = jnp.arange(T + 2)
  rows = jnp.pad(jnp.where(valid_BT[..., None], characters_BTC, 0), ((0, 0), (1, 1), (0, 0)))
  rows = jnp.where((column_S == 0)[:, None], word(char_cnn.BEGIN_SENTENCE), rows)
  rows = jnp.where((column_S == count_B1 + 1)[..., None], word(char_cnn.END_SENTENCE), rows)
  return rows.astype(jnp.int32), column_S < count_B1 + 2


def reorder(x_BTD: Array, index_BT: Array) -> Array:
  """Reorder each row's positions by `index_BT`."""
  return jnp.take_along_axis(x_BTD, index_BT[..., None], axis=1)


def run_sentences(
  sizes: Sizes,
  params: Params,
  characters_BTC: Array,
  valid_BT: Array | None,
  state: State,
  key: Array | None = None,
) -> tuple[list[Array], State]:
  """Run both directions over rows of one sentence each.

  Args:
    characters_BTC: words without begin and end tokens.
    valid_BT: bool, words come first; None: all.
    state: from `init_state` or the previous sentences.
    key: PRNG key of dropout.

  Returns:
    ([words twice, layer 1, .. layer N], each (B, T, 2P): both halves at position t belong to word t; state).
  """
  valid_BT = jnp.ones(characters_BTC.shape[:2], bool) if valid_BT is None else valid_BT
  rows_BSC, valid_BS = add_boundaries(characters_BTC, valid_BT)
  index_BS = reversal(valid_BS)
  words_BSP = char_cnn.apply(params['embed'], rows_BSC, sizes.dtype)
  outputs, state = _run_both(sizes, params, (words_BSP, reorder(words_BSP, index_BS)), valid_BS, state, key)
  pairs = zip(outputs['forward'], [reorder(y, index_BS) for y in outputs['backward']], strict=True)
  return [jnp.concatenate(pair, -1)[:, 1:-1] for pair in pairs], state
