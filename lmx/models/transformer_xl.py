"""Transformer-XL: Dai, Yang, Yang, Carbonell, Le & Salakhutdinov 2019 (arXiv 1901.02860).

Segment-level recurrence (section 3.2): each layer attends to the cached hidden states of the previous segment; no
gradient flows into them. Relative positional encodings (section 3.3): lmx/ops/relative_attention.py. Layers are
post-norm (lmx/layers/block.py). Embeddings and softmax are adaptive (adaptive_embedding.py, adaptive_softmax.py); the
embeddings are multiplied by sqrt(D).

Parameters: 151,107,538 (wt103_base, 267,735 tokens), 41,055,436 (enwik8_12l, 204 tokens), with u and v shared.

The released programs differ; `fidelity` names the one that is followed:
- 'tf' (the paper's results): the memory begins as M zero vectors, which are attended to. With `same_length` a query
  attends to M keys and itself. Epsilon of layer normalisation is 1e-12 (tf.contrib.layers.layer_norm). The kernel of
  the clusters in the head begins at 0.
- 'pytorch': the memory begins empty and grows. With `same_length` a query attends to M keys, itself among them. Epsilon
  is 1e-5. Gains of layer normalisation are normal around 1, and the clusters' kernel is initialised like the tables.
- 'transformers' (TransfoXLLMHeadModel of transformers before 5): 'pytorch' with the memory of 'tf', M zero vectors.
TensorFlow's runs have u and v for each layer (`untie`), PyTorch's share them.

Ablations (tables 6 and 7): M = 0 has no recurrence. Only the lowest `recurrent` layers have a memory. `positions`
'shaw' has a learned vector and bias for each distance up to `clamp` and each head (Shaw et al. 2018, arXiv 1803.02155,
as in the released PyTorch code). 'absolute' adds the sinusoids of Vaswani et al. 2017 to the embeddings, 'layers' a
learned vector of each position to the input of each layer (Al-Rfou et al. 2018, arXiv 1808.04444).

Deviations: packed documents are refused; dropout's mask is a hash (lmx/ops/dropout.py).

Axes: S = M + T keys; E, I, J as in lmx/layers/adaptive_embedding.py.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lmx import layout, ranges
from lmx.errors import InputError, check_choice, check_heads, check_least, check_range
from lmx.layers import adaptive_embedding, adaptive_softmax, embedding, sinusoids, transformer
from lmx.layers.block import Block
from lmx.layers.relative_attention import DistanceVectors, update_memory
from lmx.ops import dense, dropout, relative_attention
from lmx.ops.relative_attention import content_scores, position_scores
from lmx.ops.rematerialisation import Policy
from lmx.placement import constrain
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
OBJECTIVE = 'causal_lm'
TIED = ('embed/tokens', *(f'embed/tokens_{i}' for i in range(8)))
VOCABULARY = ('embed/tokens', 'output/tokens', 'output/bias')  # where all tables are equally wide
ROW_TABLES = ('embed/tokens',)  # of one width, by default stored column-major on a TPU and so copied by each step
POSITIONS = ('sinusoids', 'shaw', 'absolute', 'layers')
ATTENTION = relative_attention.BACKENDS
FIDELITIES = {'tf': 1e-12, 'pytorch': 1e-5, 'transformers': 1e-5}  # epsilon of layer normalisation


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
    M: memory length in positions; 0 is no memory.
    recurrent: number of layers with a memory, from the lowest; -1 is all.
    clamp: maximum distance, which replaces all greater ones; 0 is none. With positions 'layers' the number of
      positions, the last of which replaces all later ones.
    same_length: every query attends to the same number of keys, at any position of the segment.
    cutoffs: first token of each cluster but the first; ids must be sorted by frequency.
    div_val: factor by which each cluster's table is narrower than the previous one.
    tie_projections: projections shared by input and output, one of lmx.layers.adaptive_embedding.TIES.
    project_same: with div_val > 1, also project a cluster's table that has the width of the model.
    tied: use the embedding tables as the output matrices.
    untie: give each layer its own u and v.
    positions: one of POSITIONS.
    fidelity: one of FIDELITIES, see the module's docstring.
    eps: epsilon of layer normalisation; 0 is that of `fidelity`.
    dropout: dropout rate of embeddings, sinusoids, sub-layer outputs, the inside of the MLP, and the output.
    dropout_attention: dropout rate of the attention probabilities.
    init_std: standard deviation of kernels and tables.
    projection_std: standard deviation of the projections of adaptive embeddings.
    dtype: compute type.
    attention: backend, one of lmx.ops.relative_attention.BACKENDS.
    scan: compile one layer and loop over it.
    remat: activations that are kept for the backward pass, see lmx/ops/rematerialisation.py.
  """

  V: int = 267_735
  D: int = 410
  E: int = 0
  F: int = 2100
  H: int = 10
  N: int = 16
  M: int = 150
  recurrent: Annotated[int, ranges.Limits(-1)] = -1
  clamp: int = 0
  same_length: bool = False
  cutoffs: Annotated[tuple[Annotated[int, ranges.Limits(1)], ...], ranges.Distinct(is_sorted=True)] = ()
  div_val: int = 1
  tie_projections: str = 'all'
  project_same: bool = True
  tied: bool = True
  untie: bool = False
  positions: str = 'sinusoids'
  fidelity: str = 'tf'
  eps: float = 0.0
  dropout: float = 0.1
  dropout_attention: float = 0.0
  init_std: float = 0.02  # released code; the paper gives none
  projection_std: float = 0.01  # released code
  dtype: str = 'float32'
  attention: str = 'auto'
  scan: bool = False
  remat: Policy = 'none'

  def __post_init__(self) -> None:
    check_heads('transformer_xl', self.D, self.H, even=True)
    check_least('model', self, F=1, N=1, M=0, E=0, clamp=0, eps=0)
    check_choice('model.positions', self.positions, POSITIONS)
    check_choice('model.attention', self.attention, ATTENTION)
    check_choice('model.fidelity', self.fidelity, FIDELITIES)
    check_range('model.recurrent', self.recurrent, -1, self.N + 1)
    for field in ('dropout', 'dropout_attention'):
      check_range(f'model.{field}', getattr(self, field), 0, 1)
    if self.positions in ('shaw', 'layers') and not self.clamp:
      what = 'its greatest distance' if self.positions == 'shaw' else 'its number of positions'
      raise InputError(f'model.clamp: got 0 with model.positions="{self.positions}"; expected {what}; set model.clamp')
    if self.positions != 'sinusoids' and self.attention in ('rows', 'scan'):
      raise InputError(
        f'model.attention: got "{self.attention}" with model.positions="{self.positions}", which it does not '
        'support; set model.attention to "auto"'
      )
    if self.positions in ('absolute', 'layers') and self.M:
      raise InputError(
        f'model.M: got {self.M} with model.positions="{self.positions}"; expected no memory; set model.M=0'
      )
    if self.same_length and not self.M:
      raise InputError('model.M: got 0 with model.same_length; expected a memory of that length; set model.M')
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
  'wt103_128m': dict(**_WT103, N=7),  # table 6; the paper prints only 128M, the size of 7 layers of the base model
  'enwik8_12l': dict(V=204, D=512, F=2048, H=8, N=12, M=512),
  'enwik8_18l': dict(V=204, D=640, F=2208, H=10, N=18, M=512),  # the paper prints only 88M
  'enwik8_24l': dict(V=204, **_LARGE),
  'text8_24l': dict(V=27, **_LARGE),
  'ptb': dict(V=10_000, D=400, F=900, H=10, N=13, M=70),  # the paper prints only 24M
  # The paper's base model: 20 layers and F = 6144 according to issue 69 of the released code; its script has 18 and
  # 4096.
  'lm1b_base': dict(**_LM1B, D=1024, F=6144, H=8, N=20),
  'lm1b_large': dict(**_LM1B, D=1280, F=8192, H=16, N=24, dropout=0.05, dropout_attention=0.05, init_std=0.005),
  'tiny': dict(
    V=61, D=32, F=48, H=4, N=2, M=16, cutoffs=(20, 40), div_val=2, tie_projections='but_first', fidelity='pytorch'
  ),
}


