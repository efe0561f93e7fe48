"""Decoder-only Transformer with memory-compressed attention: Liu, Saleh, Pot, Goodrich, Sepassi, Kaiser & Shazeer 2018.

"Generating Wikipedia by Summarizing Long Sequences" (arXiv 1801.10198). Section 4.2.2: the decoder of the Transformer
without a source, as a language model over the concatenation of input and output (T-D). Section 4.2.3, for long texts:
layers of local attention in blocks of 256 tokens alternate with layers whose keys and values are compressed by a
convolution of width 3 and stride 3 (T-DMCA), five layers in the order L M L M L. In `pattern`, F attends to
the whole text, L locally, M to the compressed text. Parts and sizes are those of models/transformer.py, base.

Parameters at 32,000 tokens, a vocabulary size assumed here because the paper prints neither: 35,286,016 (t_d) and
35,283,456 (t_dmca).

Where paper and tensor2tensor differ: the paper compresses keys and values after their projection, each by its own
convolution (`compress='keys'`); tensor2tensor compresses the input of the projection (`'input'`). From the released
code: the first token is also attended to uncompressed, and the last token of a block does not attend to the block.

Deviations: no mixture-of-experts layers (the paper's T-DMCA without them is the row "no MoE-layer"); packed documents
are refused.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lmx import layout
from lmx.errors import InputError, check_choice, check_heads, check_least, check_range
from lmx.layers import compressed_attention, embedding, kv_cache, sinusoids, softmax, transformer
from lmx.layers.block import Block
from lmx.ops import attention, dense, dropout
from lmx.ops.masks import AttentionMask
from lmx.ops.rematerialisation import Policy
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
OBJECTIVE = 'causal_lm'
VOCABULARY = ('embed/tokens',)
TIED = ('embed/tokens',)


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: vocabulary size.
    D: width.
    F: width of the feed-forward networks.
    H: heads.
    pattern: a letter for each layer: F full, L local, M memory-compressed attention.
    window: tokens in a block of local attention.
    stride: number of tokens that memory-compressed attention compresses into one.
    compress: 'keys' (and values, paper) or 'input' (tensor2tensor).
    norm: 'post' or 'pre', as in models/transformer.py.
    positions: layout of the sinusoids, one of lmx.layers.sinusoids.LAYOUTS.
    dropout: dropout rate of the sums of embeddings and positions, and of the output of each sub-layer.
    dropout_attention: dropout rate of the attention probabilities.
    dropout_relu: dropout rate inside the feed-forward networks.
    dtype: compute type.
    attention: backend, one of lmx.ops.attention.BACKENDS.
    remat: activations that are kept for the backward pass, see lmx/ops/rematerialisation.py.
  """

  V: int = 32_000
  D: int = 512
  F: int = 2048
  H: int = 8
  pattern: str = 'LMLML'
  window: int = 256
  stride: int = 3
  compress: str = 'keys'
  norm: str = 'post'
  positions: str = 'interleaved'
  dropout: float = 0.1
  dropout_attention: float = 0.0
  dropout_relu: float = 0.0
  dtype: str = 'float32'
  attention: str = 'auto'
  remat: Policy = 'none'

  def __post_init__(self) -> None:
    check_heads('memory_compressed', self.D, self.H, even=True)
    if not self.pattern or set(self.pattern) - set('FLM'):
      raise InputError(f'model.pattern: got "{self.pattern}"; expected letters F, L and M, one for each layer')
    check_choice('model.compress', self.compress, ('keys', 'input'))
    check_choice('model.norm', self.norm, ('post', 'pre'))
    check_choice('model.positions', self.positions, sinusoids.LAYOUTS)
    check_choice('model.attention', self.attention, attention.BACKENDS)
    check_least('model', self, F=1, window=1, stride=1)
    for field in ('dropout', 'dropout_attention', 'dropout_relu'):
      check_range(f'model.{field}', getattr(self, field), 0, 1)

  @property
  def N(self) -> int:  # noqa: N802, the number of layers in every model
    """Number of layers."""
    return len(self.pattern)


VARIANTS = {
  't_dmca': dict(),  # section 4.2.3
  't_d': dict(pattern='FFFFFF'),  # section 4.2.2
  'tiny': dict(V=97, D=32, F=48, H=4, pattern='LMF', window=4, norm='pre'),
}
EPS = 1e-6  # epsilon of layer normalisation, released code
_OUTSIDE = 2**30  # position of padding, beyond every cache


def _block(cfg: Config, i: int) -> Block:
  common: dict[str, Any] = dict(kernel_init=transformer.Init('glorot'), dtype=cfg.dtype)
  heads: dict[str, Any] = dict(
    heads=cfg.H, causal=True, backend=cfg.attention, rate=cfg.dropout_attention, bias=False, **common
  )
  attention = {
    'F': transformer.SelfAttention(**heads),
    'L': compressed_attention.LocalAttention(window=cfg.window, **heads),
    'M': compressed_attention.CompressedAttention(stride=cfg.stride, compress=cfg.compress, **heads),
  }[cfg.pattern[i]]
  mlp = transformer.Mlp(cfg.F, 'relu', rate=cfg.dropout_relu, **common)
  return Block(attention, mlp, cfg.norm, EPS, cfg.dropout, cfg.dtype)


