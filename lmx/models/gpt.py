"""GPT: Radford, Narasimhan, Salimans & Sutskever 2018, "Improving Language Understanding by Generative Pre-Training".

The decoder-only Transformer of sections 3.1 and 4.1: 12 post-norm layers of width 768 with 12 heads, learned positions
and tanh-GELU. The output matrix is tied to the embedding, without a bias (equation 2), unless `tied` is False. With
V = 40,478 tokens (40,000 merges, 478 characters and special tokens) and 512 positions it has 116,534,784 parameters;
tokens added for fine-tuning are further rows.

The released code (openai/finetune-transformer-lm) has tokens and positions in one table; `embed/tokens` and
`embed/positions` are its rows. `fidelity` selects what follows from that:
- 'paper': "residual, embedding, and attention dropouts with a rate of 0.1" (section 4.1): embedding dropout applies to
  the sum of token and position, and the softmax of equation 2 is over tokens.
- 'released': dropout applies to the elements of the table. So it affects the output matrix too, and a dropped element
  is dropped at every position of the batch. `nll` is a softmax over tokens and positions; `logits` are of tokens.

Kernels and tables are initialised from N(0, 0.02) (section 4.1).

Deviations: the width of the feed-forward network is always 4 D; the dropout mask is a hash
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
from lmx.ops import attention, dropout
from lmx.ops.masks import AttentionMask
from lmx.ops.rematerialisation import Policy
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
OBJECTIVE = 'causal_lm'
VOCABULARY = ('embed/tokens', 'output/table')
POSITIONS = ('embed/positions',)
FIDELITY = ('paper', 'released')


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: vocabulary size.
    T: maximum sequence length.
    D: width.
    H: heads.
    N: layers.
    tied: use the embedding as the output matrix; required by fidelity 'released'.
    fidelity: 'paper' or 'released', see the module's docstring.
    dropout_embedding: dropout rate of the sum of token and position, or of the table's elements.
    dropout_attention: dropout rate of the attention probabilities.
    dropout_residual: dropout rate of the output of each sub-layer.
    eps: epsilon of layer normalisation.
    init_std: standard deviation of kernels and tables.
    dtype: compute type.
    attention: backend, one of lmx.ops.attention.BACKENDS.
    scan: compile one layer and loop over it.
    remat: activations that are kept for the backward pass, see lmx/ops/rematerialisation.py.
  """

  V: int = 40_478
  T: int = 512  # section 4.1
  D: int = 768
  H: int = 12
  N: int = 12
  tied: bool = True
  fidelity: str = 'paper'
  dropout_embedding: float = 0.1  # section 4.1
  dropout_attention: float = 0.1
  dropout_residual: float = 0.1
  eps: float = 1e-5  # released code
  init_std: float = 0.02  # section 4.1
  dtype: str = 'float32'
  attention: str = 'auto'
  scan: bool = False
  remat: Policy = 'none'

  def __post_init__(self) -> None:
    check_heads('gpt', self.D, self.H)
    check_least('model', self, T=1, N=1, eps=0, init_std=0)
    check_choice('model.fidelity', self.fidelity, FIDELITY)
    if not self.tied and self.fidelity == 'released':
      raise InputError(
        "model.tied: got False with model.fidelity 'released', which always ties the output; set model.fidelity='paper'"
      )
    check_choice('model.attention', self.attention, attention.BACKENDS)
    for field in ('dropout_embedding', 'dropout_attention', 'dropout_residual'):
      check_range(f'model.{field}', getattr(self, field), 0, 1)


VARIANTS = {
  'base': dict(N=12, D=768, H=12),  # section 4.1
  'tiny': dict(V=97, T=64, N=2, D=32, H=4),
}


class Block(nn.Module):
  """Post-norm layer of section 3.1: x = norm(x + attention(x)), then x = norm(x + mlp(x))."""

  cfg: Config

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask: AttentionMask, cache: Any = None, position_BT: Any = None, key: Array | None = None
  ) -> tuple[Array, Any]:
    cfg, keys = self.cfg, transformer.layer_keys(key)
    common: dict[str, Any] = dict(kernel_init=Init(std=cfg.init_std), dtype=cfg.dtype)
    attention = SelfAttention(
      cfg.H, causal=True, backend=cfg.attention, rate=cfg.dropout_attention, **common, name='attention'
    )
    mlp = Mlp(4 * cfg.D, 'gelu_tanh', **common, name='mlp')
    norm_1, norm_2 = (Norm(cfg.eps, cfg.dtype, name=name) for name in ('norm_1', 'norm_2'))
    drop = lambda f_BTD, key: dropout.dropout(f_BTD, cfg.dropout_residual, key)

    f_BTD, cache = attention(x_BTD, mask, cache, position_BT, keys.attention)
    x_BTD = norm_1(x_BTD + drop(f_BTD, keys.residual_1))
    x_BTD = norm_2(x_BTD + drop(mlp(x_BTD, keys.mlp), keys.residual_2))
    return x_BTD, cache