def without_memory(cfg: Config) -> Config:
  """Return the Config of the same parameters without a memory, not even a memory of zeros."""
  return dataclasses.replace(cfg, M=0, same_length=False)


def _tables(cfg: Config) -> adaptive_embedding.Sizes:
  return adaptive_embedding.Sizes(
    cfg.V, cfg.D, cfg.E or cfg.D, cfg.cutoffs, cfg.div_val, cfg.tie_projections, cfg.project_same, cfg.tied
  )


class RelativePositions(NamedTuple):
  """Inputs of attention that all layers share.

  Attributes:
    encoding_SD: sinusoids R of the distances S - 1 to 0, of which a layer uses its last S; None without.
    filled_B: number of the memory's last positions that are filled; None: all.
    count_B: number of valid tokens in each row of the segment; None: all.
    u_HK: bias of the queries in content scores; None where each layer has its own.
    v_HK: bias of the queries in position scores; None where each layer has its own.
  """

  encoding_SD: Array | None = None
  filled_B: Array | None = None
  count_B: Array | None = None
  u_HK: Array | None = None
  v_HK: Array | None = None


class RelativeAttention(nn.Module):
  """Multi-head attention to [memory; x]: kernels qkv (D, 3, H, K), r (D, H, K) and out (H, K, D).

  The memory is the layer's inputs (B, M, D). In decoding, where parameters do not change, it is the keys and values
  computed from them.
  """

  cfg: Config

  @nn.compact
  def __call__(
    self, x_BTD: Array, inputs: RelativePositions, memory: Any, position_BT: Any, key: Array | None
  ) -> tuple[Array, Any]:
    del position_BT  # distances count from the memory
    cfg, T = self.cfg, x_BTD.shape[1]
    qkv_DCHK = self._param('qkv', cfg.D, 3, cfg.H, cfg.D // cfg.H)
    decoding = isinstance(memory, tuple)
    before_BMD = None if decoding else memory
    qkv = dense.dots_with_memory(before_BMD, x_BTD, qkv_DCHK, T)
    q_BTHK, k_BSHK, value_BSHK = (constrain(y, 'BSHK') for y in qkv)
    new = k_BSHK, value_BSHK
    update = lambda old, new: update_memory(old, new, inputs.count_B)
    if decoding:
      k_BSHK, value_BSHK = (jnp.concatenate(pair, axis=1) for pair in zip(memory, new, strict=True))
      memory = tuple(map(update, memory, new))
    elif memory is not None:
      memory = update(memory, x_BTD)
    filled_B = inputs.filled_B if k_BSHK.shape[1] > T else None
    o_BTHK = constrain(self._attend((q_BTHK, k_BSHK, value_BSHK), inputs, filled_B, key), 'BTHK')
    return self._out(o_BTHK), memory

  def _out(self, o_BTHK: Array) -> Array:
    (H, K), cfg = o_BTHK.shape[2:], self.cfg
    init = transformer.Init(std=cfg.init_std)
    return transformer.Projection((H, K), (cfg.D,), init, bias=False, dtype=cfg.dtype, name='out')(o_BTHK)

  def _param(self, name: str, *shape: int) -> Array:
    return self.param(name, nn.initializers.normal(self.cfg.init_std), shape)

  def _attend(self, qkv: Any, inputs: RelativePositions, filled_B: Array | None, key: Array | None) -> Array:
    cfg, (q_BTHK, k_BSHK, value_BSHK) = self.cfg, qkv
    (T, H, K), S = q_BTHK.shape[1:], k_BSHK.shape[1]
    farthest = cfg.M - (cfg.fidelity != 'tf') if cfg.same_length else None
    visible = relative_attention.causal(T, S, filled_B, farthest)
    if cfg.positions != 'sinusoids':
      scores_BHTS = self._shaw(q_BTHK, k_BSHK) if cfg.positions == 'shaw' else content_scores(q_BTHK, None, k_BSHK)
      return relative_attention.weighted_values(scores_BHTS, visible.mask(), value_BSHK, cfg.dropout_attention, key)
    u_HK, v_HK, encoding_SD = inputs.u_HK, inputs.v_HK, inputs.encoding_SD
    if cfg.untie:
      u_HK, v_HK = self._param('u', H, K), self._param('v', H, K)
    assert encoding_SD is not None and u_HK is not None and v_HK is not None
    r_SHK = DistanceVectors((H, K), cfg.init_std, name='r')(encoding_SD[-S:])
    vectors = q_BTHK, k_BSHK, value_BSHK, r_SHK, u_HK, v_HK
    return relative_attention.attend(*vectors, visible, backend=cfg.attention, rate=cfg.dropout_attention, key=key)

  def _shaw(self, q_BTHK: Array, k_BSHK: Array) -> Array:
    """((q + u) · k + q · r_d + b_d) / sqrt(K) with learned r and b of each distance and head, (B, H, T, S) float32."""
    (H, K), S, longest = q_BTHK.shape[2:], k_BSHK.shape[1], self.cfg.clamp
    distance_S = jnp.minimum(jnp.arange(S - 1, -1, -1), longest)
    r_SHK = self._param('distances', longest + 1, H, K)[distance_S].astype(q_BTHK.dtype)
    content_BHTS = content_scores(q_BTHK, self._param('u', H, K), k_BSHK)
    bias_HS = self._param('distance_bias', longest + 1, H)[distance_S].T
    return content_BHTS + position_scores(q_BTHK, None, r_SHK, S, bias_HR=bias_HS)


class PositionedBlock(Block):
  """Block whose input is x plus a learned vector of each of `T` positions."""

  T: int = 0
  std: float = 0.0

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask: Any, cache: Any = None, position_BT: Array | None = None, key: Array | None = None
  ) -> tuple[Array, Any]:
    table_TD = self.param('positions', nn.initializers.normal(self.std), (self.T, x_BTD.shape[2]))
    position_BT = jnp.arange(x_BTD.shape[1])[None] if position_BT is None else position_BT
    x_BTD = embedding.add_positions(x_BTD, table_TD, jnp.minimum(position_BT, self.T - 1))
    return super().__call__(x_BTD, mask, cache, position_BT, key)


