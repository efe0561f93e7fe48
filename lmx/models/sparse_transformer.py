"""Sparse Transformer: Child, Gray, Radford & Sutskever 2019, "Generating Long Sequences with Sparse Transformers".

A language model over long sequences (arXiv 1904.10509) with factorized attention (sparse_attention.py, section 4). It
has the patterns of section 4.3 (`pattern`), the three ways of section 5.1 to use their two sets (`merge`), and

- pre-activation residual blocks (section 5.2): a = dropout(attention(norm(H))), b = dropout(ff(norm(H + a))), then
  H + a + b, a final normalisation, f(x) = x sigmoid(1.702 x), and no other dropout;
- projections onto the residual path initialised smaller by 1 / sqrt(2 N) (section 5.2);
- learned attention embeddings added to the tokens' (section 5.3): for text two, of the row and the column of a position
  in a matrix as wide as the stride;
- recomputation in the backward pass (section 5.4, of attention), which is `remat`, here of whole blocks.

`pattern='dense'` is the same model with full attention and as many parameters, the paper's comparison (table 2).
Enwik8's size has 94,949,376 parameters, "95M" in table 1. Sizes for images (59M, 152M) and music are not included:
images as sequences of bytes with a row, a column and a channel, and audio, are not read.

`fidelity` is that of sparse_attention.py; enwik8 has 'released', different summary columns for different heads, which
section 4.3 also prefers. `init` is the reading of section 6's N(0, 0.125 / sqrt(d)), d the inputs of a matrix:
- 'paper': as standard deviation; tokens 0.125 / sqrt(D), attention embeddings 0.125 / sqrt(2 D);
- 'released': 0.125 / d as variance, as in the authors' later code (openai/distribution_augmentation), whose tokens have
  0.013 and positions 0.007 / sqrt(2).
The output matrix is initialised to 0 and is not tied to the embedding; biases are 0.

Deviations: bfloat16 instead of float16 with loss scaling (section 5.6); other kernels (section 5.5), on TPUs alone; the
dropout mask is a hash (lmx/ops/dropout.py). In packed documents positions and patterns are those of the row.
Epsilon of normalisation is the released code's, because the paper gives none.

Axes: see lmx/ops/sparse_attention.py.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp

from lmx import layout
from lmx.errors import InputError, check_choice, check_heads, check_least, check_range
from lmx.layers import embedding, kv_cache, softmax, transformer
from lmx.layers.block import Block
from lmx.layers.sparse_attention import SparseAttention
from lmx.ops import attention, dense, dropout, masks, sparse_attention
from lmx.ops.rematerialisation import Policy
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
OBJECTIVE = 'causal_lm'
VOCABULARY = ('embed/tokens', 'output/table')
POSITIONS = ('embed/rows',)
EPS = 1e-5  # epsilon of layer normalisation, released code
PATTERNS = (*sparse_attention.PATTERNS, 'dense')
MERGES = ('alternate', 'merged', 'heads')
INITS = ('paper', 'released')
_EMBEDDINGS = 2  # n_emb of text, section 5.3


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: vocabulary size.
    T: maximum sequence length.
    D: width.
    H: heads.
    N: layers.
    pattern: 'strided', 'fixed' or 'dense'.
    merge: section 5.1: 'alternate' (even layers use the first set, odd ones the second), 'merged' or 'heads'.
    stride: l.
    summary: c, summary columns of 'fixed'.
    fidelity: one of lmx.ops.sparse_attention.FIDELITIES.
    init: 'paper' or 'released', see the module's docstring.
    dropout: dropout rate of the output of each sub-layer.
    dtype: compute type.
    attention: backend, one of lmx.ops.attention.BACKENDS; of 'strided' and 'fixed' see sparse_attention.py.
    scan: compile one layer and loop over it, if neighbouring layers are alike (not with 'alternate').
    remat: activations that are kept for the backward pass, see lmx/ops/rematerialisation.py.
  """

  V: int = 256
  T: int = 12_288  # section 7.2, as the fields below
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
  remat: Policy = 'none'

  def __post_init__(self) -> None:
    check_heads('sparse_transformer', self.D, self.H)
    check_least('model', self, T=1, N=1, stride=1)
    check_choice('model.pattern', self.pattern, PATTERNS)
    check_choice('model.merge', self.merge, MERGES)
    check_choice('model.fidelity', self.fidelity, sparse_attention.FIDELITIES)
    check_choice('model.init', self.init, INITS)
    check_choice('model.attention', self.attention, attention.BACKENDS)
    alone = {'strided': ('rows', 'splash', 'chunked'), 'fixed': ('chunked',)}.get(self.pattern, ())
    if self.attention in alone:
      raise InputError(
        f'model.attention: got "{self.attention}" with model.pattern="{self.pattern}", which it does not '
        'support; set model.attention to "auto"'
      )
    check_range('model.summary', self.summary, 1, self.stride + 1)
    check_range('model.dropout', self.dropout, 0, 1)
    if self.fidelity == 'released' and self.stride % self.summary:
      raise InputError(
        f'model.summary: got {self.summary} with model.fidelity="released"; expected a divisor of model.stride, which '
        f'is {self.stride}'
      )
    if self.merge == 'heads' and self.H < 2:
      raise InputError(
        f'model.H: got {self.H} with model.merge="heads", which divides the sets among heads; set model.H to at least 2'
      )


