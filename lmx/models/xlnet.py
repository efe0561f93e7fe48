"""XLNet: Yang, Dai, Yang, Carbonell, Salakhutdinov & Le 2019 (arXiv 1906.08237).

Transformer-XL's layers, trained to predict tokens in orders drawn at random, each from those before it in the order
(equation 3), with a content and a query stream (section 2.3, equations in appendix A.2; lmx/layers/two_stream.py), a
memory of earlier segments (section 2.4) and relative segment encodings (section 2.5). With `order_BT` in the batch
there is a query stream at `positions_BP`, whose outputs are `Features.query_BPD`; without, as in fine-tuning, every
token sees every other, and `Features.last_BTD` is the content stream.

Parameters: 116,718,336 (base) and 360,268,800 (large) at 32,000 pieces, output biases counted apart.

Where paper and released code differ, `fidelity`: 'released' begins with a memory of zero vectors that are attended to,
as its training does; 'paper' with an empty one. The release has the tanh form of GELU, Hugging Face's port the exact.

Deviations: a query that may see no token at all takes nothing from attention (the release's takes the mean of all
values, its own token's among them); padding is on the right, the classification token before it (the release pads on
the left; positions are relative, so real tokens see the same); packed documents are refused; no causal attention
('uni').

Axes: X = T + P rows of both streams, S = M + T keys.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lmx.errors import InputError, check_choice, check_heads, check_least, check_range
from lmx.layers import dropout, embedding, softmax, transformer, two_stream
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = False
OBJECTIVE = 'permutation_lm'
HEADS = ('output',)
VOCABULARY = ('embed/tokens', 'output/bias')
EPS = 1e-12  # of layer normalisation, released code
FIDELITIES = ('released', 'paper')


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: vocabulary size.
    D: width.
    F: width of the feed-forward networks.
    H: heads.
    N: layers.
    M: positions remembered; 0 has no memory.
    reuse: of a row the first so many positions are remembered (reuse_len of the release); 0: all.
    clamp: distances beyond this, either way, are taken for this; 0 is none.
    untie: u, v and s are each layer's own.
    gelu: 'tanh' or 'erf'.
    fidelity: 'released' or 'paper', see the module's docstring.
    dropout: of embeddings, encodings of distances, what is added to the residual path, and the output.
    dropout_attention: of attention probabilities.
    init_std: deviation of kernels and tables.
    dtype: compute type.
    scan: compile one layer and loop over it.
    remat: compute a layer's activations again in the backward pass.
  """

  V: int = 32_000
  D: int = 768
  F: int = 3072
  H: int = 12
  N: int = 12
  M: int = 0
  reuse: int = 0
  clamp: int = 0
  untie: bool = True
  gelu: str = 'tanh'
  fidelity: str = 'released'
  dropout: float = 0.1
  dropout_attention: float = 0.1
  init_std: float = 0.02
  dtype: str = 'float32'
  scan: bool = False
  remat: bool = False

  def __post_init__(self) -> None:
    check_heads('xlnet', self.D, self.H, even=True)
    check_least('model', self, F=1, N=1, M=0, reuse=0, clamp=0)
    check_choice('model.gelu', self.gelu, ('tanh', 'erf'))
    check_choice('model.fidelity', self.fidelity, FIDELITIES)
    for field in ('dropout', 'dropout_attention'):
      check_range(f'model.{field}', getattr(self, field), 0, 1)


VARIANTS: dict[str, dict[str, Any]] = {
  'base': {},
  'large': dict(D=1024, F=4096, H=16, N=24),
  'tiny': dict(V=97, D=32, F=48, H=4, N=2, M=8),
}


@functools.cache  # a partial is equal to itself alone, and layers alike shall be traced once
def _block(cfg: Config) -> transformer.Block:
  return transformer.Block(
    heads=cfg.H,
    hidden=cfg.F,
    causal=False,
    norm='post',
    eps=EPS,
    activation=f'gelu_{cfg.gelu}',
    std=cfg.init_std,
    residual_std=cfg.init_std,
    attention_rate=cfg.dropout_attention,
    residual_rate=cfg.dropout,
    hidden_rate=cfg.dropout,
    dtype=cfg.dtype,
    bias=False,
    attention=functools.partial(two_stream.TwoStreamAttention, untied=cfg.untie, keep=cfg.reuse),
  )


