"""Sparse Transformer: Child, Gray, Radford & Sutskever 2019, "Generating Long Sequences with Sparse Transformers".

A language model over long sequences (arXiv 1904.10509) whose attention is factorized (sparse_attention.py, section 4;
`pattern` and the three ways to take its two sets of section 5.1, `merge`), with

- pre-activation residual blocks (section 5.2): a = dropout(attention(norm(H))), b = dropout(ff(norm(H + a))), then
  H + a + b, a normalisation at the end, f(x) = x sigmoid(1.702 x), and dropout nowhere else;
- projections onto the residual path begun smaller by 1 / sqrt(2 N) (section 5.2);
- learned attention embeddings added to the tokens' (section 5.3): for text two, of the row and the column of a position
  in a matrix as wide as the stride;
- attention computed again in the backward pass (section 5.4), which is `remat`: here that of whole blocks.

`pattern='dense'` is the same model with full attention and equally many parameters, the paper's comparison (table 2).
Enwik8's size has 94,949,376 parameters, "95M" in table 1. Sizes for images (59M, 152M) and music are not here: their
data, inputs of three channels among it, are outside of this project.

`fidelity` is that of sparse_attention.py; enwik8 has 'released', different summary columns for different heads, which
section 4.3 too calls preferable. `init` is the reading of section 6's N(0, 0.125 / sqrt(d)), d the inputs of a matrix:
- 'paper': that as deviation; tokens 0.125 / sqrt(D), attention embeddings 0.125 / sqrt(2 D);
- 'released': 0.125 / d as variance, as in the authors' later code (openai/distribution_augmentation), whose tokens have
  0.013 and positions 0.007 / sqrt(2).
The output matrix begins at 0 and is not that of the embedding; biases begin at 0.

Deviations: bfloat16 in the place of float16 with a scaled loss (section 5.6); plain products in the place of kernels
(section 5.5); the mask of dropout comes from a hash (lmx/kernels/hash_dropout.py). In packed documents positions and
patterns are those of the row. Epsilon of normalisation is the released code's, the paper prints none.

Axes: see lmx/layers/sparse_attention.py.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_choice, check_heads, check_least, check_range
from lmx.layers import attention, dropout, embedding, kv_cache, masks, softmax, sparse_attention, transformer
from lmx.layers.block import Block
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
OBJECTIVE = 'causal_lm'
HEADS: tuple[str, ...] = ()
VOCABULARY = ('embed/tokens', 'output/table')
POSITIONS = ('embed/rows',)
EPS = 1e-5  # of layer normalisation, released code
PATTERNS = (*sparse_attention.PATTERNS, 'dense')
MERGES = ('alternate', 'merged', 'heads')
INITS = ('paper', 'released')
_EMBEDDINGS = 2  # n_emb of text, section 5.3


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: vocabulary size.
    T: positions, the longest window.
    D: width.
    H: heads.
    N: layers.
    pattern: 'strided', 'fixed' or 'dense'.
    merge: section 5.1: 'alternate' (a layer has the first set, the next the second), 'merged' or 'heads'.
    stride: l.
    summary: c, summary columns of 'fixed'.
    fidelity: one of lmx.layers.sparse_attention.FIDELITIES.
    init: 'paper' or 'released', see the module's docstring.
    dropout: of what is added to the residual path.
    dtype: compute type.
    attention: backend of 'dense', one of lmx.layers.attention.BACKENDS.
    scan: compile one layer and loop over it, where neighbouring layers are alike (not with 'alternate').
    remat: compute a layer's activations again in the backward pass.
  """

  V: int = 256
  T: int = 12_288  # section 7.2, as all that follow
  D: int = 512
  H: int = 8
  N: int = 30
  pattern: str = 'fixed'
  merge: str = 'merged'
  stride: int = 128
  summary: int = 32
  fidelity: str = 'paper'
  init: str = 'paper'
  dropout: float = 0.4
  dtype: str = 'float32'
  attention: str = 'auto'
  scan: bool = False
  remat: bool = False

  def __post_init__(self) -> None:
    check_heads('sparse_transformer', self.D, self.H)
    check_least('model', self, T=1, N=1, stride=1)
    check_choice('model.pattern', self.pattern, PATTERNS)
    check_choice('model.merge', self.merge, MERGES)
    check_choice('model.fidelity', self.fidelity, sparse_attention.FIDELITIES)
    check_choice('model.init', self.init, INITS)
    check_choice('model.attention', self.attention, attention.BACKENDS)
    check_range('model.summary', self.summary, 1, self.stride + 1)
    check_range('model.dropout', self.dropout, 0, 1)
    if self.fidelity == 'released' and self.stride % self.summary:
      raise InputError(
        f'model.fidelity="released" divides model.stride = {self.stride} into runs of model.summary = '
        f'{self.summary}, which do not fill it'
      )
    if self.merge == 'heads' and self.H < 2:
      raise InputError('model.merge="heads" gives different heads different sets: set model.H to 2 or more')


VARIANTS: dict[str, dict[str, Any]] = {
  'enwik8': dict(fidelity='released'),  # section 7.2
  'tiny': dict(V=97, T=64, D=32, H=4, N=2, stride=4, summary=1),
}