VARIANTS: dict[str, dict[str, Any]] = {
  'enwik8': dict(fidelity='released'),  # section 7.2
  'tiny': dict(V=97, T=64, D=32, H=4, N=2, stride=4, summary=1),
}


def _block(cfg: Config, i: int) -> Block:
  """Return the module of layer i."""
  one = 0.125 if cfg.init == 'paper' else 0.125**0.5  # section 6
  common: dict[str, Any] = dict(kernel_init=transformer.Init('fan_in', one, one * (2 * cfg.N) ** -0.5), dtype=cfg.dtype)
  attention = transformer.SelfAttention(cfg.H, causal=True, backend=cfg.attention, **common)
  if cfg.pattern != 'dense':
    sets = ('first', 'second')[i % 2] if cfg.merge == 'alternate' else cfg.merge
    plan = sparse_attention.Plan(cfg.pattern, sets, cfg.stride, cfg.summary, cfg.fidelity)
    attention = SparseAttention(cfg.H, plan=plan, backend=cfg.attention, **common)
  mlp = transformer.Mlp(4 * cfg.D, 'gelu_sigmoid', **common)  # width of section 6
  return Block(attention, mlp, 'pre', EPS, cfg.dropout, cfg.dtype)


def _period(cfg: Config) -> int:
  """Return the number of layers after which the sets repeat."""
  return 2 if cfg.merge == 'alternate' and cfg.pattern != 'dense' else 1


def init(cfg: Config, key: Array) -> Params:
  """Initialise the parameters: embed (tokens, rows, columns), layer_00 .., norm, output."""
  tokens_key, rows_key, columns_key, *keys = jax.random.split(key, cfg.N + 3)
  tokens, positions = (0.125 * cfg.D**-0.5,) * 2 if cfg.init == 'paper' else (0.013, 0.007)
  positions *= _EMBEDDINGS**-0.5
  params: dict[str, Params] = {
    'embed': {
      'tokens': embedding.table(tokens_key, cfg.V, cfg.D, tokens),
      'rows': embedding.table(rows_key, -(-cfg.T // cfg.stride), cfg.D, positions),
      'columns': embedding.table(columns_key, cfg.stride, cfg.D, positions),
    },
    'norm': {'scale': jnp.ones(cfg.D, jnp.float32), 'bias': jnp.zeros(cfg.D, jnp.float32)},
    'output': {'table': jnp.zeros((cfg.V, cfg.D), jnp.float32)},
  }
  for i, k in enumerate(keys):
    params[layout.layer_name(i)] = transformer.init_block(_block(cfg, i % _period(cfg)), cfg.D, k, dtype=cfg.dtype)
  return params


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """Return a key/value cache for `length` positions, see `kv_cache.empty`."""
  return kv_cache.empty(batch_size, length, cfg.N, cfg.H, cfg.D // cfg.H, cfg.dtype)


def _embedded(cfg: Config, params: Params, tokens_BT: Array, position_BT: Array | None) -> Array:
  """Return the sum of token, row and column embeddings, (B, T, D); the matrix is as wide as the stride."""
  if position_BT is None:
    position_BT = jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)[None]
  ids = {'tokens': tokens_BT, 'rows': position_BT // cfg.stride, 'columns': position_BT % cfg.stride}
  return sum(embedding.lookup(params['embed'][name], ids_BT, cfg.dtype) for name, ids_BT in ids.items())


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the layers over `tokens_BT`.

  Args:
    batch: tokens_BT; valid_BT (padding on the right), documents_BT (packed documents), reset_B: all optional.
    state: () or a cache from `init_state`, used as in models/gpt2.py.
    key: PRNG key of dropout, None at evaluation.
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
  keys, hidden, new = dropout.split(key, cfg.N), [x_BTD], list[kv_cache.Cache]()
  for kind, group in itertools.groupby(range(cfg.N), lambda i: i % _period(cfg)):
    indices = list(group)
    x_BTD, group_caches, outputs = transformer.stack(
      _block(cfg, kind),
      layout.layers(params, indices),
      x_BTD,
      mask,
      caches=None if caches is None else [caches[i] for i in indices],
      position_BT=position_BT,
      key=keys[indices[0]],
      scan=cfg.scan,
      remat=cfg.remat,
    )
    hidden += outputs[1:]
    new += group_caches or ()
  last_BTD = dense.layer_norm(x_BTD, params['norm']['scale'], params['norm']['bias'], EPS)
  features = Features(last_BTD.astype(cfg.dtype), layers=tuple(hidden) if all_layers else None)
  return features, {'position_B': read_B, 'layers': tuple(new)} if state else ()


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of the next token, (B, T, V) float32."""
  return softmax.tied_logits(features.last_BTD, params['output']['table'], size=cfg.V)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32."""
  return softmax.tied_nll(features.last_BTD, params['output']['table'], targets_BT, size=cfg.V)