def init(cfg: Config, key: Array) -> Params:
  """Parameters: embed (tokens, mask: what the query stream begins with), layer_00 .., output (bias), and bias (u, v, s)
  where the layers share them."""
  tokens_key, mask_key, bias_key, *keys = jax.random.split(key, cfg.N + 3)
  params: dict[str, Any] = {
    'embed': {
      'tokens': embedding.table(tokens_key, cfg.V, cfg.D, cfg.init_std),
      'mask': cfg.init_std * jax.random.normal(mask_key, (cfg.D,), jnp.float32),
    },
    'output': {'bias': jnp.zeros(cfg.V, jnp.float32)},
  }
  drawn = cfg.init_std * jax.random.normal(bias_key, (3, cfg.H, cfg.D // cfg.H), jnp.float32)
  biases = dict(zip('uvs', drawn, strict=True))
  if not cfg.untie:
    params['bias'] = biases
  look = two_stream.Streams(jnp.zeros((1, cfg.D), cfg.dtype), biases=biases)
  for i, k in enumerate(keys):
    params[transformer.name(i)] = transformer.init_block(_block(cfg), cfg.D, k, look)
  return params


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """The memory before the first token, () if there is none; `length` is not needed, for nothing is decoded.

  Returns:
    {'filled_B': places that hold something, the last ones, 'layers': for each layer (B, M, D)}.
  """
  del length
  if not cfg.M:
    return ()
  filled = cfg.M if cfg.fidelity == 'released' else 0
  layers = tuple(jnp.zeros((batch_size, cfg.M, cfg.D), cfg.dtype) for _ in range(cfg.N))
  return {'filled_B': jnp.full(batch_size, filled, jnp.int32), 'layers': layers}


def _encoding(cfg: Config, T: int, S: int, key: Array | None) -> Array:
  """Sinusoids of the distances S - 1 to 1 - T, with dropout; of a distance below 0 the sines change sign."""
  distance_R = np.arange(S - 1, -T, -1)
  distance_R = np.clip(distance_R, -cfg.clamp, cfg.clamp) if cfg.clamp else distance_R
  table = embedding.sinusoids(int(np.abs(distance_R).max()) + 1, cfg.D, 'halves')
  sign_RD = np.where(np.arange(cfg.D) < cfg.D // 2, np.sign(distance_R)[:, None], 1)
  return dropout.dropout(jnp.asarray(table[np.abs(distance_R)] * sign_RD, cfg.dtype), cfg.dropout, key)


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Runs the layers over a row and its memory.

  Args:
    batch: tokens_BT; optional: types_BT (segments), valid_BT (padding on the right), order_BT with positions_BP (two
      streams), backward_B (rows read from their end).
    state: of `init_state` or of the call before; () has no memory and leaves none.
    key: randomness of dropout, None at evaluation.
    all_layers: also return the embeddings and the content stream after each layer.

  Raises:
    InputError: packed documents, which would be remembered as one.
  """
  if 'documents_BT' in batch:
    raise InputError('xlnet: attention does not tell packed documents (documents_BT) apart; take another data.batching')
  tokens_BT = batch['tokens_BT']
  T = tokens_BT.shape[1]
  embed_key, encoding_key, last_key, layers_key = dropout.split(key, 4)
  x_BXD = embedding.lookup(params['embed']['tokens'], tokens_BT, cfg.dtype)
  positions_BP = batch['positions_BP'] if 'order_BT' in batch else None
  if positions_BP is not None:
    mask_D = params['embed']['mask'].astype(cfg.dtype)
    x_BXD = jnp.concatenate([x_BXD, jnp.broadcast_to(mask_D, (*positions_BP.shape, cfg.D))], axis=1)
  x_BXD = dropout.dropout(x_BXD, cfg.dropout, embed_key)
  M = cfg.M if state else 0
  count_B = jnp.sum(batch['valid_BT'], axis=1, dtype=jnp.int32) if 'valid_BT' in batch else None
  look = two_stream.Streams(
    _encoding(cfg, T, T + M, encoding_key),
    positions_BP,
    two_stream.visible(batch, M, state['filled_B'] if state else None),
    two_stream.other_segment(batch, M),
    count_B,
    batch.get('backward_B'),
    params.get('bias'),
  )
  x_BXD, remembered, seen = transformer.stack(
    _block(cfg),
    [params[transformer.name(i)] for i in range(cfg.N)],
    x_BXD,
    look,
    caches=jax.lax.stop_gradient(state['layers']) if state else None,
    key=layers_key,
    scan=cfg.scan,
    remat=cfg.remat,
  )
  x_BXD = dropout.dropout(x_BXD, cfg.dropout, last_key)
  layers = tuple(x[:, :T] for x in seen) if all_layers else None
  features = Features(x_BXD[:, :T], layers=layers, query_BPD=None if positions_BP is None else x_BXD[:, T:])
  if not state:
    return features, ()
  kept_B = jnp.minimum(T if count_B is None else count_B, cfg.reuse or T)
  return features, {'filled_B': jnp.minimum(state['filled_B'] + kept_B, cfg.M), 'layers': remembered}


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Scores of every token at each position, (B, T, V) float32, tied to the embedding."""
  del cfg
  return softmax.tied_logits(features.last_BTD, params['embed']['tokens'], params['output']['bias'])


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Negative log-likelihood of each target in nats, (B, T) float32."""
  del cfg
  return softmax.tied_nll(features.last_BTD, params['embed']['tokens'], targets_BT, params['output']['bias'])


def depth(cfg: Config, path: tuple[str, ...]) -> int:
  """Layer number of a parameter: embedding and biases that all layers share 0, layer i is i + 1, the output N + 1."""
  return 0 if path[0] == 'bias' else transformer.depth(path, cfg.N)
