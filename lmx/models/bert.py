"""BERT: Devlin, Chang, Lee & Toutanova 2019 (arXiv 1810.04805), "Pre-training of Deep Bidirectional Transformers".

The encoder of section 3 (layer normalisation after each residual connection). The input is the sum of token, position
and segment embeddings (figure 2), with layer normalisation and dropout. Heads: the pooler over [CLS], and the masked-LM
head of the released code (dense, GELU, LayerNorm, then the output matrix, tied to the embedding unless `tied` is False,
and a bias). The next-sentence head is in the objective masked_lm. Sizes base and large are section 3's, tiny to medium
those of Turc et al. 2019 (arXiv 1908.08962). Parameters without the masked-LM head, at V = 30,522 and T = 512: base
109,482,240, large 335,141,888.

As released (google-research/bert): LayerNorm's epsilon is 1e-12 (the default of TensorFlow's contrib layer), GELU the
tanh form (`gelu='erf'` is the exact one of the paper's reference and of Hugging Face's default). Kernels and embeddings
are truncated normal with standard deviation 0.02, dropout is 0.1 everywhere. Deviation: its mask is a hash.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from lmx import layout
from lmx.errors import InputError, check_choice, check_heads, check_least, check_range
from lmx.layers import embedding, softmax, transformer
from lmx.layers.transformer import Init, Mlp, Norm, SelfAttention
from lmx.ops import attention, dense, dropout, masks
from lmx.ops.masks import AttentionMask
from lmx.ops.rematerialisation import Policy
from lmx.placement import constrain
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = False
OBJECTIVE = 'masked_lm'
HEADS = ('mlm',)
VOCABULARY = ('embed/tokens', 'mlm/table', 'mlm/bias')
TIED = ('embed/tokens', 'mlm/table')
POSITIONS = ('embed/positions',)
SPECIAL_TOKENS = ({'cls_id': 0}, {'sep_id': 0})


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: vocabulary size.
    T: maximum sequence length.
    E: segment types.
    D: width.
    H: heads.
    N: layers.
    F: width of the feed-forward networks; 0 is 4 D.
    tied: use the embedding as the output matrix.
    causal: mask keys after the query, as in the left-to-right model of section 5.1.
    gelu: 'tanh' (released) or 'erf'.
    dropout_hidden: dropout rate of the embeddings and of the output of each sub-layer.
    dropout_attention: dropout rate of the attention probabilities.
    eps: epsilon of layer normalisation.
    init_std: standard deviation of kernels and tables.
    dtype: compute type.
    attention: backend, one of lmx.ops.attention.BACKENDS.
    scan: compile one layer and loop over it.
    remat: activations that are kept for the backward pass, see lmx/ops/rematerialisation.py.
  """

  V: int = 30_522
  T: int = 512
  E: int = 2
  D: int = 768
  H: int = 12
  N: int = 12
  F: int = 0
  tied: bool = True
  causal: bool = False
  gelu: str = 'tanh'
  eps: float = 1e-12  # released code
  dropout_hidden: float = 0.1
  dropout_attention: float = 0.1
  init_std: float = 0.02  # released configuration's initializer_range
  dtype: str = 'float32'
  attention: str = 'auto'
  scan: bool = False
  remat: Policy = 'none'

  def __post_init__(self) -> None:
    check_heads('bert', self.D, self.H)
    check_least('model', self, T=1, E=1, N=1, F=0, eps=0, init_std=0)
    check_choice('model.gelu', self.gelu, ('tanh', 'erf'))
    check_choice('model.attention', self.attention, attention.BACKENDS)
    for field in ('dropout_hidden', 'dropout_attention'):
      check_range(f'model.{field}', getattr(self, field), 0, 1)


VARIANTS = {
  'base': dict(N=12, D=768, H=12),  # section 3
  'large': dict(N=24, D=1024, H=16),
  'tiny': dict(N=2, D=128, H=2),  # Turc et al. 2019; the size for tests too
  'mini': dict(N=4, D=256, H=4),
  'small': dict(N=4, D=512, H=8),
  'medium': dict(N=8, D=512, H=8),
}


class Block(nn.Module):
  """Post-norm layer of section 3: x = norm(x + attention(x)), then x = norm(x + mlp(x))."""

  cfg: Config

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask: AttentionMask, cache: Any = None, position_BT: Any = None, key: Array | None = None
  ) -> tuple[Array, Any]:
    cfg, keys = self.cfg, transformer.layer_keys(key)
    common: dict[str, Any] = dict(kernel_init=Init('truncated', cfg.init_std), dtype=cfg.dtype)
    attention = SelfAttention(
      cfg.H, causal=cfg.causal, backend=cfg.attention, rate=cfg.dropout_attention, **common, name='attention'
    )
    mlp = Mlp(cfg.F or 4 * cfg.D, f'gelu_{cfg.gelu}', **common, name='mlp')
    norm_1, norm_2 = (Norm(cfg.eps, cfg.dtype, name=name) for name in ('norm_1', 'norm_2'))
    drop = lambda f_BTD, key: dropout.dropout(f_BTD, cfg.dropout_hidden, key)

    f_BTD, cache = attention(x_BTD, mask, cache, position_BT, keys.attention)
    x_BTD = norm_1(x_BTD + drop(f_BTD, keys.residual_1))
    x_BTD = norm_2(x_BTD + drop(mlp(x_BTD, keys.mlp), keys.residual_2))
    return x_BTD, cache


