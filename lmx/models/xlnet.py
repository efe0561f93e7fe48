"""XLNet: Yang, Dai, Yang, Carbonell, Salakhutdinov & Le 2019 (arXiv 1906.08237).

Permutation language modelling (equation 3): predict tokens in a random factorisation order, each from those before it
in that order. Two-stream self-attention (section 2.3, appendix A.2): position t of the content stream h attends to the
tokens up to and including its own in the order. The query stream g has rows only at predicted positions; it attends to
strictly earlier tokens, so not to its own. Both share the weights, and keys and values come from [memory; h] only. So
both pass through a layer as one array [h; g], and only the attention mask distinguishes them.

Segment-level recurrence and relative positions as in Transformer-XL (section 2.4; relative_attention.py), here with
distances of both signs. Relative segment encodings: section 2.5. With `order_BT` in the batch there is a query stream
at `positions_BP`, whose outputs are `Features.query_BPD`. Without it, as in fine-tuning, attention is bidirectional and
`Features.last_BTD` is the content stream. `order_BT` is 0 at tokens visible to all, and 1, 2, ... at predicted ones.

Parameters: 116,718,336 (base) and 360,268,800 (large) at 32,000 subwords, without output biases.

Where paper and released code differ, `fidelity` selects: 'released' starts with a memory of zero vectors that are
attended to, as its training does; 'paper' with an empty one. The release has tanh-GELU, Hugging Face's port the exact.

Deviations: a query without visible tokens gets 0 from attention (in the release the mean of all values, its own token's
included). Padding is on the right, the classification token before it. The release pads on the left; positions are
relative, so real tokens get the same result. Packed documents are refused. There is no causal attention ('uni').

Axes: X = T + P rows of both streams, S = M + T keys, R = S + T - 1 distances, from S - 1 to 1 - T.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lmx import layout
from lmx.errors import InputError, check_choice, check_heads, check_least, check_range
from lmx.layers import embedding, sinusoids, softmax, transformer
from lmx.layers.block import Block
from lmx.layers.relative_attention import DistanceVectors, update_memory
from lmx.ops import dense, dropout, relative_attention
from lmx.ops.rematerialisation import Policy
from lmx.ops.visible import HIDDEN, Segments, Visible
from lmx.placement import constrain
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = False
OBJECTIVE = 'permutation_lm'
HEADS = ('output',)
VOCABULARY = ('embed/tokens', 'output/bias')
TIED = ('embed/tokens',)
# The classification token has its own segment.
SPECIAL_TOKENS: tuple[dict[str, int], dict[str, int]] = ({}, {'sep_id': 0, 'cls_id': 2})
GELU = ('tanh', 'erf')
FIDELITIES = ('released', 'paper')
ATTENTION = ('auto', 'xla', 'rows', 'scan')
_MEMORY = -1  # order of the memory, before all tokens


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: vocabulary size.
    D: width.
    F: width of the feed-forward networks.
    H: heads.
    N: layers.
    M: memory length in positions; 0 is no memory.
    reuse: number of a row's first positions that enter the memory (reuse_len of the release); 0 is all.
    clamp: maximum distance of either sign, which replaces all greater ones; 0 is none.
    untie: give each layer its own u, v and s.
    gelu: 'tanh' or 'erf'.
    fidelity: 'released' or 'paper', see the module's docstring.
    eps: epsilon of layer normalisation.
    dropout: dropout rate of embeddings, sinusoids, sub-layer outputs, the inside of the MLP, and the output.
    dropout_attention: dropout rate of the attention probabilities.
    init_std: standard deviation of kernels and tables.
    dtype: compute type.
    attention: backend, one of ATTENTION, see lmx/kernels/relative_attention.py.
    scan: compile one layer and loop over it.
    remat: activations that are kept for the backward pass, see lmx/ops/rematerialisation.py.
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
  eps: float = 1e-12  # released code
  dropout: float = 0.1
  dropout_attention: float = 0.1
  init_std: float = 0.02
  dtype: str = 'float32'
  attention: str = 'auto'
  scan: bool = False
  remat: Policy = 'none'

  def __post_init__(self) -> None:
    check_heads('xlnet', self.D, self.H, even=True)
    check_least('model', self, F=1, N=1, M=0, reuse=0, clamp=0, eps=0)
    check_choice('model.gelu', self.gelu, GELU)
    check_choice('model.fidelity', self.fidelity, FIDELITIES)
    check_choice('model.attention', self.attention, ATTENTION)
    for field in ('dropout', 'dropout_attention'):
      check_range(f'model.{field}', getattr(self, field), 0, 1)


VARIANTS: dict[str, dict[str, Any]] = {
  'base': {},
  'large': dict(D=1024, F=4096, H=16, N=24),
  'tiny': dict(V=97, D=32, F=48, H=4, N=2, M=8),
}


class TwoStreamInputs(NamedTuple):
  """Inputs of attention that all layers share.

  Attributes:
    encoding_RD: sinusoids R of the distances S - 1 to 1 - T.
    positions_BP: positions of the query stream; None without one.
    visible: keys that each row of [h; g] attends to (`permutation_visible`); None if nothing is masked.
    segments: segments of rows and keys (`types`), (B, X) and (B, S); None without segments.
    count_B: number of valid tokens in each row; None: all.
    backward_B: True for rows read in reverse order, or None.
    biases: {'u', 'v', 's'} (H, K) shared by all layers, None where each has its own.
  """

  encoding_RD: Array
  positions_BP: Array | None = None
  visible: Visible | None = None
  segments: tuple[Array, Array] | None = None
  count_B: Array | None = None
  backward_B: Array | None = None
  biases: Any = None


def permutation_visible(batch: Batch, M: int, filled_B: Array | None) -> Visible | None:  # noqa: N803
  """Return the keys that each row of [h; g] attends to; None if nothing is masked.

  Args:
    batch: tokens_BT; order_BT with positions_BP, and valid_BT, each optional.
    M: length of the memory, whose filled positions all rows see.
    filled_B: number of its last positions that are filled; None: all.
  """
  order_BT, valid_BT = batch.get('order_BT'), batch.get('valid_BT')
  if order_BT is None and valid_BT is None and (filled_B is None or not M):
    return None
  key_BS = row_BX = jnp.zeros(batch['tokens_BT'].shape, jnp.int32) if order_BT is None else order_BT
  if order_BT is not None:
    query_BP = jnp.take_along_axis(order_BT, batch['positions_BP'], axis=1)
    row_BX = jnp.concatenate([order_BT, query_BP - 1], axis=1)  # keys strictly before the query's own token
  if valid_BT is not None:
    key_BS = jnp.where(valid_BT, key_BS, HIDDEN)
  if M:
    filled_B = jnp.full(len(key_BS), M, jnp.int32) if filled_B is None else filled_B
    memory_BM = jnp.where(jnp.arange(M)[None] >= M - filled_B[:, None], _MEMORY, HIDDEN)
    key_BS = jnp.concatenate([memory_BM, key_BS], axis=1)
  return Visible(key_BS, jnp.full_like(row_BX, _MEMORY), row_BX)


def types(batch: Batch, M: int) -> tuple[Array, Array] | None:  # noqa: N803
  """Return the segments of the rows of [h; g] and of the keys, (B, X) and (B, S); None without `types_BT`.

  A memory of M positions is in segment 0.
  """
  types_BT = batch.get('types_BT')
  if types_BT is None:
    return None
  row_BX = types_BT
  if 'order_BT' in batch:
    row_BX = jnp.concatenate([row_BX, jnp.take_along_axis(types_BT, batch['positions_BP'], axis=1)], axis=1)
  return row_BX, jnp.pad(types_BT, ((0, 0), (M, 0)))


class TwoStreamAttention(nn.Module):
  """Multi-head attention of [h; g] to [memory; h]: kernels qkv (D, 3, H, K), r (D, H, K), out (H, K, D)."""

  cfg: Config

  @nn.compact
  def __call__(
    self, x_BXD: Array, inputs: TwoStreamInputs, memory: Any, position_BT: Any, key: Array | None
  ) -> tuple[Array, Any]:
    del position_BT  # distances count from the memory
    cfg, positions_BP = self.cfg, inputs.positions_BP
    H, K, D, dtype = cfg.H, cfg.D // cfg.H, cfg.D, x_BXD.dtype
    T = x_BXD.shape[1] - (0 if positions_BP is None else positions_BP.shape[1])
    param = lambda name, *shape: self.param(name, nn.initializers.normal(cfg.init_std), shape)
    qkv_DCHK, h_BTD = param('qkv', D, 3, H, K), x_BXD[:, :T]
    qkv = dense.dots_with_memory(memory, x_BXD, qkv_DCHK, T)
    q_BXHK, k_BSHK, value_BSHK = (constrain(y, 'BSHK') for y in qkv)
    if memory is not None:
      n_reused = cfg.reuse or T
      count_B = None if inputs.count_B is None else jnp.minimum(inputs.count_B, n_reused)
      memory = update_memory(memory, h_BTD[:, :n_reused], count_B)
    biases = {name: param(name, H, K) for name in ('u', 'v', 's')} if cfg.untie else inputs.biases
    to_r = DistanceVectors((H, K), cfg.init_std, name='r')
    r_RHK = to_r(inputs.encoding_RD)
    if inputs.backward_B is not None:  # distances -d: the sines change sign
      sign_D = jnp.where(jnp.arange(D) < D // 2, -1, 1).astype(dtype)
      r_RHK = relative_attention.choose_vectors(inputs.backward_B, to_r(inputs.encoding_RD * sign_D), r_RHK)
    types_2HK = param('types', 2, H, K)
    segments = inputs.segments and Segments(biases['s'], types_2HK, *inputs.segments)
    # The first tokens in the order may have no visible key.
    o_BXHK = relative_attention.attend(
      *(q_BXHK, k_BSHK, value_BSHK, r_RHK, biases['u'], biases['v'], inputs.visible),
      segments=segments,
      positions_BP=positions_BP,
      empty_rows=True,
      backend=cfg.attention,
      rate=cfg.dropout_attention,
      key=key,
    )
    init = transformer.Init(std=cfg.init_std)
    out = transformer.Projection((H, K), (D,), init, bias=False, dtype=cfg.dtype, name='out')
    return out(constrain(o_BXHK, 'BTHK')), memory


def _block(cfg: Config) -> Block:
  mlp = transformer.Mlp(cfg.F, f'gelu_{cfg.gelu}', transformer.Init(std=cfg.init_std), cfg.dropout, dtype=cfg.dtype)
  return Block(TwoStreamAttention(cfg), mlp, 'post', cfg.eps, cfg.dropout, cfg.dtype)


def init(cfg: Config, key: Array) -> Params:
  """Initialise embed (tokens, and mask: the initial input of the query stream), layer_00 .., output (bias).

  Where the layers share them, also bias (u, v, s).
  """
  tokens_key, mask_key, bias_key, *keys = jax.random.split(key, cfg.N + 3)
  params: dict[str, Any] = {
    'embed': {
      'tokens': embedding.table(tokens_key, cfg.V, cfg.D, cfg.init_std),
      'mask': cfg.init_std * jax.random.normal(mask_key, (cfg.D,), jnp.float32),
    },
    'output': {'bias': jnp.zeros(cfg.V, jnp.float32)},
  }
  biases_3HK = cfg.init_std * jax.random.normal(bias_key, (3, cfg.H, cfg.D // cfg.H), jnp.float32)
  biases = dict(zip('uvs', biases_3HK, strict=True))
  if not cfg.untie:
    params['bias'] = biases
  inputs = TwoStreamInputs(jnp.zeros((1, cfg.D), cfg.dtype), biases=biases)
  for i, k in enumerate(keys):
    params[layout.layer_name(i)] = transformer.init_block(_block(cfg), cfg.D, k, mask=inputs, dtype=cfg.dtype)
  return params


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """Return the memory before the first token, () if there is none; `length` is unused, because nothing is decoded.

  Returns:
    {'filled_B': number of the last positions that are filled, 'layers': for each layer (B, M, D)}.
  """
  del length
  if not cfg.M:
    return ()
  filled = cfg.M if cfg.fidelity == 'released' else 0
  layers = tuple(jnp.zeros((batch_size, cfg.M, cfg.D), cfg.dtype) for _ in range(cfg.N))
  return {'filled_B': jnp.full(batch_size, filled, jnp.int32), 'layers': layers}


def _encoding(cfg: Config, T: int, S: int, key: Array | None) -> Array:
  """Return the sinusoids of the distances S - 1 to 1 - T, with dropout; below distance 0 the sines are negated."""
  distance_R = np.arange(S - 1, -T, -1)
  distance_R = np.clip(distance_R, -cfg.clamp, cfg.clamp) if cfg.clamp else distance_R
  table = sinusoids.table(int(np.abs(distance_R).max()) + 1, cfg.D, 'halves')
  sign_RD = np.where(np.arange(cfg.D) < cfg.D // 2, np.sign(distance_R)[:, None], 1)
  return dropout.dropout(jnp.asarray(table[np.abs(distance_R)] * sign_RD, cfg.dtype), cfg.dropout, key)


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the layers over a row and its memory.

  Args:
    batch: tokens_BT; optional: types_BT (segments), valid_BT (padding on the right), order_BT with positions_BP (two
      streams), backward_B (rows read in reverse order).
    state: from `init_state` or the previous call; () runs without a memory.
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the embeddings and the content stream after each layer.

  Raises:
    InputError: the batch has packed documents, which share one memory.
  """
  if 'documents_BT' in batch:
    raise InputError('xlnet: got packed documents (documents_BT); expected one text a row; set another data.batching')
  tokens_BT = batch['tokens_BT']
  T = tokens_BT.shape[1]
  embed_key, encoding_key, last_key, layers_key = dropout.split(key, 4)
  x_BXD = embedding.lookup(params['embed']['tokens'], tokens_BT, cfg.dtype)
  positions_BP = batch['positions_BP'] if 'order_BT' in batch else None
  if positions_BP is not None:
    mask_BPD = jnp.broadcast_to(params['embed']['mask'], (*positions_BP.shape, cfg.D)).astype(cfg.dtype)
    x_BXD = jnp.concatenate([x_BXD, mask_BPD], axis=1)
  x_BXD = constrain(dropout.dropout(x_BXD, cfg.dropout, embed_key), 'BTD')
  M = cfg.M if state else 0
  count_B = jnp.sum(batch['valid_BT'], axis=1, dtype=jnp.int32) if 'valid_BT' in batch else None
  inputs = TwoStreamInputs(
    _encoding(cfg, T, T + M, encoding_key),
    positions_BP,
    permutation_visible(batch, M, state['filled_B'] if state else None),
    types(batch, M),
    count_B,
    batch.get('backward_B'),
    params.get('bias'),
  )
  layers = layout.layers(params, range(cfg.N))
  memories = jax.lax.stop_gradient(state['layers']) if state else None
  x_BXD, memories, hidden = transformer.stack(
    _block(cfg), layers, x_BXD, inputs, caches=memories, key=layers_key, scan=cfg.scan, remat=cfg.remat
  )
  x_BXD = dropout.dropout(x_BXD, cfg.dropout, last_key)
  content = tuple(x[:, :T] for x in hidden) if all_layers else None
  features = Features(x_BXD[:, :T], layers=content, query_BPD=None if positions_BP is None else x_BXD[:, T:])
  if not state:
    return features, ()
  kept_B = jnp.minimum(T if count_B is None else count_B, cfg.reuse or T)
  return features, {'filled_B': jnp.minimum(state['filled_B'] + kept_B, cfg.M), 'layers': memories}


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of each position, (B, T, V) float32, from the tied embedding table and a bias."""
  return softmax.tied_logits(features.last_BTD, params['embed']['tokens'], params['output']['bias'], size=cfg.V)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32."""
  return softmax.tied_nll(
    features.last_BTD, params['embed']['tokens'], targets_BT, params['output']['bias'], size=cfg.V
  )