def _block(cfg: Config, i: int) -> Block:
  """Layer i."""
  one = 0.125 if cfg.init == 'paper' else 0.125**0.5  # section 6
  common: dict[str, Any] = dict(kernel_init=transformer.Init('fan_in', one, one * (2 * cfg.N) ** -0.5), dtype=cfg.dtype)
  attention = transformer.SelfAttention(cfg.H, causal=True, backend=cfg.attention, **common)
  if cfg.pattern != 'dense':
    sets = ('first', 'second')[i % 2] if cfg.merge == 'alternate' else cfg.merge
    plan = sparse_attention.Plan(cfg.pattern, sets, cfg.stride, cfg.summary, cfg.fidelity)
    attention = sparse_attention.SparseAttention(cfg.H, plan=plan, **common)
  mlp = transformer.Mlp(4 * cfg.D, 'gelu_sigmoid', **common)  # width of section 6
  return Block(attention, mlp, 'pre', EPS, cfg.dropout, cfg.dtype)


def _period(cfg: Config) -> int:
  """After how many layers their sets repeat."""
  return 2 if cfg.merge == 'alternate' and cfg.pattern != 'dense' else 1


def init(cfg: Config, key: Array) -> Params:
  """Parameters: embed (tokens, rows, columns), layer_00 .., norm, output."""
  tokens_key, rows_key, columns_key, *keys = jax.random.split(key, cfg.N + 3)
  tokens, places = (0.125 * cfg.D**-0.5,) * 2 if cfg.init == 'paper' else (0.013, 0.007)
  places *= _EMBEDDINGS**-0.5
  params: dict[str, Params] = {
    'embed': {
      'tokens': embedding.table(tokens_key, cfg.V, cfg.D, tokens),
      'rows': embedding.table(rows_key, -(-cfg.T // cfg.stride), cfg.D, places),
      'columns': embedding.table(columns_key, cfg.stride, cfg.D, places),
    },
    'norm': {'scale': jnp.ones(cfg.D, jnp.float32), 'bias': jnp.zeros(cfg.D, jnp.float32)},
    'output': {'table': jnp.zeros((cfg.V, cfg.D), jnp.float32)},
  }
  for i, k in enumerate(keys):
    params[transformer.name(i)] = transformer.init_block(_block(cfg, i % _period(cfg)), cfg.D, k, dtype=cfg.dtype)
  return params


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """A key/value cache for `length` positions, see `cache.empty`."""
  return kv_cache.empty(batch_size, length, cfg.N, cfg.H, cfg.D // cfg.H, cfg.dtype)


def _embedded(cfg: Config, params: Params, tokens_BT: Array, position_BT: Array | None) -> Array:
  """Tokens, rows and columns of the matrix as wide as the stride, (B, T, D)."""
  if position_BT is None:
    position_BT = jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)[None]
  places = {'tokens': tokens_BT, 'rows': position_BT // cfg.stride, 'columns': position_BT % cfg.stride}
  return sum(embedding.lookup(params['embed'][name], ids_BT, cfg.dtype) for name, ids_BT in places.items())


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the layers over `tokens_BT`.

  Args:
    batch: tokens_BT; valid_BT (padding on the right), documents_BT (packed documents), reset_B: all optional.
    state: () or a cache of `init_state`, which is used as models/gpt2.py says.
    key: randomness of dropout, None at evaluation.
    all_layers: also return the embeddings and the residual path after each layer (before the last normalisation).

  Returns:
    (Features with last_BTD after the last normalisation, state).

  Raises:
    InputError: more tokens than positions; packed documents together with a cache.
  """
  T = batch['tokens_BT'].shape[1]
  if T > cfg.T:
    raise InputError(f'sparse_transformer: {T} tokens in a row, but the model has T = {cfg.T} positions')
  mask, caches, position_BT, read_B = masks.from_batch(batch), None, None, None
  if state:
    if 'documents_BT' in batch:
      raise InputError('sparse_transformer: packed documents (documents_BT) cannot be read into a key/value cache')
    position_BT, read_B = kv_cache.positions(batch, state)
    mask, caches = masks.AttentionMask(query_position_BT=position_BT), state['layers']
  x_BTD = _embedded(cfg, params, batch['tokens_BT'], position_BT)
  keys, seen, new = dropout.split(key, cfg.N), [x_BTD], list[kv_cache.Cache]()
  for kind, group in itertools.groupby(range(cfg.N), lambda i: i % _period(cfg)):
    at = list(group)
    x_BTD, found, outputs = transformer.stack(
      _block(cfg, kind),
      [params[transformer.name(i)] for i in at],
      x_BTD,
      mask,
      caches=None if caches is None else [caches[i] for i in at],
      position_BT=position_BT,
      key=keys[at[0]],
      scan=cfg.scan,
      remat=cfg.remat,
    )
    seen += outputs[1:]
    new += found or ()
  last_BTD = transformer.layer_norm(x_BTD, params['norm']['scale'], params['norm']['bias'], EPS)
  features = Features(last_BTD.astype(cfg.dtype), layers=tuple(seen) if all_layers else None)
  return features, {'position_B': read_B, 'layers': tuple(new)} if state else ()


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Scores of every next token, (B, T, V) float32."""
  del cfg
  return softmax.tied_logits(features.last_BTD, params['output']['table'])


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Negative log-likelihood of each target in nats, (B, T) float32."""
  del cfg
  return softmax.tied_nll(features.last_BTD, params['output']['table'], targets_BT)


def depth(cfg: Config, path: tuple[str, ...]) -> int:
  """Layer number of a parameter: embeddings 0, layer i is i + 1, the last normalisation and the output N + 1."""
  return transformer.depth(path, cfg.N)
