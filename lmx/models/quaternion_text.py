"""Quaternion Transformer over one text: Tay, Zhang, Luu, Rao, Zhang, Wang, Fu & Hui 2019 (arXiv 1906.04393).

The layers of models/quaternion_transformer.py without a source (lmx/layers/quaternion.py), for two uses:
- `causal=False`: the encoder with which the paper classifies sentiment (section 4), tensor2tensor's
  transformer_tiny: 2 layers, D 128, F 512, 4 heads. `encoder_base`, `encoder_partial` and `encoder_full` have 395,776,
  297,472 and 99,584 parameters without the embedding; the table prints 400K, 300K and 100K. Pooling for
  classification belongs to the objective: tensor2tensor takes the mean of the outputs.
- `causal=True`: a language model, which the paper does not have; `base`, `partial` and `full` are its translation
  decoder without cross-attention. The output matrix is the embedding.

Deviations: as in models/quaternion_transformer.py.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from lmx import layout
from lmx.errors import InputError, check_range
from lmx.layers import embedding, kv_cache, quaternion, sinusoids, softmax, transformer
from lmx.ops import dense, dropout
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True  # with `causal=False` there is neither a state nor next-token logits
OBJECTIVE = 'causal_lm'
HEADS = ('embed',)  # not included in the paper's counts
VOCABULARY = ('embed/tokens',)
TIED = ('embed/tokens',)


@dataclasses.dataclass(frozen=True)
class Config(quaternion.Config):
  """Sizes and switches, in addition to those of `quaternion.Config`.

  Attributes:
    N: layers.
    causal: a token attends to those up to it; otherwise to its whole row.
  """

  N: int = 6
  causal: bool = True

  def __post_init__(self) -> None:
    super().__post_init__()
    check_range('model.N', self.N, 1)


_ENCODER = dict(N=2, D=128, F=512, H=4, causal=False)  # tensor2tensor's transformer_tiny
VARIANTS = {
  'base': dict(quaternion='none'),
  'partial': dict(quaternion='partial'),
  'full': dict(quaternion='full'),
  'encoder_base': dict(**_ENCODER, quaternion='none'),  # table of sentiment
  'encoder_partial': dict(**_ENCODER, quaternion='partial'),
  'encoder_full': dict(**_ENCODER, quaternion='full'),
  'tiny': dict(V=97, D=32, F=48, H=4, N=2, bias=True),
}


def init(cfg: Config, key: Array) -> Params:
  """Initialise the parameters: embed (tokens), layer_00 .., and norm if pre-norm."""
  tokens_key, *keys = jax.random.split(key, cfg.N + 1)
  block = quaternion.block(cfg, causal=cfg.causal)
  params: dict[str, Params] = {'embed': {'tokens': embedding.table(tokens_key, cfg.V, cfg.D, cfg.D**-0.5)}}
  for i, k in enumerate(keys):
    params[layout.layer_name(i)] = transformer.init_block(block, cfg.D, k, dtype=cfg.dtype)
  if cfg.norm == 'pre':
    params['norm'] = {'scale': jnp.ones(cfg.D, jnp.float32), 'bias': jnp.zeros(cfg.D, jnp.float32)}
  return params


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """Return a key/value cache for `length` positions, see `kv_cache.empty`.

  Raises:
    InputError: the model is bidirectional.
  """
  if length and not cfg.causal:
    raise InputError(
      'quaternion_text: got model.causal=false, so tokens attend to later ones; generation needs a causal '
      'model; set model.causal=true'
    )
  return kv_cache.empty(batch_size, length, cfg.N, cfg.H, cfg.D // cfg.H, cfg.dtype)


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the layers over `tokens_BT`.

  Args:
    batch: tokens_BT; valid_BT (padding on the right), documents_BT and position_BT (packed documents), reset_B: all
      optional.
    state: () or a cache from `init_state`, used as in models/gpt2.py.
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the embeddings and the residual path after each layer (before the last normalisation).

  Raises:
    InputError: packed documents together with a cache.
  """
  embed_key, layers_key = dropout.split(key, 2)
  mask, caches, position_BT, read_B = kv_cache.begin('quaternion_text', batch, state)
  length = caches[0][0].shape[1] if state else 0
  x_BTD = sinusoids.embed(params['embed']['tokens'], batch['tokens_BT'], cfg.positions, position_BT, length)
  x_BTD, caches, hidden = transformer.stack(
    quaternion.block(cfg, causal=cfg.causal),
    layout.layers(params, range(cfg.N)),
    dropout.dropout(x_BTD.astype(cfg.dtype), cfg.dropout, embed_key),
    mask,
    caches=caches,
    position_BT=position_BT,
    key=layers_key,
    scan=cfg.scan,
    remat=cfg.remat,
  )
  if cfg.norm == 'pre':
    norm = params['norm']
    x_BTD = dense.layer_norm(x_BTD, norm['scale'], norm['bias'], quaternion.EPS).astype(cfg.dtype)
  features = Features(x_BTD, layers=hidden if all_layers else None)
  return features, {'position_B': read_B, 'layers': caches} if state else ()


def _next_token(cfg: Config) -> None:
  if not cfg.causal:
    raise InputError(
      'quaternion_text: got model.causal=false, so positions attend to the token that they predict; train it '
      'with objective "classify", "regress", "tag" or "span", or set model.causal=true'
    )


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of the next token, (B, T, V) float32; raise InputError if the model is bidirectional."""
  _next_token(cfg)
  return softmax.tied_logits(features.last_BTD, params['embed']['tokens'], size=cfg.V)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T); raise InputError if bidirectional."""
  _next_token(cfg)
  return softmax.tied_nll(features.last_BTD, params['embed']['tokens'], targets_BT, size=cfg.V)
