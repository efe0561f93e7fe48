"""Transformer-XL: Dai, Yang, Yang, Carbonell, Le & Salakhutdinov 2019 (arXiv 1901.02860).

A language model that reads a text in segments and remembers, of every layer, what it made of the M positions before
(section 3.2), with positions counted from the query (section 3.3; lmx/layers/relative_block.py), post-norm layers, and
adaptive embeddings with an adaptive softmax (adaptive_softmax.py). A segment and its memory: h_n = norm(x + MLP(x)),
x = norm(h_{n-1} + attention of h_{n-1} to [memory; h_{n-1}]). Embeddings are multiplied by sqrt(D).

Parameters: 151,107,538 (wt103_base, 267,735 entries), 41,055,436 (enwik8_12l, 204 entries), with u and v shared.

Where the two released programs differ, `fidelity` says which is followed:
- 'tf' (the paper's results): the memory begins as M zero vectors that are attended to; with `same_length` a query looks
  at M keys and itself; epsilon of layer normalisation is 1e-12 (tf.contrib.layers.layer_norm); the kernel of the
  clusters' entries in the head begins at 0.
- 'pytorch': the memory begins empty and grows; with `same_length` M keys, itself among them; epsilon is 1e-5; gains of
  layer normalisation are drawn around 1, the clusters' kernel as the tables.
And TensorFlow's runs have u and v for each layer (`untie`), PyTorch's share them.

For the ablations (tables 6 and 7): M = 0 has no recurrence; `recurrent` layers of N remember, the lowest ones;
`positions` 'shaw' has a learned vector for each distance up to `clamp` (Shaw et al. 2018, as in the released PyTorch
code), 'absolute' adds the sinusoids of Vaswani et al. to the embeddings.

Deviations: sequences of packed documents are refused; the mask of dropout comes from a hash (lmx/layers/dropout.py).

Axes: S = M + T keys; E, I, J as in lmx/layers/adaptive_softmax.py.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lmx.errors import InputError, check_choice, check_heads, check_least, check_range
from lmx.layers import adaptive_softmax, dropout, embedding, relative_attention, relative_block, transformer
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
OBJECTIVE = 'causal_lm'
HEADS: tuple[str, ...] = ()
VOCABULARY = ('embed/tokens', 'output/bias')  # where all tables are as wide
FIDELITIES = {'tf': 1e-12, 'pytorch': 1e-5}  # epsilon of layer normalisation


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: vocabulary size.
    D: width.
    E: width of the (first) embedding table; 0 is D.
    F: width of the feed-forward networks.
    H: heads.
    N: layers.
    M: positions remembered; 0 has no memory.
    recurrent: layers that remember, from the lowest; -1 is all.
    clamp: distances beyond this are taken for this; 0 is none.
    same_length: a query looks back as far as every other, though its place in the segment lets it look farther.
    cutoffs: where the clusters of the vocabulary begin, after the first; ids must be sorted by frequency then.
    div_val: how many times narrower each cluster's table is than the one before.
    tie_projections: projections that input and output share, one of lmx.layers.adaptive_softmax.TIES.
    project_same: a cluster's table that is as wide as the model has a projection too, where div_val > 1.
    untie: u and v are each layer's own.
    positions: one of lmx.layers.relative_block.POSITIONS.
    fidelity: 'tf' or 'pytorch', see the module's docstring.
    eps: epsilon of layer normalisation; 0 is that of `fidelity`.
    dropout: of embeddings, encodings of distances, what is added to the residual path, and the output.
    dropout_attention: of attention probabilities.
    init_std: deviation of kernels and tables.
    projection_std: deviation of the projections of adaptive embeddings.
    dtype: compute type.
    attention: backend, one of lmx.layers.relative_attention.BACKENDS.
    scan: compile one layer and loop over it.
    remat: compute a layer's activations again in the backward pass.
  """

  V: int = 267_735
  D: int = 410
  E: int = 0
  F: int = 2100
  H: int = 10
  N: int = 16
  M: int = 150
  recurrent: int = -1
  clamp: int = 0
  same_length: bool = False
  cutoffs: tuple[int, ...] = ()
  div_val: int = 1
  tie_projections: str = 'all'
  project_same: bool = True
  untie: bool = False
  positions: str = 'sinusoids'
  fidelity: str = 'tf'
  eps: float = 0.0
  dropout: float = 0.1
  dropout_attention: float = 0.0
  init_std: float = 0.02  # released code, section 3 of neither says
  projection_std: float = 0.01  # released code
  dtype: str = 'float32'
  attention: str = 'auto'
  scan: bool = False
  remat: bool = False

  def __post_init__(self) -> None:
    check_heads('transformer_xl', self.D, self.H, even=True)
    check_least('model', self, F=1, N=1, M=0, E=0, clamp=0, eps=0)
    check_choice('model.positions', self.positions, relative_block.POSITIONS)
    check_choice('model.attention', self.attention, relative_attention.BACKENDS)
    check_choice('model.fidelity', self.fidelity, FIDELITIES)
    check_range('model.recurrent', self.recurrent, -1, self.N + 1)
    for field in ('dropout', 'dropout_attention'):
      check_range(f'model.{field}', getattr(self, field), 0, 1)
    if self.positions == 'shaw' and not self.clamp:
      raise InputError('model.positions="shaw" has a vector for each distance up to model.clamp: set model.clamp')
    if self.positions == 'absolute' and self.M:
      raise InputError('model.positions="absolute" tells a memory from the segment no more: set model.M=0')
    if self.same_length and not self.M:
      raise InputError('model.same_length looks back as far as the memory reaches: set model.M')
    _tables(self)