def init(cfg: Config, key: Array) -> Params:
  """Initialise the parameters: embed (tokens, positions), layer_00 .., and output (table) if not tied."""
  tokens_key, positions_key, *keys = jax.random.split(key, cfg.N + 2)
  params: dict[str, Params] = {
    'embed': {
      'tokens': embedding.table(tokens_key, cfg.V, cfg.D, cfg.init_std),
      'positions': embedding.table(positions_key, cfg.T, cfg.D, cfg.init_std),
    }
  }
  if not cfg.tied:
    params['output'] = {'table': embedding.table(jax.random.fold_in(key, 1), cfg.V, cfg.D, cfg.init_std)}
  for i, k in enumerate(keys):
    params[layout.layer_name(i)] = transformer.init_block(Block(cfg), cfg.D, k, dtype=cfg.dtype)
  return params


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """Return a key/value cache for `length` positions, see `kv_cache.empty`."""
  return kv_cache.empty(batch_size, length, cfg.N, cfg.H, cfg.D // cfg.H, cfg.dtype)


def _table(cfg: Config, params: Params) -> Array:
  """Return the table of tokens and positions, (V + T, D)."""
  return jnp.concatenate([params['embed']['tokens'][: cfg.V], params['embed']['positions']])


def _embed(
  cfg: Config, params: Params, batch: Batch, position_BT: Array | None, key: Array | None
) -> tuple[Array, Array | None]:
  """Return (the input (B, T, D) after dropout, the table after dropout or None where the table has none)."""
  tables, dropped_VD = params['embed'], None
  if cfg.fidelity == 'released' and key is not None and cfg.dropout_embedding:
    dropped_VD = dropout.dropout(_table(cfg, params), cfg.dropout_embedding, key)
    tables = {'tokens': dropped_VD[: cfg.V], 'positions': dropped_VD[cfg.V :]}
  tokens_BT = batch['tokens_BT']
  x_BTD = embedding.lookup(tables['tokens'], tokens_BT, cfg.dtype)
  x_BTD = embedding.add_positions(x_BTD, tables['positions'], position_BT)
  return x_BTD if dropped_VD is not None else dropout.dropout(x_BTD, cfg.dropout_embedding, key), dropped_VD


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the layers over `tokens_BT`.

  Args:
    batch: tokens_BT; valid_BT (padding on the right), documents_BT and position_BT (packed documents), reset_B: all
      optional. Without position_BT positions are 0 .. T-1, or continue from the cache.
    state: () or a cache from `init_state`, used as in models/gpt2.py.
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the embeddings and each layer's output.

  Returns:
    (Features with last_BTD and, where dropout applies to the table, table_VD; state).

  Raises:
    InputError: more tokens than positions; packed documents together with a cache.
  """
  T = batch['tokens_BT'].shape[1]
  if T > cfg.T:
    raise InputError(f'gpt: {T} tokens in a row, but the model has T = {cfg.T} positions')
  embed_key, layers_key = dropout.split(key, 2)
  mask, caches, position_BT, read_B = kv_cache.begin('gpt', batch, state)
  x_BTD, dropped_VD = _embed(cfg, params, batch, position_BT, embed_key)
  last_BTD, caches, hidden = transformer.stack(
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
  features = Features(last_BTD, layers=hidden if all_layers else None, table_VD=dropped_VD)
  return features, {'position_B': read_B, 'layers': caches} if state else ()


def _output(cfg: Config, params: Params) -> Array:
  """Return the output matrix, (V, D)."""
  return params['embed']['tokens'] if cfg.tied else params['output']['table']


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of the next token, (B, T, V) float32."""
  table_VD = _output(cfg, params) if features.table_VD is None else features.table_VD[: cfg.V]
  return softmax.tied_logits(features.last_BTD, table_VD, size=cfg.V)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32; 'released' adds positions as classes."""
  if features.table_VD is not None:
    return softmax.tied_nll(features.last_BTD, features.table_VD, targets_BT)
  if cfg.fidelity == 'released':
    return softmax.tied_nll(features.last_BTD, _table(cfg, params), targets_BT)
  return softmax.tied_nll(features.last_BTD, _output(cfg, params), targets_BT, size=cfg.V)
