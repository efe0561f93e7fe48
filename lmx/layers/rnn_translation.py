"""Recurrent encoder-decoders: their Config, parameters, encoder, teacher forcing and deep output.

A model file extends `Config`, defines how the decoder starts from the source and how it writes the target, and takes
`begin`, `apply`, `logits`, `nll` and `depth` from here.

Deep output (Bahdanau et al. 2015, arXiv 1409.0473, appendix A.2.2): t~ = U_o s + V_o e + C_o c, maxout over pairs of
neighbours, then the softmax.

Axes: S source positions, T target; E embedding, D hidden width, H annotation, G gates, W width of the softmax input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lmx import layout
from lmx.errors import InputError, check_choice, check_least, check_range
from lmx.layers import embedding, orthogonal, rnn_cell, rnn_encoder, softmax
from lmx.ops import rnn
from lmx.ops.dropout import dropout, split
from lmx.ops.rnn import Carry
from lmx.types import Array, Batch, Features, Params, State

INITS = ('uniform', 'paper')
READOUTS = ('previous', 'current')
VOCABULARY = ('embed/table', 'embed/source', 'embed/target', 'output/table', 'output/bias')
SOURCE_VOCABULARY = ('embed/source',)


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches of an encoder-decoder; the defaults are Bahdanau's (appendix A.2.3 and section 4.2).

  Attributes:
    V: vocabulary size, of the target and, with source_V = 0, of the source.
    source_V: vocabulary size of the source, if vocabularies are separate; 0 is V.
    E: embedding width.
    D: width of the hidden layers, of each direction.
    cell: one of lmx.layers.rnn_cell.CELLS.
    reverse: the encoder of one direction reads the source in reverse order.
    shared: one embedding table for both sides.
    tied: use the target's embedding as the output matrix; needs W = E.
    dropout_embedding: dropout rate of the embeddings.
    dropout_hidden: dropout rate of the input of each layer but the first, and of the encoder's output.
    dropout_output: dropout rate of the input of the softmax.
    init: 'uniform' is +-init_scale for all, 'paper' as in Bahdanau's appendix B.1 (lmx/layers/rnn_translation.py).
    init_scale: bound of 'uniform'.
    dtype: compute type.
    backend: implementation of layers without attention, see lmx/kernels/rnn.py.
  """

  V: int = 30_000
  source_V: int = 0
  E: int = 620
  D: int = 1000
  cell: str = 'gru_paper'
  reverse: bool = False
  shared: bool = False
  tied: bool = False
  dropout_embedding: float = 0.0
  dropout_hidden: float = 0.0
  dropout_output: float = 0.0
  init: str = 'paper'
  init_scale: float = 0.1
  dtype: str = 'float32'
  backend: str = 'auto'

  def __post_init__(self) -> None:
    rnn_cell.gates(self.cell)
    check_choice('model.init', self.init, INITS)
    rnn.check_backend(self.backend, self.cell)
    check_least('model', self, source_V=0, E=1, D=1, encoder_layers=1, decoder_layers=1, init_scale=0)
    for field in ('dropout_embedding', 'dropout_hidden', 'dropout_output'):
      check_range(f'model.{field}', getattr(self, field), 0, 1)
    if self.bidirectional and self.reverse:
      raise InputError(
        'model.reverse: got true with model.bidirectional; expected a unidirectional encoder; set one to false'
      )
    if self.shared and self.source_V:
      raise InputError(
        f'model.shared: got true with model.source_V={self.source_V}, a vocabulary of the source; expected false, as '
        'one table has one vocabulary; set model.shared=false, or data.vocabularies=shared'
      )
    if self.tied and self.W != self.E:
      raise InputError(
        f'model.tied: got E = {self.E}; expected E = {self.W}, the width that the softmax reads; set model.E={self.W}'
      )

  @property
  def encoder_layers(self) -> int:
    """Layers of the encoder."""
    return 1

  @property
  def decoder_layers(self) -> int:
    """Layers of the decoder."""
    return 1

  @property
  def bidirectional(self) -> bool:
    """The encoder reads in both directions; a layer concatenates their outputs."""
    return False

  @property
  def N(self) -> int:  # noqa: N802
    """Layers of the encoder, then of the decoder."""
    return self.encoder_layers + self.decoder_layers

  @property
  def H(self) -> int:  # noqa: N802
    """Width of an annotation."""
    return self.D * (2 if self.bidirectional else 1)

  @property
  def W(self) -> int:  # noqa: N802
    """Width of the input of the softmax."""
    return self.D


