"""Self-attention with any score: a bidirectional encoder in which a position attends to the positions of its sentence.

Attention of a sequence to itself is from Cheng, Dong & Lapata 2016 (arXiv 1601.06733, "intra-attention", an LSTM that
scores its earlier states) and Lin et al. 2017 (arXiv 1703.03130, a sentence embedding by attention over the states of
its words). Here nothing recurs. A layer is that of Vaswani et al. 2017 (arXiv 1706.03762, section 3.1, post-norm) with
one head, in which any of the scores of lmx/layers/rnn_attention.py replaces the scaled dot product:

  a_ts = softmax_s score(x_t, x_s),   c_t = sum_s a_ts x_s,   y = norm(x + c W + b),   norm(y + ffn(y))

Query and key are the same state, as in the two papers; `projected` maps them by a matrix each before the score, as
Vaswani et al. do. The scores without a matrix (dot, scaled_dot, cosine_plain) are symmetric without it, and no position
fits a state better than its own by dot. Sinusoids are added to the embeddings (Vaswani et al., sections 3.4 and 3.5),
because of all scores only location knows the order. Windows are those of Luong et al. 2015 (arXiv 1508.04025, section
3.2), centred at the query's own position (local_m) or at a predicted one (local_p). Weights, masks and papers of the
scores: lmx/layers/rnn_attention.py.

`base` has 1,447,936 parameters without the embedding. The head belongs to the objective (`classify`, `tag`): there is
no output over words.

Deviations: the combination is ours, and no paper has its sizes. Neither Cheng's memory and gates nor Lin's several
hops and their penalty are implemented.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from lmx import layout
from lmx.errors import InputError, check_choice, check_least, check_range
from lmx.layers import embedding, rnn_attention, sinusoids, transformer
from lmx.layers.block import Block
from lmx.layers.transformer import Init, Mlp, Projection
from lmx.ops import dropout, masks
from lmx.ops.masks import AttentionMask
from lmx.placement import constrain
from lmx.types import Array, Batch, Features, Params, State, record_attention

CAUSAL = False
OBJECTIVE = 'tag'
WORDS = False
HEADS = ('embed',)  # not included in the count of the docstring
VOCABULARY = ('embed/tokens',)
EPS = 1e-6  # epsilon of layer normalisation, tensor2tensor


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: vocabulary size.
    D: width; 0 in an experiment: that of the word vectors.
    F: width of the feed-forward networks.
    N: layers.
    score: one of lmx.layers.rnn_attention.SCORES.
    projected: map queries and keys by a matrix each before the score.
    A: width of the alignment of the score 'additive'.
    S: maximum sequence length of the score 'location', which has a column for each position.
    window: one of lmx.layers.rnn_attention.WINDOWS.
    reach: positions on either side of the centre of a local window.
    dropout: dropout rate of the sums of embeddings and positions, and of the output of each sub-layer.
    dropout_attention: dropout rate of the attention weights.
    dtype: compute type.
  """

  V: int = 32_000
  D: int = 256
  F: int = 1024
  N: int = 2
  score: str = 'additive'
  projected: bool = False
  A: int = 256
  S: int = 128
  window: str = 'global'
  reach: int = 10
  dropout: float = 0.1  # Vaswani et al. 2017, section 5.4
  dropout_attention: float = 0.0
  dtype: str = 'float32'

  def __post_init__(self) -> None:
    check_least('model', self, D=1, F=1, N=1, A=1, S=1, reach=1)
    if self.D % 2:
      raise InputError(f'model.D: got {self.D}; expected an even number, because half of the sinusoids are cosines')
    rnn_attention.get(self.score)
    check_choice('model.window', self.window, rnn_attention.WINDOWS)
    for name in ('dropout', 'dropout_attention'):
      check_range(f'model.{name}', getattr(self, name), 0, 1)


VARIANTS = {
  'base': dict(D=256, F=1024, N=2, A=256),
  'tiny': dict(V=97, D=32, F=48, N=2, A=16, S=64),
}


