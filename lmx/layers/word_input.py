"""Words as input of a task model: embeddings, vectors from their characters, and ELMo vectors.

Peters et al. 2018 (arXiv 1802.05365), sections 3.2 and 3.3. ELMo vectors are concatenated to the input of the task's
first layer, to the output of a later one, or both. Each has its own mix of the biLM's layers, with learned weights and
gamma, and dropout. The loss has the term lambda * ||w||^2 for the weights of each mix. `mix` 'last' reads only the
last layer, times gamma (table 2, `Last Only`).

The biLM is params['bilm'], without its output layer, so it can be initialised from a run of lmx/models/elmo.py or a
released model (train.init_from with train.init_parts). `frozen` stops the gradient into it, which also saves its
backward pass. Deviation: the biLM's state is reset at each sentence, while the released code carries it across batches.

Axes: C characters of a word, P projection of the biLM, E width of a word embedding, W width of a word with its
characters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lmx import layout
from lmx.errors import InputError, check_choice, check_least, check_range
from lmx.layers import bilm, char_cnn, embedding, scalar_mix
from lmx.ops.dropout import dropout, split
from lmx.types import Array, Batch, Features, Params

POSITIONS = ('none', 'input', 'output', 'both')


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches of the input; the Config of a task model extends it.

  Attributes:
    V: number of words with an embedding.
    E: width of a word embedding.
    char_filters: (width, number) of each convolution over the characters of a word; () disables them.
    char_characters: width of their character embedding.
    char_projection: width of their projection; 0 uses the filters' output without a projection.
    elmo: where ELMo vectors are concatenated: 'none', 'input', 'output' or 'both'.
    dropout_elmo: dropout rate of the ELMo vectors.
    mix: layers of the biLM that are mixed, 'all' or 'last', which has no weights.
    mix_normalise: normalise each layer before the mix.
    mix_l2: lambda of section 3.3, on the weights before their softmax.
    frozen: stop the gradient into the biLM, and disable its dropout.
    bilm_filters: filters of the biLM, as in models/elmo.py; likewise the fields below.
    bilm_characters: width of a character embedding.
    bilm_highways: highway layers.
    bilm_cells: cells of an LSTM layer.
    bilm_projection: width P of its output.
    bilm_layers: number of LSTM layers.
    bilm_cell_clip: bound of the cell state, 0 for none.
    bilm_proj_clip: bound of the output, 0 for none.
    dropout_bilm: dropout rate inside the biLM if it is not frozen.
    dtype: compute type.
    backend: implementation of the loops over time, 'scan', 'custom' or 'auto'.
  """

  V: int = 10_000
  E: int = 300
  char_filters: char_cnn.Filters = ()
  char_characters: int = 16
  char_projection: int = 0
  elmo: str = 'none'
  dropout_elmo: float = 0.5
  mix: str = 'all'
  mix_normalise: bool = False
  mix_l2: float = 0.0
  frozen: bool = True
  bilm_filters: char_cnn.Filters = bilm.SIZES['original']['filters']
  bilm_characters: int = 16
  bilm_highways: int = 2
  bilm_cells: int = 4096
  bilm_projection: int = 512
  bilm_layers: int = 2
  bilm_cell_clip: float = 3.0
  bilm_proj_clip: float = 3.0
  dropout_bilm: float = 0.0
  dtype: str = 'float32'
  backend: str = 'auto'

  def __post_init__(self) -> None:
    check_choice('model.elmo', self.elmo, POSITIONS)
    check_choice('model.mix', self.mix, ('all', 'last'))
    if self.mix == 'last' and self.mix_l2:
      raise InputError(f'model.mix_l2: got {self.mix_l2} with model.mix "last", which has no weights; set it to 0')
    check_least('model', self, E=1, bilm_layers=1, char_characters=1, char_projection=0, mix_l2=0)
    for name in self.__dataclass_fields__:
      if name.startswith('dropout'):
        check_range(f'model.{name}', getattr(self, name), 0, 1)
    bilm.check(self, 'bilm_')


def with_elmo(size: str, place: str = 'input') -> dict[str, Any]:
  """Return the fields of a Config with ELMo vectors from a biLM of a size of `bilm.SIZES`."""
  return {'elmo': place, **{f'bilm_{field}': value for field, value in bilm.SIZES[size].items()}}