def _block(cfg: Config) -> Block:
  eps, init = cfg.eps or FIDELITIES[cfg.fidelity], transformer.Init(std=cfg.init_std)
  mlp = transformer.Mlp(cfg.F, 'relu', init, cfg.dropout, dtype=cfg.dtype)
  common = RelativeAttention(cfg), mlp, 'post', eps, cfg.dropout, cfg.dtype
  return PositionedBlock(*common, T=cfg.clamp, std=cfg.init_std) if cfg.positions == 'layers' else Block(*common)


def init(cfg: Config, key: Array) -> Params:
  """Initialise embed, layer_00 .., output, and bias (u_HK, v_HK) where the layers share them."""
  table_key, bias_key, norm_key, *keys = jax.random.split(key, cfg.N + 3)
  normal = lambda key, shape: cfg.init_std * jax.random.normal(key, shape, jnp.float32)
  cluster_std = 0.0 if cfg.fidelity == 'tf' else None
  embed, output = adaptive_embedding.init(
    _tables(cfg), table_key, cfg.init_std, cfg.projection_std, cluster_std=cluster_std
  )
  params: dict[str, Any] = {'embed': embed, 'output': output}
  inputs = RelativePositions()
  if cfg.positions == 'sinusoids':
    u_HK, v_HK = (normal(k, (cfg.H, cfg.D // cfg.H)) for k in jax.random.split(bias_key))
    inputs = RelativePositions(jnp.zeros((1, cfg.D), cfg.dtype), u_HK=u_HK, v_HK=v_HK)
    if not cfg.untie:
      params['bias'] = {'u_HK': u_HK, 'v_HK': v_HK}
  for i, k in enumerate(keys):
    layer = transformer.init_block(_block(cfg), cfg.D, k, mask=inputs, dtype=cfg.dtype)
    if cfg.fidelity != 'tf':
      for name, norm in zip(('norm_1', 'norm_2'), jax.random.split(jax.random.fold_in(norm_key, i)), strict=True):
        layer[name]['scale'] += normal(norm, (cfg.D,))
    params[layout.layer_name(i)] = layer
  return params


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """Return the memory before the first token, () if there is none.

  With a `length`, for decoding, it holds the keys and values of M positions (of `length` where M is 0).

  Returns:
    {'filled_B': number of the last positions that are filled, 'layers': for each layer (B, M, D), or keys and values,
    each (B, M, H, K)}; M is 0 in a layer without a memory.
  """
  M = cfg.M or length
  if not M:
    return ()
  if length:
    empty = lambda: jnp.zeros((batch_size, M, cfg.H, cfg.D // cfg.H), cfg.dtype)
    layers: tuple[Any, ...] = tuple((empty(), empty()) for _ in range(cfg.N))
  else:
    lengths = [M if i < _parts(cfg)[0][1] and cfg.recurrent else 0 for i in range(cfg.N)]
    layers = tuple(jnp.zeros((batch_size, m, cfg.D), cfg.dtype) for m in lengths)
  filled = 0 if cfg.fidelity == 'pytorch' else cfg.M
  return {'filled_B': jnp.full(batch_size, filled, jnp.int32), 'layers': layers}


def _encoding(cfg: Config, S: int, key: Array | None) -> Array | None:
  """Return the sinusoids R of the distances S - 1 to 0, with dropout."""
  if cfg.positions != 'sinusoids':
    return None
  distance_S = np.minimum(np.arange(S)[::-1], cfg.clamp or S)
  table_SD = sinusoids.table(int(distance_S.max()) + 1, cfg.D, 'halves')[distance_S]
  return dropout.dropout(jnp.asarray(table_SD, cfg.dtype), cfg.dropout, key)


def _embedded(cfg: Config, params: Params, tokens_BT: Array, state: State, position_BT: Array | None) -> Array:
  """Return sqrt(D) times the embeddings, (B, T, D), plus the sinusoids of absolute positions."""
  x_BTD = cfg.D**0.5 * adaptive_embedding.lookup(_tables(cfg), params['embed'], tokens_BT, cfg.dtype)
  if cfg.positions != 'absolute':
    return x_BTD
  last = tokens_BT.shape[1] + (state['layers'][0][0].shape[1] if state else 0)
  table_TD = jnp.asarray(sinusoids.table(last, cfg.D, 'halves'))
  return embedding.add_positions(x_BTD, table_TD, position_BT)


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the layers over a segment and its memory.

  Args:
    batch: tokens_BT; optional valid_BT (padding on the right, which does not enter the memory).
    state: from `init_state` or the previous call; () runs without a memory.
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the embeddings and the output of each layer.

  Raises:
    InputError: the batch has packed documents, which share one memory.
  """
  if 'documents_BT' in batch:
    raise InputError(
      'transformer_xl: got packed documents (documents_BT); expected one text a row; set another data.batching'
    )
  B, T = batch['tokens_BT'].shape
  embed_key, encoding_key, last_key, *keys = dropout.split(key, 3 + 2)
  position_BT = state['filled_B'][:, None] + jnp.arange(T, dtype=jnp.int32) if state and not cfg.M else None
  x_BTD = _embedded(cfg, params, batch['tokens_BT'], state, position_BT)
  x_BTD = constrain(dropout.dropout(x_BTD, cfg.dropout, embed_key), 'BTD')
  count_B = jnp.sum(batch['valid_BT'], axis=1, dtype=jnp.int32) if 'valid_BT' in batch else None
  caches = jax.lax.stop_gradient(state['layers']) if state else None
  M = jax.tree.leaves(caches[0])[0].shape[1] if caches else 0
  inputs = RelativePositions(
    _encoding(cfg, M + T, encoding_key),
    state['filled_B'] if state else None,
    count_B,
    **params.get('bias', {}),
  )
  hidden, memories = [x_BTD], list[Any]()
  for (first, end), part_key in zip(_parts(cfg), keys, strict=False):
    layers = layout.layers(params, range(first, end))
    caches_in = None if caches is None else caches[first:end]
    x_BTD, caches_out, (_, *part_hidden) = transformer.stack(
      _block(cfg),
      layers,
      x_BTD,
      inputs,
      caches=caches_in,
      position_BT=position_BT if cfg.positions == 'layers' else None,
      key=part_key,
      scan=cfg.scan,
      remat=cfg.remat,
    )
    hidden += part_hidden
    memories += caches_out or ()
  features = Features(dropout.dropout(x_BTD, cfg.dropout, last_key), layers=tuple(hidden) if all_layers else None)
  if not state:
    return features, ()
  filled_B = state['filled_B'] + (T if count_B is None else count_B)
  return features, {'filled_B': jnp.minimum(filled_B, M), 'layers': tuple(memories)}


def _parts(cfg: Config) -> list[tuple[int, int]]:
  """Return (first, end) of the layers with a memory, then of those without."""
  edge = cfg.N if cfg.recurrent == -1 else cfg.recurrent
  return [(a, b) for a, b in ((0, edge), (edge, cfg.N)) if a < b]


def _clusters(cfg: Config, params: Params) -> list[adaptive_softmax.Cluster]:
  return adaptive_embedding.clusters(_tables(cfg), params['embed'], params['output'])


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of the next token, (B, T, V) float32; with several clusters, log-probabilities."""
  return adaptive_softmax.log_probabilities(_clusters(cfg, params), features.last_BTD)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32."""
  return adaptive_softmax.nll(_clusters(cfg, params), features.last_BTD, targets_BT)
