"""Encoder and decoder of the Transformer (Vaswani et al. 2017, section 3.1), for any block.

Source, target and output share one table, unless the source has its own. Embeddings are multiplied by sqrt(D) (3.4),
positions are sinusoidal (3.5) or learned (row E of table 3), and the sums of embeddings and positions have dropout
(5.4). A model file builds a `Net` from its blocks and takes `init`, `apply`, `begin`, `alignment`, `attention` and
`depth` from here.

Axes: S tokens of the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lmx import layout
from lmx.errors import InputError
from lmx.layers import decoder_block, embedding, kv_cache, sinusoids, transformer
from lmx.layers.block import Block
from lmx.layers.decoder_block import DecoderBlock, Source
from lmx.ops import dense, dropout, masks
from lmx.ops.rematerialisation import Policy
from lmx.types import Array, Batch, Features, Params, State, recording_attention


class Net(NamedTuple):
  """Static description of a model.

  Attributes:
    encoder: module of an encoder layer.
    decoder: module of a decoder layer.
    layers: number of encoder layers and of decoder layers.
    width: D.
    positions: layout of the sinusoids, one of lmx.layers.sinusoids.LAYOUTS; or 'learned', a table of the source and
      one of the target.
    dropout: dropout rate of the sums of embeddings and positions.
    scan: compile one layer of the encoder and one of the decoder and loop over them.
    remat: activations that are kept for the backward pass, see lmx/ops/rematerialisation.py.
    longest: T, rows of each table of learned positions.
    key_width: width of a head's keys; 0 is D / H, the width of its values.
    source_size: rows of the source's own table; 0 shares the target's.
    scale: embeddings are multiplied by sqrt(D).
    first: index of the first position of the sinusoids.
  """

  encoder: Block
  decoder: DecoderBlock
  layers: tuple[int, int]
  width: int
  positions: str
  dropout: float
  scan: bool
  remat: Policy
  longest: int = 0
  key_width: int = 0
  source_size: int = 0
  scale: bool = True
  first: int = 0

  @property
  def heads(self) -> int:
    """Number of heads of the decoder's self-attention."""
    attention: Any = self.decoder.attention
    return attention.heads

  def params(self, params: Params, decoder: bool) -> Sequence[Params]:
    """Return the parameters of each layer of the encoder or of the decoder."""
    first = self.layers[0] if decoder else 0
    return layout.layers(params, range(first, first + self.layers[decoder]))


def init(net: Net, V: int, key: Array) -> Params:  # noqa: N803, an axis
  """Initialise the parameters: embed (tokens; the source's own table source; with learned positions source_positions
  and target_positions), layer_00 .., and for pre-norm norm_encoder, norm_decoder."""
  tokens_key, *keys = jax.random.split(key, sum(net.layers) + 1)
  D = net.width
  embed: dict[str, Array] = {'tokens': embedding.table(tokens_key, V, D, D**-0.5)}
  if net.positions == 'learned':
    for i, name in enumerate(('source_positions', 'target_positions')):
      embed[name] = embedding.table(jax.random.fold_in(tokens_key, i), net.longest, D, D**-0.5)
  if net.source_size:
    embed['source'] = embedding.table(jax.random.fold_in(tokens_key, 2), net.source_size, D, D**-0.5)
  params: dict[str, Params] = {'embed': embed}
  for i, k in enumerate(keys):
    if i < net.layers[0]:
      params[layout.layer_name(i)] = transformer.init_block(net.encoder, D, k, dtype=net.encoder.dtype)
    else:
      params[layout.layer_name(i)] = decoder_block.init_block(net.decoder, D, k, dtype=net.decoder.dtype)
  if net.encoder.norm == 'pre':
    for name in ('norm_encoder', 'norm_decoder'):
      params[name] = {'scale': jnp.ones(D, jnp.float32), 'bias': jnp.zeros(D, jnp.float32)}
  return params


def embed(
  net: Net,
  params: Params,
  tokens_BT: Array,
  key: Array | None,
  position_BT: Array | None = None,
  length: int = 0,
  *,
  side: str,
) -> Array:
  """Return the sum of embeddings and positions, with dropout.

  Args:
    net: description of the model.
    params: from `init`.
    tokens_BT: ids.
    key: PRNG key of dropout.
    position_BT: position of each token; None for 0 .. T-1.
    length: number of positions, needed with `position_BT`.
    side: 'source' or 'target'.

  Raises:
    InputError: more positions than the learned position table has.
  """
  longest = length or tokens_BT.shape[1]
  if net.positions == 'learned':
    if longest > net.longest:
      raise InputError(
        f'model.T: got {net.longest} learned positions; expected at least the {longest} of the {side}; set model.T, or '
        'less of data.length or evaluation.max_extra'
      )
    positions_TD = params['embed'][f'{side}_positions']
  else:
    positions_TD = jnp.asarray(sinusoids.table(net.first + longest, net.width, net.positions)[net.first :])
  table_VD = params['embed']['source' if side == 'source' and net.source_size else 'tokens']
  x_BTD = embedding.lookup(table_VD, tokens_BT, 'float32')
  x_BTD = net.width**0.5 * x_BTD if net.scale else x_BTD
  x_BTD = embedding.add_positions(x_BTD, positions_TD, position_BT)
  return dropout.dropout(x_BTD.astype(net.encoder.dtype), net.dropout, key)


def _final_norm(block: Block, params: Params, name: str, x_BTD: Array) -> Array:
  """Apply the final normalisation, which only pre-norm has."""
  if block.norm == 'post':
    return x_BTD
  return dense.layer_norm(x_BTD, params[name]['scale'], params[name]['bias'], block.eps).astype(block.dtype)