def elmo_variants(place: str = 'input', **fields: Any) -> dict[str, dict[str, Any]]:
  """Return a variant for each released biLM and 'mini', with ELMo vectors at `place` and further fields."""
  sizes = ('original', 'medium', 'small', 'mini')
  return {f'elmo_{size}': {**with_elmo(size, place), **fields} for size in sizes}


TINY: dict[str, Any] = {  # sizes of the input for tests
  **with_elmo('tiny', 'both'),
  'V': 61,
  'E': 6,
  'char_filters': ((2, 5),),
  'char_characters': 4,
  'char_projection': 4,
  'mix_l2': 0.01,
  'frozen': False,
}


def bilm_sizes(cfg: Config) -> bilm.Sizes:
  """Return the biLM's part of the Config."""
  return bilm.Sizes(
    filters=cfg.bilm_filters,
    characters=cfg.bilm_characters,
    highways=cfg.bilm_highways,
    cells=cfg.bilm_cells,
    projection=cfg.bilm_projection,
    layers=cfg.bilm_layers,
    cell_clip=cfg.bilm_cell_clip,
    proj_clip=cfg.bilm_proj_clip,
    dropout=cfg.dropout_bilm,
    dtype=cfg.dtype,
    backend=cfg.backend,
  )


def mixes(cfg: Config) -> tuple[str, ...]:
  """Return where ELMo vectors are concatenated: 'input', 'output' or both."""
  if cfg.elmo == 'none':
    return ()
  return ('input', 'output') if cfg.elmo == 'both' else (cfg.elmo,)


def word_width(cfg: Config) -> int:
  """Return W, the width of a word's embedding and of the vector from its characters together."""
  if not cfg.char_filters:
    return cfg.E
  return cfg.E + (cfg.char_projection or sum(count for _, count in cfg.char_filters))


def elmo_width(cfg: Config, place: str) -> int:
  """Return the width of the ELMo vectors at 'input' or 'output': 2P, or 0 without them."""
  return 2 * cfg.bilm_projection * (place in mixes(cfg))


def init(cfg: Config, table_key: Array, spelling_key: Array, bilm_key: Array) -> dict[str, Any]:
  """Initialise {'embed': {'table', 'spelling'}, 'bilm', 'mix_input', 'mix_output'}, those that the Config has."""
  params: dict[str, Any] = {'embed': {'table': embedding.table(table_key, cfg.V, cfg.E, cfg.E**-0.5)}}
  if cfg.char_filters:
    params['embed']['spelling'] = char_cnn.init(
      spelling_key, cfg.char_filters, cfg.char_characters, 0, cfg.char_projection
    )
  if mixes(cfg):
    params['bilm'] = bilm.init(bilm_sizes(cfg), bilm_key)
  for place in mixes(cfg):
    params[f'mix_{place}'] = scalar_mix.init(cfg.bilm_layers + 1 if cfg.mix == 'all' else 0)
  return params


def look_up(cfg: Config, params: Params, batch: Batch) -> dict[str, Array]:
  """Return the embeddings of the words of each text by the letter of its positions, {'T': (B, T, E)} and 'S'.

  One lookup for all texts, so that the table has one gradient, which is reduced over devices once.
  """
  ids = {axis: batch[f'tokens_B{axis}'] for axis in 'TS' if f'tokens_B{axis}' in batch}
  x_BXE = embedding.lookup(params['embed']['table'], jnp.concatenate([*ids.values()], axis=1), cfg.dtype)
  texts = jax.lax.split(x_BXE, [ids_BT.shape[1] for ids_BT in ids.values()], axis=1)
  return dict(zip(ids, texts, strict=True))


def embed(
  cfg: Config,
  params: Params,
  batch: Batch,
  axis: str = 'T',
  rate: float = 0.0,
  key: Array | None = None,
  *,
  words: Mapping[str, Array] | None = None,
) -> Array:
  """Return the words of a batch with the vectors from their characters, (B, T, W).

  Args:
    params: from `init`.
    batch: tokens_BT, and characters_BTC if there are filters; tokens_BS and characters_BSC with axis 'S'.
    axis: letter of the positions.
    rate: dropout rate of the characters' embeddings.
    key: PRNG key of that dropout, None at evaluation.
    words: from `look_up`, for a model that embeds several texts.
  """
  x_BTE = (words or look_up(cfg, params, batch))[axis]
  if not cfg.char_filters:
    return x_BTE
  spelling = char_cnn.apply(params['embed']['spelling'], batch[f'characters_B{axis}C'], cfg.dtype, rate, key)
  return jnp.concatenate([x_BTE, spelling], -1)


