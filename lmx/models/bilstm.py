"""Bidirectional LSTM for tasks, with or without ELMo (Peters et al. 2018, arXiv 1802.05365, sections 3.2 and 3.3).

Word embeddings, optionally word vectors from characters learned with the task, and N bidirectional LSTM layers. ELMo
vectors are concatenated to the input of the first layer, to the output of the last, or both (section 3.3). Each has its
own mix of the biLM's layers, with learned weights and gamma, and dropout. lambda * ||w||^2 on the
weights of each mix is a term of the loss. The sizes are those of the named-entity tagger of appendix A.6 as AllenNLP
released it (training_config/ner_elmo.jsonnet): embeddings of 50, 128 character filters of width 3, two layers of 200
cells per direction. Pooled, it is a classifier. The head belongs to the objective (`tag`, `classify`): there is no
output over words.

The biLM is params['bilm'], without its output layer, so it can be initialised from a run of lmx/models/elmo.py or a
released model (train.init_from with train.init_parts). `frozen` stops the gradient into it, which also saves its
backward pass. Deviations: the biLM's state is reset at each sentence, while the released code carries it across
batches. LSTMs are initialised uniformly in +-1/sqrt(D) as in PyTorch, because the paper gives nothing; the character
CNN as in ELMo. AllenNLP's labels are BIOUL and its CRF has no start and end scores; here they are BIO, with both.

Axes: C characters of a word, P projection of the biLM, E width of a word embedding, D cells of one direction.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_choice, check_least, check_range
from lmx.layers import bidirectional, bilm, char_cnn, embedding, scalar_mix
from lmx.layers.dropout import dropout, split
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = False
OBJECTIVE = 'tag'
HEADS: tuple[str, ...] = ()
READS = 'characters'
WORDS = False  # no output over words
ELMO_INPUTS = ('none', 'input', 'output', 'both')


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: number of words with an embedding.
    E: width of a word embedding.
    char_filters: (width, number) of each convolution over the characters of a word; () disables them.
    char_characters: width of their character embedding.
    char_projection: width of their projection; 0 uses the filters' output without a projection.
    D: cells of an LSTM layer in one direction.
    N: number of layers.
    dropout: dropout rate of the input of the first layer and the output of each.
    elmo: where ELMo vectors are concatenated: 'none', 'input', 'output' or 'both'.
    dropout_elmo: dropout rate of the ELMo vectors.
    mix_normalise: normalise each layer before the mix.
    mix_l2: lambda of section 3.3, on the weights before their softmax: 0.1 in the named-entity tagger.
    frozen: stop the gradient into the biLM, and disable its dropout.
    bilm_filters: filters of the biLM, as in models/elmo.py; likewise the fields below.
    bilm_characters: width of a character embedding.
    bilm_highways: highway layers.
    bilm_cells: cells of an LSTM layer.
    bilm_projection: width P of its output.
    bilm_layers: number of LSTM layers.
    bilm_cell_clip: bound of the cell state, 0 for none.
    bilm_proj_clip: bound of a layer's output, 0 for none.
    dropout_bilm: dropout rate inside the biLM if it is not frozen.
    dtype: compute type.
    backend: implementation of the loops over time, 'scan', 'custom' or 'auto'.
  """

  V: int = 10_000
  E: int = 50  # ner_elmo.jsonnet, as the four fields below and the dropout rates
  char_filters: char_cnn.Filters = ((3, 128),)
  char_characters: int = 16
  char_projection: int = 0
  D: int = 200
  N: int = 2
  dropout: float = 0.5
  elmo: str = 'none'
  dropout_elmo: float = 0.5
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
    check_choice('model.elmo', self.elmo, ELMO_INPUTS)
    check_choice('model.backend', self.backend, ('auto', 'scan', 'custom'))
    check_least('model', self, E=1, D=1, N=1, char_characters=1, char_projection=0, mix_l2=0)
    for name in ('dropout', 'dropout_elmo'):
      check_range(f'model.{name}', getattr(self, name), 0, 1)
    sizes(self)


def _with_elmo(name: str) -> dict:
  return {'elmo': 'input', **{f'bilm_{field}': value for field, value in bilm.SIZES[name].items()}}


VARIANTS = {
  'base': {},
  'elmo_original': _with_elmo('original'),
  'elmo_medium': _with_elmo('medium'),
  'elmo_small': _with_elmo('small'),
  'elmo_mini': _with_elmo('mini'),
  'tiny': {
    **_with_elmo('tiny'),
    'V': 61,
    'E': 6,
    'char_filters': ((2, 5),),
    'char_characters': 4,
    'char_projection': 4,
    'D': 8,
    'N': 1,
    'dropout': 0.1,
    'elmo': 'both',
    'mix_l2': 0.01,
    'frozen': False,
  },
}


def sizes(cfg: Config) -> bilm.Sizes:
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


def _mixes(cfg: Config) -> tuple[str, ...]:
  return ('input', 'output') if cfg.elmo == 'both' else () if cfg.elmo == 'none' else (cfg.elmo,)