def init(cfg: Config, key: Array) -> Params:
  """Initialise the parameters: embed (tokens), layer_00 .., and norm if pre-norm."""
  tokens_key, *keys = jax.random.split(key, cfg.N + 1)
  params: dict[str, Params] = {'embed': {'tokens': embedding.table(tokens_key, cfg.V, cfg.D, cfg.D**-0.5)}}
  for i, k in enumerate(keys):
    params[layout.layer_name(i)] = transformer.init_block(_block(cfg, i), cfg.D, k, dtype=cfg.dtype)
  if cfg.norm == 'pre':
    params['norm'] = {'scale': jnp.ones(cfg.D, jnp.float32), 'bias': jnp.zeros(cfg.D, jnp.float32)}
  return params


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """Return keys and values for `length` positions (in a layer M for its blocks); () if `length` is 0.

  Returns:
    {'position_B': tokens read so far, 'layers': for each layer (keys, values)}.
  """
  if not length:
    return ()

  def empty(kind: str) -> Array:
    places = compressed_attention.slots(length, cfg.stride) if kind == 'M' else length
    return jnp.zeros((batch_size, places, cfg.H, cfg.D // cfg.H), cfg.dtype)

  layers = tuple((empty(kind), empty(kind)) for kind in cfg.pattern)
  return {'position_B': jnp.zeros(batch_size, jnp.int32), 'layers': layers}


def _cached(cfg: Config, batch: Batch, state: State) -> tuple[State, Array, int]:
  """Return (state with the rows of `reset_B` cleared, position of each token (B, T), number of positions)."""
  if 'reset_B' in batch:
    clear = lambda x: jnp.where(batch['reset_B'].reshape((-1,) + (1,) * (x.ndim - 1)), 0, x)
    state = jax.tree.map(clear, state)
  position_BT = state['position_B'][:, None] + jnp.arange(batch['tokens_BT'].shape[1], dtype=jnp.int32)[None]
  if 'valid_BT' in batch:  # padding has no position
    position_BT = jnp.where(batch['valid_BT'], position_BT, _OUTSIDE)
  places = [layer[0].shape[1] for layer in state['layers']]
  length = max((n - 1) * cfg.stride if kind == 'M' else n for kind, n in zip(cfg.pattern, places, strict=True))
  return state, position_BT, length


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the layers over `tokens_BT`.

  Args:
    batch: tokens_BT; valid_BT (padding on the right) and reset_B, optional.
    state: (), or from `init_state`; then each row continues at its own position.
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the embeddings and the residual path after each layer (before the last normalisation).

  Raises:
    InputError: the batch has packed documents, whose blocks would overlap.
  """
  if 'documents_BT' in batch:
    raise InputError(
      'memory_compressed: the convolution would mix packed documents (documents_BT); set another data.batching'
    )
  embed_key, *keys = dropout.split(key, cfg.N + 1)
  position_BT, length = None, 0
  if state:
    state, position_BT, length = _cached(cfg, batch, state)
  x_BTD = sinusoids.embed(params['embed']['tokens'], batch['tokens_BT'], cfg.positions, position_BT, length)
  x_BTD = dropout.dropout(x_BTD.astype(cfg.dtype), cfg.dropout, embed_key)
  hidden, caches = [x_BTD], list[kv_cache.Cache]()
  for i in range(cfg.N):
    x_BTD, cache, _ = transformer.stack(
      _block(cfg, i),
      layout.layers(params, [i]),
      x_BTD,
      AttentionMask(query_position_BT=position_BT),
      caches=[state['layers'][i]] if state else None,
      position_BT=position_BT,
      key=keys[i],
      remat=cfg.remat,
    )
    hidden.append(x_BTD)
    caches += cache or ()
  if cfg.norm == 'pre':
    x_BTD = dense.layer_norm(x_BTD, params['norm']['scale'], params['norm']['bias'], EPS).astype(cfg.dtype)
  features = Features(x_BTD, layers=tuple(hidden) if all_layers else None)
  if position_BT is None:
    return features, ()
  new_B = jnp.sum(position_BT < _OUTSIDE, axis=1, dtype=jnp.int32)
  return features, {'position_B': state['position_B'] + new_B, 'layers': tuple(caches)}


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of the next token, (B, T, V) float32."""
  return softmax.tied_logits(features.last_BTD, params['embed']['tokens'], size=cfg.V)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32."""
  return softmax.tied_nll(features.last_BTD, params['embed']['tokens'], targets_BT, size=cfg.V)
