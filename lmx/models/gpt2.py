"""GPT-2: Radford, Wu, Child, Luan, Amodei & Sutskever 2019, "Language Models are Unsupervised Multitask Learners".

A decoder-only Transformer (section 2.3, based on Radford et al. 2018). It has pre-norm sub-blocks, a final layer
normalisation, learned positions and tanh-GELU; the output matrix is tied to the embedding unless `tied` is False.
Sizes are those of table 2. Parameters at V = 50,257 and T = 1024: 124,439,808, 354,823,168, 774,030,080 and
1,557,611,200 (the paper's table misprints the first two as 117M and 345M). The output layer has no bias.

Initialisation (`init`; biases 0, LayerNorm scale 1 in all three):
- 'paper': section 2.3, "we scale the weights of residual layers at initialization by a factor of 1/sqrt(N) where N is
  the number of residual layers". N is read as the number of layers of table 2. The paper gives no standard deviations:
  0.02 for kernels and tokens and 0.01 for positions are the released code's.
- 'released': openai/gpt-2's model.py: kernels and tokens 0.02, positions 0.01, nothing scaled.
- 'nanogpt': karpathy/nanoGPT: everything 0.02, projections onto the residual path 0.02 / sqrt(2 N), because each layer
  has two of them.

Deviations: dropout (0.1 in the GPT paper, unknown for GPT-2) is off by default; the dropout mask is a hash
(lmx/ops/dropout.py).
Axes: C queries, keys and values of the fused kernel.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from lmx import layout
from lmx.errors import InputError, check_choice, check_heads, check_least, check_range
from lmx.layers import embedding, kv_cache, softmax, transformer
from lmx.layers.transformer import Init, Mlp, Norm, SelfAttention
from lmx.ops import attention, dense, dropout
from lmx.ops.masks import AttentionMask
from lmx.ops.rematerialisation import Policy
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
OBJECTIVE = 'causal_lm'
VOCABULARY = ('embed/tokens', 'output/table')
TIED = ('embed/tokens', 'output/table')
POSITIONS = ('embed/positions',)
INITS = ('paper', 'released', 'nanogpt')


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: vocabulary size.
    T: maximum sequence length.
    D: width.
    H: heads.
    N: layers.
    F: width of the feed-forward networks; 0 is 4 D.
    tied: use the embedding as the output matrix.
    bias: use biases in products and normalisations; nanoGPT has none.
    eps: epsilon of layer normalisation.
    init: 'paper', 'released' or 'nanogpt', see the module's docstring.
    dropout_embedding: dropout rate of the sum of token and position embeddings.
    dropout_attention: dropout rate of the attention probabilities.
    dropout_residual: dropout rate of the output of each sub-layer.
    dtype: compute type.
    attention: backend, one of lmx.ops.attention.BACKENDS.
    scan: compile one layer and loop over it.
    remat: activations that are kept for the backward pass, see lmx/ops/rematerialisation.py.
  """

  V: int = 50_257
  T: int = 1024
  D: int = 768
  H: int = 12
  N: int = 12
  F: int = 0
  tied: bool = True
  bias: bool = True
  eps: float = 1e-5  # released code
  init: str = 'paper'
  dropout_embedding: float = 0.0
  dropout_attention: float = 0.0
  dropout_residual: float = 0.0
  dtype: str = 'float32'
  attention: str = 'auto'
  scan: bool = False
  remat: Policy = 'none'

  def __post_init__(self) -> None:
    check_heads('gpt2', self.D, self.H)
    check_least('model', self, T=1, N=1, F=0, eps=0)
    check_choice('model.init', self.init, INITS)
    check_choice('model.attention', self.attention, attention.BACKENDS)
    for field in ('dropout_embedding', 'dropout_attention', 'dropout_residual'):
      check_range(f'model.{field}', getattr(self, field), 0, 1)


VARIANTS = {  # table 2
  '124m': dict(N=12, D=768, H=12),
  '355m': dict(N=24, D=1024, H=16),
  '774m': dict(N=36, D=1280, H=20),
  '1558m': dict(N=48, D=1600, H=25),
  'tiny': dict(V=97, T=64, N=2, D=32, H=4),
}