def init(cfg: Config, key: Array) -> Params:
  """Initialise embed {'table', 'spelling'}, bilm, mix_input, mix_output, layer_00 {'forward', 'backward'}, ..."""
  table_key, spelling_key, bilm_key, *keys = jax.random.split(key, 3 + 2 * cfg.N)
  params: dict = {'embed': {'table': embedding.table(table_key, cfg.V, cfg.E, cfg.E**-0.5)}}
  width = cfg.E
  if cfg.char_filters:
    params['embed']['spelling'] = char_cnn.init(
      spelling_key, cfg.char_filters, cfg.char_characters, 0, cfg.char_projection
    )
    width += cfg.char_projection or sum(count for _, count in cfg.char_filters)
  if _mixes(cfg):
    params['bilm'] = bilm.init(sizes(cfg), bilm_key)
  for side in _mixes(cfg):
    params[f'mix_{side}'] = scalar_mix.init(cfg.bilm_layers + 1)
  width += 2 * cfg.bilm_projection * ('input' in _mixes(cfg))
  for i in range(cfg.N):
    params[f'layer_{i:02d}'] = bidirectional.init(keys[2 * i : 2 * i + 2], width, cfg.D)
    width = 2 * cfg.D
  return params


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """Return (): sentences are independent."""
  del cfg, batch_size, length
  return ()


def _contextual(cfg: Config, params: Params, batch: Batch, valid_BT: Array, key: Array | None) -> list[Array]:
  """Return the biLM's layers, (B, T, 2P) each."""
  begin = bilm.init_state(sizes(cfg), valid_BT.shape[0])
  own = jax.lax.stop_gradient(params['bilm']) if cfg.frozen else params['bilm']
  return bilm.run_sentences(sizes(cfg), own, batch['characters_BTC'], valid_BT, begin, None if cfg.frozen else key)[0]


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the model over rows of words.

  Args:
    batch: tokens_BT, characters_BTC if characters or ELMo are used, valid_BT (optional).
    state: ().
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the input of the first layer and the output of each, before dropout.

  Returns:
    (Features with last_BTD: the last layer's output after dropout, with ELMo vectors concatenated as in `elmo`; ()).
  """
  valid_BT = batch.get('valid_BT', jnp.ones(batch['tokens_BT'].shape, bool))
  bilm_key, elmo_key, input_key, *keys = split(key, 3 + cfg.N)
  parts = [embedding.lookup(params['embed']['table'], batch['tokens_BT'], cfg.dtype)]
  if cfg.char_filters:
    parts.append(char_cnn.apply(params['embed']['spelling'], batch['characters_BTC'], cfg.dtype))
  mixed = {}
  if _mixes(cfg):
    layers = _contextual(cfg, params, batch, valid_BT, bilm_key)
    for side, k in zip(_mixes(cfg), split(elmo_key, len(_mixes(cfg))), strict=True):
      x_BTD = scalar_mix.mix(params[f'mix_{side}'], layers, valid_BT, normalise=cfg.mix_normalise)
      mixed[side] = dropout(x_BTD.astype(cfg.dtype), cfg.dropout_elmo, k)
  x_BTD = dropout(jnp.concatenate(parts, -1), cfg.dropout, input_key)
  if 'input' in mixed:
    x_BTD = jnp.concatenate([x_BTD, mixed['input']], -1)
  hidden = [x_BTD]
  for i, k in enumerate(keys):
    hidden.append(
      bidirectional.layer(params[f'layer_{i:02d}'], x_BTD, valid_BT, cells=cfg.D, dtype=cfg.dtype, backend=cfg.backend)
    )
    x_BTD = dropout(hidden[-1], cfg.dropout, k)
  if 'output' in mixed:
    x_BTD = jnp.concatenate([x_BTD, mixed['output']], -1)
  return Features(x_BTD, layers=tuple(hidden) if all_layers else None), state


def penalty_weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """Return the weight of `penalties`: the number of rows, so that sums over microbatches and devices are correct."""
  used = bool(_mixes(cfg)) and cfg.mix_l2 > 0
  return {'mix_l2': jnp.float32(batch['tokens_BT'].shape[0])} if used else {}


def penalties(cfg: Config, params: Params, features: Features, batch: Batch) -> dict[str, Array]:
  """Return {'mix_l2'}: lambda times the squared norm of the mixes' weights (section 3.3), times the number of rows."""
  del features
  total = sum(jnp.sum(params[f'mix_{side}']['weights'] ** 2) for side in _mixes(cfg))
  return {name: cfg.mix_l2 * total * rows for name, rows in penalty_weights(cfg, batch).items()}


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Raise InputError: there is no output over words."""
  raise InputError('model bilstm predicts no words; train it with objective "tag" or "classify"')


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Raise InputError: there is no output over words."""
  return logits(cfg, params, features)


def depth(cfg: Config, path: tuple[str, ...]) -> int:
  """Return a parameter's layer number: embeddings, biLM and input mix 0, layer i is i + 1, output mix N + 1."""
  if path[0].startswith('layer_'):
    return int(path[0].removeprefix('layer_')) + 1
  return cfg.N + 1 if path[0] == 'mix_output' else 0