class EncoderDecoder(NamedTuple):
  """Model made of an encoder and a decoder.

  Attributes:
    encode: (cfg, params, batch, key) -> the decoder's state after the source, a dict with 'layers', the carries, and
      'position_B', the number of target tokens so far.
    decode: (cfg, params, state, batch, key, outputs) -> (Features, state): the decoder under teacher forcing. `outputs`
      may name 'layers' (of Features) and, in a model with attention, 'alignment'.
  """

  encode: Callable[..., dict[str, Any]]
  decode: Callable[..., tuple[Features, State]]

  def begin(self, cfg: Config, params: Params, batch: Batch, length: int) -> State:
    """Return the state after the source and before the target; its size does not depend on `length`."""
    del length
    return self.encode(cfg, params, batch, None)

  def apply(
    self,
    cfg: Config,
    params: Params,
    batch: Batch,
    state: State = (),
    key: Array | None = None,
    *,
    all_layers: bool = False,
  ) -> tuple[Features, State]:
    """Encode the source and run the decoder over the target, or continue a target.

    Args:
      batch: tokens_BT, valid_BT (optional); source_BS and source_valid_BS (optional) where the state is ().
      state: (), or from `begin` or the previous call.
      key: PRNG key of dropout and hard attention; None at evaluation, where it takes the most probable position.
      all_layers: also return the target's embedding, each layer of the decoder, and the input of the softmax.

    Returns:
      (Features, with alignment_BTS where a penalty or hard attention needs it; () or the state after the target).
    """
    source_key, target_key = split(key, 2)
    begun = state if state else self.encode(cfg, params, batch, source_key)
    features, end = self.decode(cfg, params, begun, batch, target_key, ('layers',) if all_layers else ())
    return features, end if state else ()


def decoder_layers(cfg: Config, params: Params) -> list[Params]:
  """Return the parameters of the decoder's layers."""
  return [params[layout.layer_name(cfg.encoder_layers + i)] for i in range(cfg.decoder_layers)]


def shapes(cfg: Config, context: int) -> dict[str, Any]:
  """Return the shapes of embeddings, layers and output.

  Args:
    cfg: Config of the model.
    context: width that the decoder's first layer reads in addition to the embedding.
  """
  V, E, D, G = cfg.V, cfg.E, cfg.D, cfg.D * rnn_cell.gates(cfg.cell)
  layer = lambda width: {'input': (width, G), 'recurrent': (D, G), 'bias': (G,)}
  tables = {'table': (V, E)} if cfg.shared else {'source': (cfg.source_V or V, E), 'target': (V, E)}
  tree: dict[str, Any] = {'embed': tables}
  for i in range(cfg.encoder_layers):
    directions = ('forward', 'backward') if cfg.bidirectional else ('forward',)
    tree[layout.layer_name(i)] = {direction: layer(cfg.H if i else E) for direction in directions}
  for i in range(cfg.decoder_layers):
    tree[layout.layer_name(cfg.encoder_layers + i)] = layer(D if i else E + context)
  tree['output'] = {'bias': (V,)} if cfg.tied else {'table': (V, cfg.W), 'bias': (V,)}
  return tree


def deep_shapes(cfg: Config, context: int) -> dict[str, tuple[int, ...]]:
  """Return the shapes of a deep output that reads a context of width `context`."""
  W2 = 2 * cfg.W
  return {
    'readout_state': (cfg.D, W2),
    'readout_embed': (cfg.E, W2),
    'readout_context': (context, W2),
    'readout_bias': (W2,),
  }


def _draw(cfg: Config, key: Array, path: tuple[str, ...], shape: tuple[int, ...]) -> Array:
  """Initialise a parameter.

  'uniform' is +-init_scale for all (Luong et al. 2015, arXiv 1508.04025, section 4.1). 'paper' is Bahdanau's appendix
  B.1: orthogonal recurrent matrices, standard deviation 0.001 in the alignment, 0.01 elsewhere, zero biases and v.
  """
  if cfg.init == 'uniform':
    return jax.random.uniform(key, shape, jnp.float32, -cfg.init_scale, cfg.init_scale)
  if path[-1].endswith('bias') or path[-1] == 'energy':
    return jnp.zeros(shape, jnp.float32)
  if path[-1] == 'recurrent':
    return orthogonal.draw(key, cfg.D, cfg.D, shape[1] // cfg.D).transpose(1, 0, 2).reshape(shape)
  return (0.001 if path[0] == 'attention' else 0.01) * jax.random.normal(key, shape, jnp.float32)


def init(cfg: Config, tree: dict[str, Any], key: Array) -> Params:
  """Initialise parameters of the shapes in `tree`."""
  leaves, structure = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: isinstance(x, tuple))
  keys = jax.random.split(key, len(leaves))
  values = [_draw(cfg, k, tuple(p.key for p in path), shape) for k, (path, shape) in zip(keys, leaves, strict=True)]
  return jax.tree_util.tree_unflatten(structure, values)


def table(params: Params, side: str) -> Array:
  """Return the embedding table of 'source' or 'target'."""
  return params['embed'].get('table', params['embed'].get(side))