# Sizes of the released scripts (kimiyoung/transformer-xl, tf/scripts and pytorch).
_WT103 = dict(V=267_735, cutoffs=(20_000, 40_000, 200_000))
_LM1B = dict(
  V=793_471, cutoffs=(60_000, 100_000, 640_000), div_val=4, tie_projections='none', project_same=False, untie=True, M=32
)
_LARGE = dict(D=1024, F=3072, H=8, N=24, M=768, dropout=0.15, dropout_attention=0.15)
VARIANTS: dict[str, dict[str, Any]] = {
  'wt103_base': _WT103,
  'wt103_large': dict(
    **_WT103,
    D=1024,
    F=4096,
    H=16,
    N=18,
    M=384,
    div_val=4,
    tie_projections='but_first',
    untie=True,
    init_std=0.005,
    dropout=0.2,
    dropout_attention=0.2,
  ),
  'wt103_128m': dict(**_WT103, N=7),  # table 6; the paper prints 128M alone, and 7 layers of the base are that
  'enwik8_12l': dict(V=204, D=512, F=2048, H=8, N=12, M=512),
  'enwik8_18l': dict(V=204, D=640, F=2208, H=10, N=18, M=512),  # the paper prints 88M alone
  'enwik8_24l': dict(V=204, **_LARGE),
  'text8_24l': dict(V=27, **_LARGE),
  'ptb': dict(V=10_000, D=400, F=900, H=10, N=13, M=70),  # the paper prints 24M alone
  # The paper's base: 20 layers and 6144 by issue 69 of the released code, whose script has 18 and 4096.
  'lm1b_base': dict(**_LM1B, D=1024, F=6144, H=8, N=20),
  'lm1b_large': dict(**_LM1B, D=1280, F=8192, H=16, N=24, dropout=0.05, dropout_attention=0.05, init_std=0.005),
  'tiny': dict(
    V=61, D=32, F=48, H=4, N=2, M=16, cutoffs=(20, 40), div_val=2, tie_projections='but_first', fidelity='pytorch'
  ),
}


def alone(cfg: Config) -> Config:
  """The Config of the same parameters that reads a segment as if nothing were before it, not even a memory of zeros."""
  return dataclasses.replace(cfg, M=0, same_length=False)


def _tables(cfg: Config) -> adaptive_softmax.Sizes:
  return adaptive_softmax.Sizes(
    cfg.V, cfg.D, cfg.E or cfg.D, cfg.cutoffs, cfg.div_val, cfg.tie_projections, cfg.project_same
  )