class Block(nn.Module):
  """Pre-norm layer of section 2.3: x = x + attention(norm(x)), then x = x + mlp(norm(x))."""

  cfg: Config

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask: AttentionMask, cache: Any = None, position_BT: Any = None, key: Array | None = None
  ) -> tuple[Array, Any]:
    cfg, keys = self.cfg, transformer.layer_keys(key)
    residual_std = 0.02 * {'paper': cfg.N, 'released': 1, 'nanogpt': 2 * cfg.N}[cfg.init] ** -0.5
    kernel_init = Init(std=0.02, residual_std=residual_std)
    common: dict[str, Any] = dict(kernel_init=kernel_init, bias=cfg.bias, dtype=cfg.dtype)
    attention = SelfAttention(
      cfg.H, causal=True, backend=cfg.attention, rate=cfg.dropout_attention, **common, name='attention'
    )
    mlp = Mlp(cfg.F or 4 * cfg.D, 'gelu_tanh', **common, name='mlp')
    norm_1, norm_2 = (Norm(cfg.eps, cfg.dtype, cfg.bias, name=name) for name in ('norm_1', 'norm_2'))
    drop = lambda f_BTD, key: dropout.dropout(f_BTD, cfg.dropout_residual, key)

    f_BTD, cache = attention(norm_1(x_BTD), mask, cache, position_BT, keys.attention)
    x_BTD = x_BTD + drop(f_BTD, keys.residual_1)
    x_BTD = x_BTD + drop(mlp(norm_2(x_BTD), keys.mlp), keys.residual_2)
    return x_BTD, cache


def init(cfg: Config, key: Array) -> Params:
  """Initialise the parameters: embed (tokens, positions), layer_00 .., norm, and output (table) if not tied."""
  tokens_key, positions_key, *keys = jax.random.split(key, cfg.N + 2)
  params: dict[str, Params] = {
    'embed': {
      'tokens': embedding.table(tokens_key, cfg.V, cfg.D, 0.02),
      'positions': embedding.table(positions_key, cfg.T, cfg.D, 0.02 if cfg.init == 'nanogpt' else 0.01),
    },
    'norm': {'scale': jnp.ones(cfg.D, jnp.float32), **({'bias': jnp.zeros(cfg.D, jnp.float32)} if cfg.bias else {})},
  }
  if not cfg.tied:
    params['output'] = {'table': embedding.table(jax.random.fold_in(key, 1), cfg.V, cfg.D, 0.02)}
  for i, k in enumerate(keys):
    params[layout.layer_name(i)] = transformer.init_block(Block(cfg), cfg.D, k, dtype=cfg.dtype)
  return params


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """Return a key/value cache for `length` positions, see `kv_cache.empty`."""
  return kv_cache.empty(batch_size, length, cfg.N, cfg.H, cfg.D // cfg.H, cfg.dtype)


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the layers over `tokens_BT`.

  With a cache, each row continues at its own position: its keys and values are written there, and its queries attend
  to all of its earlier positions. Padding is on the right; the next tokens overwrite its keys, which no real token
  attends to. Positions beyond the cache are not checked here (the decoder checks them).

  Args:
    batch: tokens_BT; valid_BT (padding on the right), documents_BT and position_BT (packed documents), reset_B: all
      optional. Without position_BT positions are 0 .. T-1, or continue from the cache.
    state: () or a cache from `init_state`.
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the embeddings and the residual path after each layer (before the last normalisation).

  Returns:
    (Features with last_BTD after the last normalisation, state).

  Raises:
    InputError: more tokens than positions; packed documents together with a cache.
  """
  T = batch['tokens_BT'].shape[1]
  if T > cfg.T:
    raise InputError(f'gpt2: {T} tokens in a row, but the model has T = {cfg.T} positions')
  embed_key, layers_key = dropout.split(key, 2)
  mask, caches, position_BT, read_B = kv_cache.begin('gpt2', batch, state)
  x_BTD = embedding.lookup(params['embed']['tokens'], batch['tokens_BT'], cfg.dtype)
  x_BTD = embedding.add_positions(x_BTD, params['embed']['positions'], position_BT)
  x_BTD = dropout.dropout(x_BTD, cfg.dropout_embedding, embed_key)
  x_BTD, caches, hidden = transformer.stack(
    Block(cfg),
    layout.layers(params, range(cfg.N)),
    x_BTD,
    mask,
    caches=caches,
    position_BT=position_BT,
    key=layers_key,
    scan=cfg.scan,
    remat=cfg.remat,
  )
  last_BTD = dense.layer_norm(x_BTD, params['norm']['scale'], params['norm'].get('bias'), cfg.eps)
  features = Features(last_BTD.astype(cfg.dtype), layers=hidden if all_layers else None)
  return features, {'position_B': read_B, 'layers': caches} if state else ()


def _output(cfg: Config, params: Params) -> Array:
  """Return the output matrix, (V, D)."""
  return params['embed']['tokens'] if cfg.tied else params['output']['table']


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of the next token, (B, T, V) float32."""
  return softmax.tied_logits(features.last_BTD, _output(cfg, params), size=cfg.V)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32."""
  return softmax.tied_nll(features.last_BTD, _output(cfg, params), targets_BT, size=cfg.V)