def encode(net: Net, params: Params, batch: Batch, key: Array | None = None) -> Array:
  """Return the encoder's output (B, S, D) for `source_BS`; `source_valid_BS` (optional) is False at padding."""
  return _encode(net, params, batch, key)[0]


def _encode(net: Net, params: Params, batch: Batch, key: Array | None) -> tuple[Array, tuple[Array, ...]]:
  """Return the encoder's output, and the input and output of each layer."""
  embed_key, layers_key = dropout.split(key, 2)
  x_BSD, _, hidden = transformer.stack(
    net.encoder,
    net.params(params, False),
    embed(net, params, batch['source_BS'], embed_key, side='source'),
    _encoder_mask(batch),
    key=layers_key,
    scan=net.scan,
    remat=net.remat,
  )
  return _final_norm(net.encoder, params, 'norm_encoder', x_BSD), hidden


def _encoder_mask(batch: Batch) -> masks.AttentionMask:
  return masks.from_batch({'valid_BT': batch['source_valid_BS']} if 'source_valid_BS' in batch else {})


def begin(net: Net, params: Params, batch: Batch, length: int) -> State:
  """Encode the source, for decoding.

  Args:
    net: description of the model.
    params: from `init`.
    batch: source_BS, source_valid_BS (optional).
    length: capacity of the decoder's cache in tokens.

  Returns:
    {'position_B': tokens read so far, 'layers': for each decoder layer the cached (keys, values), each (B, length, H,
    K), 'sources': (keys, values) of the source, each (B, S, H, K), 'source_valid_BS'}.
  """
  source_BSD = encode(net, params, batch)
  B, S, D = source_BSD.shape
  block = net.decoder
  return {
    **kv_cache.empty(B, length, net.layers[1], net.heads, net.key_width or D // net.heads, block.dtype, D // net.heads),
    'sources': tuple(decoder_block.source_keys(block, p, source_BSD) for p in net.params(params, True)),
    'source_valid_BS': batch.get('source_valid_BS', jnp.ones((B, S), bool)),
  }


def _source_mask(source_valid_BS: Array | None, T: int) -> masks.AttentionMask:
  if source_valid_BS is None:
    return masks.AttentionMask()
  B = source_valid_BS.shape[0]
  return masks.AttentionMask(None, jnp.zeros((B, T), jnp.int32), jnp.where(source_valid_BS, 0, masks.PADDING))


def apply(
  net: Net, params: Params, batch: Batch, state: State, key: Array | None, all_layers: bool
) -> tuple[Features, State]:
  """Run the decoder over `tokens_BT`; without a state, first run the encoder over the source.

  Args:
    net: description of the model.
    params: from `init`.
    batch: tokens_BT; valid_BT (padding on the right), optional; without a state source_BS and source_valid_BS
      (optional).
    state: (), or from `begin`; then each row continues at its own position, as in models/gpt2.py.
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the decoder's embeddings and the residual path after each of its layers (before the last
      normalisation).

  Returns:
    (Features of the decoder; () or the state after these tokens).
  """
  encode_key, embed_key, layers_key = dropout.split(key, 3)
  tokens_BT = batch['tokens_BT']
  T = tokens_BT.shape[1]
  caches, position_BT, read_B, length = None, None, None, 0
  states: Sequence[Array | kv_cache.Cache]
  if state:
    caches, states, source_valid_BS = state['layers'], state['sources'], state['source_valid_BS']
    position_BT, read_B = kv_cache.positions(batch, state)
    mask, length = masks.AttentionMask(query_position_BT=position_BT), caches[0][0].shape[1]
  else:
    states = [encode(net, params, batch, encode_key)] * net.layers[1]
    mask, source_valid_BS = masks.from_batch(batch), batch.get('source_valid_BS')
  source_mask = _source_mask(source_valid_BS, T)
  x_BTD, caches, hidden = transformer.stack(
    net.decoder,
    net.params(params, True),
    embed(net, params, tokens_BT, embed_key, position_BT, length, side='target'),
    mask,
    caches=caches,
    position_BT=position_BT,
    key=layers_key,
    sources=[Source(x, source_mask) for x in states],
    scan=net.scan,
    remat=net.remat,
  )
  last_BTD = _final_norm(net.decoder, params, 'norm_decoder', x_BTD)
  features = Features(last_BTD, layers=hidden if all_layers else None)
  return features, {**state, 'position_B': read_B, 'layers': caches} if state else ()


def alignment(net: Net, params: Params, batch: Batch, layer: int) -> Array:
  """Return one decoder layer's cross-attention, averaged over its heads, as an alignment (B, T, S).

  Args:
    net: description of the model.
    params: from `init`.
    batch: tokens_BT, source_BS, source_valid_BS (optional), as for `apply` without a state.
    layer: decoder layer; -1 is the last.

  Returns:
    (B, T, S) float32; each row sums to 1 over the valid tokens of the source.
  """
  hidden = apply(net, params, batch, (), None, True)[0].layers or ()
  layer = range(net.layers[1])[layer]
  mask = _source_mask(batch.get('source_valid_BS'), batch['tokens_BT'].shape[1])
  own, source = {'params': net.params(params, True)[layer]}, Source(encode(net, params, batch), mask)
  with recording_attention() as weights:
    net.decoder.apply(own, hidden[layer], masks.from_batch(batch), source=source)
  return jnp.mean(weights[-1].weights_BHTS, axis=1)  # cross-attention comes after self-attention


def depth(net: Net, path: tuple[str, ...]) -> int:
  """Return a parameter's layer number: 0 in the table, i + 1 in layer i (encoder first, then decoder), else N + 1."""
  return net.layers[0] if path[0] == 'norm_encoder' else layout.depth(path, sum(net.layers))
