"""Character Transformer: Al-Rfou, Choe, Constant, Guo & Jones 2018, "Character-Level Language Modeling with Deeper
Self-Attention" (arXiv 1808.04444), sections 2 and 3.

A causal Transformer over bytes. Learned positions are added to the input of every layer, and each layer has its own
table ("Positional embeddings": N x T x D parameters). Dropout is only in the attention and in the ReLU layers. In
training every layer predicts the next character and the one after it, each with its own classifier over all
256 bytes ("Intermediate layer losses", "Multiple targets"; lmx/objectives/character_aux.py). The model's prediction is
that of the last layer for the next character.

Parameters with these classifiers (as trained), and with only the last layer's next-character classifier (as used); the
paper's table prints them in millions:

  variant  layers       positions   classifiers  trained            used
  t12       37,804,032   3,145,728   3,151,872    44,232,704 (44)    41,212,160 (41)
  t64      201,621,504  16,777,216  16,809,984   235,339,776 (235)  218,661,120 (219)

Both include the table of 256 x 512 tokens, 131,072. A layer has 4 D^2 + 2 D F + F + D + 4 D.

Not specified in the paper, and chosen as in Vaswani et al. 2017 and tensor2tensor, which it cites: layer
normalisation after each sub-block (`norm='post'`; 'pre', with another one before each layer's classifiers, is
tensor2tensor's), no biases in attention, Glorot initialisation of kernels. Tokens have standard deviation 1 and are not
scaled, positions and classifiers 1 / sqrt(D). `positions='sinusoids'` is the alternative to the tables: the
sinusoids of Vaswani et al. added to the input of the first layer. That this is the ablation "without positional
embedding in each layer" is an assumption.

A text longer than T is read in windows, as by the paper's evaluator, which moves the window by one character and scores
the last position (`evaluation.stride=1`). A position is relative to its window, so keys cannot be cached
when the window moves: generation reads the last half of a full window again (lmx/decoding/generate.py).

Axes: see lmx/types.py.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from lmx import layout
from lmx.errors import InputError, check_choice, check_heads, check_least, check_range
from lmx.layers import embedding, kv_cache, sinusoids, softmax, transformer
from lmx.layers.block import Block
from lmx.ops import attention, dense
from lmx.ops.rematerialisation import Policy
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
OBJECTIVE = 'character_aux'
HEADS = ('output',)
TARGETS = ('next', 'second')  # targets of each layer's classifiers
EPS = 1e-6  # epsilon of layer normalisation, tensor2tensor
_NAMES = tuple(layout.layer_name(i) for i in range(100))
VOCABULARY = (
  'embed/tokens',
  *(f'output/{name}/{target}/{leaf}' for name in _NAMES for target in TARGETS for leaf in ('table', 'bias')),
)
POSITIONS = tuple(f'{name}/positions' for name in _NAMES)


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: vocabulary size; the paper predicts all 256 bytes, on text8 too.
    T: maximum sequence length.
    D: width.
    F: width of the feed-forward networks.
    H: heads.
    N: layers.
    norm: 'post' or 'pre', see the module's docstring.
    positions: 'layers' (learned, in every layer) or 'sinusoids' (added to the input of the first).
    dropout: dropout rate of the attention probabilities and inside the feed-forward networks.
    dtype: compute type.
    attention: backend, one of lmx.ops.attention.BACKENDS.
    scan: compile one layer and loop over it.
    remat: activations that are kept for the backward pass, see lmx/ops/rematerialisation.py.
  """

  V: int = 256
  T: int = 512
  D: int = 512
  F: int = 2048
  H: int = 2
  N: int = 12
  norm: str = 'post'
  positions: str = 'layers'
  dropout: float = 0.2
  dtype: str = 'float32'
  attention: str = 'auto'
  scan: bool = False
  remat: Policy = 'none'

  def __post_init__(self) -> None:
    check_heads('character_transformer', self.D, self.H, even=True)
    check_least('model', self, T=1, F=1, N=1)
    check_choice('model.norm', self.norm, ('post', 'pre'))
    check_choice('model.positions', self.positions, ('layers', 'sinusoids'))
    check_choice('model.attention', self.attention, attention.BACKENDS)
    check_range('model.dropout', self.dropout, 0, 1)


VARIANTS = {  # section 3
  't12': dict(N=12, dropout=0.2),
  't64': dict(N=64, dropout=0.55),
  'tiny': dict(V=97, T=64, D=16, F=32, H=2, N=2, dropout=0.1),
}


class PositionedBlock(Block):
  """Block whose input is x plus a learned vector of each position; `T` is the number of positions, 0 for none."""

  T: int = 0

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask: Any, cache: Any = None, position_BT: Any = None, key: Array | None = None
  ) -> tuple[Array, Any]:
    if self.T:
      D = x_BTD.shape[-1]
      table_TD = self.param('positions', nn.initializers.normal(D**-0.5), (self.T, D))
      x_BTD = embedding.add_positions(x_BTD, table_TD, position_BT)
    return super().__call__(x_BTD, mask, cache, position_BT, key)