def output(cfg: Config, params: Params) -> tuple[Array, Array]:
  """Return (table_VD, bias_V) of the output layer."""
  return table(params, 'target') if cfg.tied else params['output']['table'], params['output']['bias']


def encode(cfg: Config, params: Params, batch: Batch, key: Array | None) -> tuple[Array, Array, list[rnn_encoder.Ends]]:
  """Return (annotations (B, S, H) after dropout, valid_BS, last carries of each layer by direction)."""
  source_BS = batch['source_BS']
  valid_BS = batch.get('source_valid_BS', jnp.ones(source_BS.shape, bool))
  embed_key, *keys = split(key, cfg.encoder_layers + 1)
  x_BSE = dropout(embedding.lookup(table(params, 'source'), source_BS, cfg.dtype), cfg.dropout_embedding, embed_key)
  layers = layout.layers(params, range(cfg.encoder_layers))
  values_BSH, ends = rnn_encoder.encode(
    cfg.cell,
    layers,
    x_BSE,
    valid_BS,
    keys,
    width=cfg.D,
    reverse=cfg.reverse,
    rate=cfg.dropout_hidden,
    dtype=cfg.dtype,
    backend=cfg.backend,
  )
  return values_BSH, valid_BS, ends


def start(cfg: Config, params: Params, read_BD: Array) -> list[Carry]:
  """Return the carry of each of the decoder's layers: tanh(W_s x + b). The cell state of an LSTM starts at 0."""
  starts = jnp.tanh(read_BD @ params['state'].astype(read_BD.dtype) + params['state_bias'][None])
  states = jnp.split(starts, cfg.decoder_layers, -1)
  return [(h_BD, *rnn_cell.init_carry(cfg.cell, *h_BD.shape)[1:]) for h_BD in states]


class Target(NamedTuple):
  """Inputs of the decoder for teacher forcing; an invalid step leaves the state unchanged (None: all are valid)."""

  x_TBE: Array
  valid_TB: Array | None
  position_TB: Array
  steps_TB: Array


def target(cfg: Config, params: Params, batch: Batch, position_B: Array, key: Array | None) -> Target:
  """Return the inputs of the decoder, from position `position_B`."""
  tokens_TB, valid_BT = batch['tokens_BT'].T, batch.get('valid_BT')
  (T, B), valid_TB = tokens_TB.shape, None if valid_BT is None else valid_BT.T
  x_TBE = dropout(embedding.lookup(table(params, 'target'), tokens_TB, cfg.dtype, 'TB'), cfg.dropout_embedding, key)
  steps_TB = jnp.ones((T, B), jnp.int32) if valid_TB is None else valid_TB.astype(jnp.int32)
  return Target(x_TBE, valid_TB, position_B + jnp.cumsum(steps_TB, axis=0) - steps_TB, steps_TB)


def deep_output(cfg: Config, params: Params, x_TBE: Array, context: Array, state_TBD: Array) -> Array:
  """Return the maxout layer of the deep output, (T, B, W)."""
  weights = params['output']
  t_TBW = weights['readout_bias'].astype(cfg.dtype)[None, None]
  for name, x in (('embed', x_TBE), ('context', context), ('state', state_TBD)):
    t_TBW = t_TBW + x.astype(cfg.dtype) @ weights[f'readout_{name}'].astype(cfg.dtype)
  return jnp.max(t_TBW.reshape(*t_TBW.shape[:2], cfg.W, 2), axis=-1)


def features(
  cfg: Config, x_TBE: Array, last_TBW: Array, y: dict[str, Any], key: Array | None, outputs: Sequence[str]
) -> Features:
  """Return the Features of the decoder, rows first: `last_TBW` after dropout, and the outputs of the loop in `y`."""
  last_TBW = dropout(last_TBW.astype(cfg.dtype), cfg.dropout_output, key)
  rows_first = lambda x: x.swapaxes(0, 1)
  return Features(
    rows_first(last_TBW),
    layers=tuple(map(rows_first, (x_TBE, *y['layers'], last_TBW))) if 'layers' in outputs else None,
    alignment_BTS=rows_first(y['alignment']) if 'alignment' in y else None,
    choice_BT=rows_first(y['choice']) if 'choice' in y else None,
  )


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of every next token, (B, T, V) float32."""
  return softmax.tied_logits(features.last_BTD, *output(cfg, params), size=cfg.V)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32."""
  table_VD, bias_V = output(cfg, params)
  return softmax.tied_nll(features.last_BTD, table_VD, targets_BT, bias_V, size=cfg.V)


def depth(cfg: Config, path: tuple[str, ...]) -> int:
  """Return the layer of a parameter: embeddings 0, layer i is i + 1, start below the decoder, attention at its top."""
  own = {'start': cfg.encoder_layers + 1, 'attention': cfg.N}
  return own[path[0]] if path[0] in own else layout.depth(path, cfg.N)