def elmo_vectors(
  cfg: Config,
  params: Params,
  batch: Batch,
  valid_BT: Array,
  bilm_key: Array | None,
  elmo_key: Array | None,
  axis: str = 'T',
) -> dict[str, Array]:
  """Return the ELMo vectors of a batch after dropout: {place: (B, T, 2P)}, {} without ELMo.

  Args:
    params: from `init`.
    batch: characters_BTC, or characters_BSC with axis 'S'.
    valid_BT: bool, words come first.
    bilm_key: PRNG key of the biLM's dropout, None at evaluation.
    elmo_key: PRNG key of the vectors' dropout, None at evaluation.
    axis: letter of the positions.
  """
  if not mixes(cfg):
    return {}
  sizes = bilm_sizes(cfg)
  own, begin = params['bilm'], bilm.init_state(sizes, valid_BT.shape[0])
  if cfg.frozen:
    own, bilm_key = jax.lax.stop_gradient(own), None
  layers, _ = bilm.run_sentences(sizes, own, batch[f'characters_B{axis}C'], valid_BT, begin, bilm_key)
  vectors = {}
  for place, place_key in zip(mixes(cfg), split(elmo_key, len(mixes(cfg))), strict=True):
    x_BTD = scalar_mix.mix(params[f'mix_{place}'], layers, valid_BT, normalise=cfg.mix_normalise)
    vectors[place] = dropout(x_BTD.astype(cfg.dtype), cfg.dropout_elmo, place_key)
  return vectors


def valid(batch: Batch, axis: str = 'T') -> Array:
  """Return the mask of the words of a text, valid_BT or with axis 'S' valid_BS; all are valid without it."""
  return batch.get(f'valid_B{axis}', jnp.ones(batch[f'tokens_B{axis}'].shape, bool))


def check_texts(texts: int, batch: Batch) -> None:
  """Raise InputError unless the rows of a batch have `texts` texts, 1 or 2."""
  given = 2 if 'tokens_BS' in batch else 1
  if texts != given:
    fix = 'name two in data.texts, with data.batching.form=separate, or set' if texts == 2 else 'set'
    raise InputError(
      f'model.texts: got {texts} with rows of {given} text(s); expected the same; {fix} model.texts={given}'
    )


def read_shapes(rows: dict[str, Any], texts: int) -> dict[str, Any]:
  """Return the shapes of a batch of one text or two equally long ones, with their characters.

  Args:
    rows: {key: ShapeDtypeStruct} with tokens_BT.
    texts: 1 or 2.
  """
  B, T = rows['tokens_BT'].shape
  leaf = lambda dtype, *sizes: jax.ShapeDtypeStruct((B, T, *sizes), dtype)
  characters = leaf(jnp.int32, char_cnn.WORD_LENGTH)
  second = {'tokens_BS': leaf(jnp.int32), 'valid_BS': leaf(jnp.bool_), 'characters_BSC': characters}
  return {'characters_BTC': characters, **rows, **(second if texts == 2 else {})}


def concatenate(x_BTD: Array, vectors: dict[str, Array], place: str) -> Array:
  """Return `x_BTD` with the ELMo vectors at 'input' or 'output', if there are any."""
  return jnp.concatenate([x_BTD, vectors[place]], -1) if place in vectors else x_BTD


def penalty_weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """Return the weight of `penalties`: the number of rows, so that sums over microbatches and devices are correct."""
  used = bool(mixes(cfg)) and cfg.mix_l2 > 0
  return {'mix_l2': jnp.float32(batch['tokens_BT'].shape[0])} if used else {}


def penalties(cfg: Config, params: Params, features: Features, batch: Batch) -> dict[str, Array]:
  """Return {'mix_l2'}: lambda times the squared norm of the mixes' weights (section 3.3), times the number of rows."""
  del features
  total = sum(jnp.sum(params[f'mix_{place}']['weights'] ** 2) for place in mixes(cfg))
  return {name: cfg.mix_l2 * total * rows for name, rows in penalty_weights(cfg, batch).items()}


def depth(cfg: Any, path: tuple[str, ...]) -> int:
  """Return a parameter's layer number: embeddings, biLM and input mix 0, layer i is i + 1, all else N + 1."""
  return 0 if path[0] in ('bilm', 'mix_input') else layout.depth(path, cfg.N)