def _block(cfg: Config) -> PositionedBlock:
  common: dict[str, Any] = dict(kernel_init=transformer.Init('glorot'), rate=cfg.dropout, dtype=cfg.dtype)
  attention = transformer.SelfAttention(cfg.H, causal=True, backend=cfg.attention, bias=False, **common)
  positions = cfg.T if cfg.positions == 'layers' else 0
  return PositionedBlock(
    attention, transformer.Mlp(cfg.F, 'relu', **common), cfg.norm, EPS, dtype=cfg.dtype, T=positions
  )


def init(cfg: Config, key: Array) -> Params:
  """Initialise embed (tokens), layer_00 .., output (next and second of each layer; norm if that is first)."""
  tokens_key, output_key, *keys = jax.random.split(key, cfg.N + 2)
  params: dict[str, Params] = {'embed': {'tokens': embedding.table(tokens_key, cfg.V, cfg.D, 1.0)}, 'output': {}}
  output: dict[str, Params] = {}
  for i, k in enumerate(keys):
    params[layout.layer_name(i)] = transformer.init_block(_block(cfg), cfg.D, k, dtype=cfg.dtype)
    output[layout.layer_name(i)] = _init_classifiers(cfg, jax.random.fold_in(output_key, i))
  return params | {'output': output}


def _init_classifiers(cfg: Config, key: Array) -> Params:
  zeros = lambda n: jnp.zeros(n, jnp.float32)
  classifier = lambda key: {'table': embedding.table(key, cfg.V, cfg.D, cfg.D**-0.5), 'bias': zeros(cfg.V)}
  classifiers = {target: classifier(k) for target, k in zip(TARGETS, jax.random.split(key), strict=True)}
  return classifiers | ({'norm': {'scale': 1 + zeros(cfg.D), 'bias': zeros(cfg.D)}} if cfg.norm == 'pre' else {})


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """Return a key/value cache for `length` positions, see `kv_cache.empty`."""
  return kv_cache.empty(batch_size, length, cfg.N, cfg.H, cfg.D // cfg.H, cfg.dtype)


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the layers over `tokens_BT`; with a cache each row continues at its own position.

  Args:
    batch: tokens_BT; valid_BT (padding on the right), documents_BT and position_BT (packed documents), reset_B: all
      optional. Without position_BT positions are 0 .. T-1, or continue from the cache.
    state: () or a cache from `init_state`.
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the embeddings and the output of each layer.

  Returns:
    (Features, state); last_BTD is the input of the last layer's classifiers.

  Raises:
    InputError: more tokens than positions; packed documents together with a cache.
  """
  T = batch['tokens_BT'].shape[1]
  if T > cfg.T:
    raise InputError(f'character_transformer: {T} tokens in a row, but the model has T = {cfg.T} positions')
  mask, caches, position_BT, read_B = kv_cache.begin('character_transformer', batch, state)
  x_BTD = embedding.lookup(params['embed']['tokens'], batch['tokens_BT'], cfg.dtype)
  if cfg.positions == 'sinusoids':
    table_TD = jnp.asarray(sinusoids.table(cfg.T, cfg.D, 'interleaved'))
    x_BTD = embedding.add_positions(x_BTD, table_TD, position_BT)
  x_BTD, caches, hidden = transformer.stack(
    _block(cfg),
    layout.layers(params, range(cfg.N)),
    x_BTD,
    mask,
    caches=caches,
    position_BT=position_BT,
    key=key,
    scan=cfg.scan,
    remat=cfg.remat,
  )
  features = Features(_normalize(cfg, _last_classifiers(cfg, params), x_BTD), layers=hidden if all_layers else None)
  return features, {'position_B': read_B, 'layers': caches} if state else ()


def _last_classifiers(cfg: Config, params: Params) -> Params:
  return params['output'][layout.layer_name(cfg.N - 1)]


def _normalize(cfg: Config, classifiers: Params, x_BTD: Array) -> Array:
  """Return the input of a layer's classifiers: its output, normalised where the layer itself does not do so."""
  if cfg.norm == 'post':
    return x_BTD
  norm = classifiers['norm']
  return dense.layer_norm(x_BTD, norm['scale'], norm['bias'], EPS).astype(cfg.dtype)


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of the next token, (B, T, V) float32."""
  head = _last_classifiers(cfg, params)['next']
  return softmax.tied_logits(features.last_BTD, head['table'], head['bias'], size=cfg.V)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32."""
  head = _last_classifiers(cfg, params)['next']
  return softmax.tied_nll(features.last_BTD, head['table'], targets_BT, head['bias'], size=cfg.V)


def readouts(cfg: Config, params: Params, features: Features) -> list[tuple[Params, Array]]:
  """Return the classifiers and output of every layer, from features with `layers`; equal shapes, so traced once."""
  if features.layers is None:
    raise ValueError('readouts needs features of apply(..., all_layers=True)')
  return [(params['output'][layout.layer_name(i)], features.layers[i + 1]) for i in range(cfg.N)]


def readout_nll(cfg: Config, readout: tuple[Params, Array], targets_BT: Array, target: str) -> Array:
  """Return the negative log-likelihood of each target in nats under one of `readouts`, (B, T) float32.

  Args:
    readout: classifiers and output of a layer.
    targets_BT: target tokens.
    target: which classifier to use, one of TARGETS.
  """
  classifiers, x_BTD = readout
  x_BTD, head = _normalize(cfg, classifiers, x_BTD), classifiers[target]
  return softmax.tied_nll(x_BTD, head['table'], targets_BT, head['bias'], size=cfg.V)