@functools.cache  # a partial is equal to itself alone, and layers alike shall be traced once
def _block(cfg: Config) -> transformer.Block:
  farthest = None if not cfg.same_length else cfg.M - (cfg.fidelity == 'pytorch')
  attention = functools.partial(
    relative_block.RelativeAttention, untied=cfg.untie, positions=cfg.positions, clamp=cfg.clamp, farthest=farthest
  )
  return transformer.Block(
    heads=cfg.H,
    hidden=cfg.F,
    causal=True,
    norm='post',
    eps=cfg.eps or FIDELITIES[cfg.fidelity],
    activation='relu',
    std=cfg.init_std,
    residual_std=cfg.init_std,
    backend=cfg.attention,
    attention_rate=cfg.dropout_attention,
    residual_rate=cfg.dropout,
    hidden_rate=cfg.dropout,
    dtype=cfg.dtype,
    bias=False,
    attention=attention,
  )


def init(cfg: Config, key: Array) -> Params:
  """Parameters: embed, layer_00 .., output, and bias (u_HK, v_HK) where the layers share them."""
  table_key, bias_key, norm_key, *keys = jax.random.split(key, cfg.N + 3)
  normal = lambda key, shape: cfg.init_std * jax.random.normal(key, shape, jnp.float32)
  cluster_std = 0.0 if cfg.fidelity == 'tf' else None
  given, output = adaptive_softmax.init(
    _tables(cfg), table_key, cfg.init_std, cfg.projection_std, cluster_std=cluster_std
  )
  params: dict[str, Any] = {'embed': given, 'output': output}
  reach = relative_block.Reach()
  if cfg.positions == 'sinusoids':
    u_HK, v_HK = (normal(k, (cfg.H, cfg.D // cfg.H)) for k in jax.random.split(bias_key))
    reach = relative_block.Reach(jnp.zeros((1, cfg.D), cfg.dtype), u_HK=u_HK, v_HK=v_HK)
    if not cfg.untie:
      params['bias'] = {'u_HK': u_HK, 'v_HK': v_HK}
  for i, k in enumerate(keys):
    layer = transformer.init_block(_block(cfg), cfg.D, k, reach)
    if cfg.fidelity == 'pytorch':
      for name, norm in zip(('norm_1', 'norm_2'), jax.random.split(jax.random.fold_in(norm_key, i)), strict=True):
        layer[name]['scale'] += normal(norm, (cfg.D,))
    params[transformer.name(i)] = layer
  return params


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """The memory before the first token, () if there is none.

  With a `length`, for decoding, it holds keys and values, M of them, or `length` where the model has no memory.

  Returns:
    {'filled_B': places that hold something, the last ones, 'layers': for each layer (B, M, D), or keys and values,
    each (B, M, H, K)}; M is 0 in a layer that does not remember.
  """
  M = cfg.M or length
  if not M:
    return ()
  if length:
    place = lambda: jnp.zeros((batch_size, M, cfg.H, cfg.D // cfg.H), cfg.dtype)
    layers: tuple[Any, ...] = tuple((place(), place()) for _ in range(cfg.N))
  else:
    places = [M if i < _parts(cfg)[0][1] and cfg.recurrent else 0 for i in range(cfg.N)]
    layers = tuple(jnp.zeros((batch_size, m, cfg.D), cfg.dtype) for m in places)
  filled = cfg.M if cfg.fidelity == 'tf' else 0
  return {'filled_B': jnp.full(batch_size, filled, jnp.int32), 'layers': layers}


def _encoding(cfg: Config, S: int, key: Array | None) -> Array | None:
  """R of the distances S - 1 to 0, with dropout."""
  if cfg.positions != 'sinusoids':
    return None
  distance_S = np.minimum(np.arange(S)[::-1], cfg.clamp or S)
  table_SD = embedding.sinusoids(int(distance_S.max()) + 1, cfg.D, 'halves')[distance_S]
  return dropout.dropout(jnp.asarray(table_SD, cfg.dtype), cfg.dropout, key)


def _embedded(cfg: Config, params: Params, tokens_BT: Array, state: State) -> Array:
  """sqrt(D) times the embeddings, (B, T, D); with absolute positions, each token's sinusoids besides."""
  x_BTD = cfg.D**0.5 * adaptive_softmax.lookup(_tables(cfg), params['embed'], tokens_BT, cfg.dtype)
  if cfg.positions != 'absolute':
    return x_BTD
  T = tokens_BT.shape[1]
  position_BT, last = None, T
  if state:
    position_BT = state['filled_B'][:, None] + jnp.arange(T, dtype=jnp.int32)
    last = T + state['layers'][0][0].shape[1]
  table_TD = jnp.asarray(embedding.sinusoids(last, cfg.D, 'halves'))
  return x_BTD + embedding.positions(table_TD, position_BT, T, cfg.dtype)


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Runs the layers over a segment and its memory.

  Args:
    batch: tokens_BT; valid_BT (optional, padding on the right), which is not remembered.
    state: of `init_state` or of the call before; () has no memory and leaves none.
    key: randomness of dropout, None at evaluation.
    all_layers: also return the embeddings and the output of each layer.

  Raises:
    InputError: packed documents, which would be remembered as one.
  """
  if 'documents_BT' in batch:
    raise InputError(
      'transformer_xl: a memory does not tell packed documents (documents_BT) apart; take another data.batching'
    )
  B, T = batch['tokens_BT'].shape
  embed_key, encoding_key, last_key, *keys = dropout.split(key, 3 + 2)
  x_BTD = _embedded(cfg, params, batch['tokens_BT'], state)
  x_BTD = dropout.dropout(x_BTD, cfg.dropout, embed_key)
  count_B = jnp.sum(batch['valid_BT'], axis=1, dtype=jnp.int32) if 'valid_BT' in batch else None
  caches = jax.lax.stop_gradient(state['layers']) if state else None
  M = jax.tree.leaves(caches[0])[0].shape[1] if caches else 0
  look = relative_block.Reach(
    _encoding(cfg, M + T, encoding_key), state['filled_B'] if state else None, count_B, **params.get('bias', {})
  )
  seen, remembered = [x_BTD], list[Any]()
  for (first, end), part_key in zip(_parts(cfg), keys, strict=False):
    x_BTD, new, outputs = transformer.stack(
      _block(cfg),
      [params[transformer.name(i)] for i in range(first, end)],
      x_BTD,
      look,
      caches=None if caches is None else caches[first:end],
      key=part_key,
      scan=cfg.scan,
      remat=cfg.remat,
    )
    seen += outputs[1:]
    remembered += new or ()
  features = Features(dropout.dropout(x_BTD, cfg.dropout, last_key), layers=tuple(seen) if all_layers else None)
  if not state:
    return features, ()
  filled_B = state['filled_B'] + (T if count_B is None else count_B)
  return features, {'filled_B': jnp.minimum(filled_B, M), 'layers': tuple(remembered)}


def _parts(cfg: Config) -> list[tuple[int, int]]:
  """(first, end) of the layers that remember alike, at most two."""
  edge = cfg.N if cfg.recurrent == -1 else cfg.recurrent
  return [(a, b) for a, b in ((0, edge), (edge, cfg.N)) if a < b]


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Scores of every next token, (B, T, V) float32: with several clusters log-probabilities."""
  return adaptive_softmax.log_probabilities(_tables(cfg), params['embed'], params['output'], features.last_BTD)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Negative log-likelihood of each target in nats, (B, T) float32."""
  return adaptive_softmax.nll(_tables(cfg), params['embed'], params['output'], features.last_BTD, targets_BT)


def depth(cfg: Config, path: tuple[str, ...]) -> int:
  """Layer number of a parameter: tables and the biases that all layers share 0, layer i is i + 1, the output N + 1."""
  return 0 if path[0] == 'bias' else transformer.depth(path, cfg.N)