def _norm(D: int) -> Params:
  return {'scale': jnp.ones(D, jnp.float32), 'bias': jnp.zeros(D, jnp.float32)}


def init(cfg: Config, key: Array) -> Params:
  """Initialise embed (tokens, positions, types, norm), layer_00 .., pooler, mlm (dense, norm, bias, untied table)."""
  keys, D = jax.random.split(key, cfg.N + 5), cfg.D
  draw = lambda i, rows: embedding.table(keys[i], rows, D, cfg.init_std, truncated=True)
  params: dict[str, Any] = {
    'embed': {'tokens': draw(0, cfg.V), 'positions': draw(1, cfg.T), 'types': draw(2, cfg.E), 'norm': _norm(D)},
    'pooler': {'kernel': draw(3, D), 'bias': jnp.zeros(D, jnp.float32)},
    'mlm': {
      'dense': {'kernel': draw(4, D), 'bias': jnp.zeros(D, jnp.float32)},
      'norm': _norm(D),
      'bias': jnp.zeros(cfg.V, jnp.float32),
    },
  }
  if not cfg.tied:
    params['mlm']['table'] = embedding.table(jax.random.fold_in(key, 1), cfg.V, D, cfg.init_std, truncated=True)
  for i in range(cfg.N):
    params[layout.layer_name(i)] = transformer.init_block(Block(cfg), D, keys[i + 5], dtype=cfg.dtype)
  return params


def _embed(cfg: Config, params: Params, batch: Batch, key: Array | None) -> Array:
  """Return the input of figure 2, (B, T, D): the sum of three embeddings, normalised, with dropout."""
  tables, tokens_BT = params['embed'], batch['tokens_BT']
  types_BT = batch['types_BT'] if 'types_BT' in batch else jnp.zeros_like(tokens_BT)
  x_BTD = embedding.lookup(tables['tokens'], tokens_BT, 'float32')
  x_BTD = x_BTD + embedding.lookup(tables['types'], types_BT, 'float32')
  x_BTD = embedding.add_positions(x_BTD, tables['positions'], batch.get('position_BT'))
  x_BTD = dense.layer_norm(x_BTD, tables['norm']['scale'], tables['norm']['bias'], cfg.eps)
  return dropout.dropout(x_BTD.astype(cfg.dtype), cfg.dropout_hidden, key)


def _dense(params: Params, x: Array) -> Array:
  y = dense.dot(x.reshape(-1, x.shape[-1]), params['kernel'], 1).reshape(*x.shape[:-1], -1)
  return dense.add(y, params['bias'])


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Encode `tokens_BT`.

  Args:
    batch: tokens_BT; types_BT (segment of each token, default 0), valid_BT (invalid tokens are masked out),
      documents_BT and position_BT (packed documents): all optional.
    state: (), passed through.
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the embeddings and each layer's output.

  Returns:
    (Features with last_BTD and pooled_BD, the pooler's tanh output at the first token; state).

  Raises:
    InputError: more tokens than positions.
  """
  T = batch['tokens_BT'].shape[1]
  if T > cfg.T:
    raise InputError(f'bert: {T} tokens in a row, but the model has T = {cfg.T} positions')
  embed_key, layers_key = dropout.split(key, 2)
  last_BTD, _, hidden = transformer.stack(
    Block(cfg),
    layout.layers(params, range(cfg.N)),
    _embed(cfg, params, batch, embed_key),
    masks.from_batch(batch),
    key=layers_key,
    scan=cfg.scan,
    remat=cfg.remat,
  )
  return Features(last_BTD, pool(params, last_BTD[:, 0]), hidden if all_layers else None), state


def pool(params: Params, first_BD: Array) -> Array:
  """Return the summary of each row, the pooler's output for its first token."""
  return constrain(jnp.tanh(_dense(params['pooler'], constrain(first_BD, 'B'))), 'B')


def _transform(cfg: Config, params: Params, features: Features) -> Array:
  """Return the input of the masked-LM output matrix: dense, GELU, LayerNorm."""
  head = params['mlm']
  x_BTD = transformer.ACTIVATIONS[f'gelu_{cfg.gelu}'](_dense(head['dense'], features.last_BTD))
  return dense.layer_norm(x_BTD, head['norm']['scale'], head['norm']['bias'], cfg.eps).astype(cfg.dtype)


def _output(cfg: Config, params: Params) -> Array:
  """Return the output matrix, (V, D)."""
  return params['embed']['tokens'] if cfg.tied else params['mlm']['table']


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of the token at each position, (B, T, V) float32."""
  return softmax.tied_logits(_transform(cfg, params, features), _output(cfg, params), params['mlm']['bias'], size=cfg.V)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32."""
  x_BTD = _transform(cfg, params, features)
  return softmax.tied_nll(x_BTD, _output(cfg, params), targets_BT, params['mlm']['bias'], size=cfg.V)