class ScoredAttention(nn.Module):
  """Attention with a score of rnn_attention: its parameters, project_query and project_key if `projected`, and out.

  Attributes:
    cfg: the model's Config.
    kernel_init: initialisation of the matrices.
  """

  cfg: Config
  kernel_init: Init = Init('glorot')

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask: AttentionMask, cache: None, position_BT: None, key: Array | None
  ) -> tuple[Array, None]:
    query_BTD, keys_BSD, group_BS = x_BTD, x_BTD, mask.key_group_BS
    valid_BS = jnp.ones(x_BTD.shape[:2], bool) if group_BS is None else group_BS != masks.PADDING
    if self.cfg.projected:
      query_BTD = self.project(bias=False, name='project_query')(x_BTD)
      keys_BSD = self.project(bias=False, name='project_key')(x_BTD)
    a_BTS = constrain(self.weights(query_BTD, keys_BSD, valid_BS), 'BTS')
    record_attention('self', lambda: a_BTS)
    a_BTS = dropout.dropout(a_BTS, self.cfg.dropout_attention, key)
    context_BTD = jnp.einsum('BTS,BSD->BTD', a_BTS.astype(self.cfg.dtype), x_BTD)
    return self.project(residual=True, name='out')(context_BTD), cache

  def project(self, **fields: Any) -> Projection:
    """Return a projection of width D to width D."""
    D = self.cfg.D
    return Projection((D,), (D,), self.kernel_init, dtype=self.cfg.dtype, **fields)

  def weights(self, query_BTD: Array, keys_BSD: Array, valid_BS: Array) -> Array:
    """Return the attention weights (B, T, S) float32; those of local_p sum to less than 1, as in the paper."""
    cfg = self.cfg
    shapes = rnn_attention.shapes(cfg.score, cfg.window, rnn_attention.Sizes(cfg.D, cfg.D, cfg.A, cfg.S))
    params = {name: self.param(name, self._draw, shape) for name, shape in shapes.items()}
    count_B, centre_BT = jnp.sum(valid_BS, axis=1), None
    if cfg.window == 'local_m':
      centre_BT = rnn_attention.monotonic_centre(jnp.arange(valid_BS.shape[1])[None], count_B)
    elif cfg.window == 'local_p':
      hidden_BTD = rnn_attention.product(query_BTD, params['centre_query'])
      centre_BT = rnn_attention.predictive_centre(params, hidden_BTD, count_B)
    scores_BTS = rnn_attention.get(cfg.score)(params, query_BTD, keys_BSD)
    return rnn_attention.align(cfg.window, scores_BTS, valid_BS, centre_BT=centre_BT, reach=cfg.reach)

  def _draw(self, key: Array, shape: tuple[int, ...]) -> Array:
    """Initialise a parameter of the score: matrices as all others, vectors normal with variance 1 / length."""
    if len(shape) == 2:
      return self.kernel_init.draw(key, shape, *shape, residual=False)
    return shape[0] ** -0.5 * jax.random.normal(key, shape, jnp.float32)


def _block(cfg: Config) -> Block:
  mlp = Mlp(cfg.F, 'relu', Init('glorot'), dtype=cfg.dtype)
  return Block(ScoredAttention(cfg), mlp, 'post', EPS, cfg.dropout, cfg.dtype)


def init(cfg: Config, key: Array) -> Params:
  """Initialise the parameters: embed (tokens) and layer_00 .. (attention, mlp, norm_1, norm_2)."""
  tokens_key, *keys = jax.random.split(key, cfg.N + 1)
  params: dict[str, Params] = {'embed': {'tokens': embedding.table(tokens_key, cfg.V, cfg.D, cfg.D**-0.5)}}
  for i, k in enumerate(keys):
    params[layout.layer_name(i)] = transformer.init_block(_block(cfg), cfg.D, k, dtype=cfg.dtype)
  return params


def _mask(batch: Batch) -> AttentionMask:
  if 'documents_BT' in batch:
    raise InputError(
      'self_attention: got packed documents (documents_BT), which would attend to each other; set another data.batching'
    )
  return masks.from_batch(batch)


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the layers over `tokens_BT`.

  Args:
    batch: tokens_BT, valid_BT (optional, padding on the right).
    state: ().
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the embeddings and the output of each layer.

  Raises:
    InputError: packed documents, or a row longer than S with the score 'location'.
  """
  embed_key, layers_key = dropout.split(key, 2)
  x_BTD = sinusoids.embed(params['embed']['tokens'], batch['tokens_BT'], 'interleaved')
  x_BTD, _, hidden = transformer.stack(
    _block(cfg),
    layout.layers(params, range(cfg.N)),
    dropout.dropout(x_BTD.astype(cfg.dtype), cfg.dropout, embed_key),
    _mask(batch),
    key=layers_key,
  )
  return Features(x_BTD, layers=hidden if all_layers else None), state
