"""Transformer: Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser & Polosukhin 2017 (arXiv 1706.03762).

Encoder and decoder of section 3.1, multi-head attention of 3.2, ReLU networks of 3.3, sinusoidal positions of 3.5. One
table for source, target and output (but see `source_V` and `tied`), with embeddings multiplied by sqrt(D) (3.4).
Dropout of the sums of embeddings and positions and of the output of each sub-layer (5.4). The schedule of section 5.3
is optim.schedule 'inverse_sqrt' with a width, label smoothing belongs to the objective.

Paper and released code (tensor2tensor) differ; the experiments' fidelity sets these fields:
- `norm`: 'post' (figure 1: after each residual connection; transformer_base_v1) or 'pre' (before each sub-layer, and
  after the encoder and the decoder; transformer_base since version 2).
- `positions`: 'interleaved' sines and cosines as in the paper's equations, or 'tensor2tensor', see `sinusoids.table`.
  'learned' is row E of table 3, with a table of T positions for the source and one for the target.
- `dropout_attention`, `dropout_relu`: 0 in the paper, 0.1 in later versions of the released code.
- `activation`: ReLU in both; Marian's released models have Swish (Ramachandran et al. 2017, arXiv 1710.05941).
- Attention projections have no bias in either; fairseq's do, as do Marian's, whose output has one too (`biases`).
Kernels are initialised uniformly with variance 2 / (inputs + outputs), the table normally with standard deviation
D^-0.5, both as released. fairseq scales queries, keys and values by 2^-0.5 (`gain_qkv`), as if they were one matrix.
Layer normalisation's epsilon is the released 1e-6.

Rows B of table 3 narrow the queries and keys of a head (`K`) but not its values: 58 and 60 million parameters.
Table 3 rounds parameters to millions and gives the vocabulary as "about 37,000", which would be 63.0 and
214.2 million. All of its base rows that change D, F or the layers agree with 41,004 to 41,208 tokens and big's with
35,368 to 36,344. So the variants have 41,100 (65,144,832 parameters) and 36,000 (213,147,648); a run uses its
tokenizer's.

Deviations: the decoder's first input is eos_id's embedding, where tensor2tensor has a vector of zeros; the dropout mask
is a hash (lmx/ops/dropout.py).

Axes: S tokens of the source.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from lmx import layout
from lmx.errors import InputError, check_choice, check_heads, check_least, check_range
from lmx.layers import decoder_block, embedding, encoder_decoder, narrow_attention, sinusoids, softmax, transformer
from lmx.layers.block import Block
from lmx.ops import attention as attention_lib
from lmx.ops.rematerialisation import Policy
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
READS = 'source'
OBJECTIVE = 'translation'
VOCABULARY = ('embed/tokens', 'embed/source', 'output/tokens', 'output/bias')
SOURCE_VOCABULARY = ('embed/source',)
TIED = ('embed/tokens', 'output/tokens')


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: vocabulary size, of the target and, with source_V = 0, of the source.
    source_V: vocabulary size of the source, if it has its own table; 0: source and target share one.
    D: width.
    F: width of the feed-forward networks.
    H: heads.
    encoder_F: F of the encoder; 0 is F.
    encoder_H: H of the encoder; 0 is H.
    K: width of a head's queries and keys; 0 is D / H, the width of its values.
    T: positions of each learned table; 0 without these.
    encoder_layers: layers of the encoder.
    decoder_layers: layers of the decoder.
    norm: 'post' (paper) or 'pre' (tensor2tensor later).
    positions: layout of the sinusoids, one of lmx.layers.sinusoids.LAYOUTS, or 'learned'.
    first_position: number of the first position of the sinusoids; fairseq's released models begin with 2.
    scale_embedding: multiply embeddings by sqrt(D).
    tied: the output's matrix is the table of the target.
    activation: of the feed-forward networks: 'relu', 'swish', 'gelu_erf' or 'gelu_tanh'.
    biases: 'none', 'attention' (of its projections, as in fairseq) or 'all' (of the output too, as in Marian).
    gain_qkv: factor of the initial kernels of queries, keys and values.
    eps: epsilon of layer normalisation.
    dropout: dropout rate of the sums of embeddings and positions, and of the output of each sub-layer.
    dropout_attention: dropout rate of the attention probabilities.
    dropout_relu: dropout rate inside the feed-forward networks.
    dtype: compute type.
    attention: backend, one of lmx.ops.attention.BACKENDS.
    scan: compile one layer of the encoder and one of the decoder and loop over them.
    remat: activations that are kept for the backward pass, see lmx/ops/rematerialisation.py.
  """

  V: int = 37_000
  source_V: int = 0
  D: int = 512
  F: int = 2048
  H: int = 8
  encoder_F: int = 0
  encoder_H: int = 0
  K: int = 0
  T: int = 0
  encoder_layers: int = 6
  decoder_layers: int = 6
  norm: str = 'post'
  positions: str = 'interleaved'
  first_position: int = 0
  scale_embedding: bool = True
  tied: bool = True
  activation: str = 'relu'
  biases: str = 'none'
  gain_qkv: float = 1.0
  eps: float = 1e-6
  dropout: float = 0.1
  dropout_attention: float = 0.0
  dropout_relu: float = 0.0
  dtype: str = 'float32'
  attention: str = 'auto'
  scan: bool = False
  remat: Policy = 'none'

  def __post_init__(self) -> None:
    check_heads('transformer', self.D, self.H, even=True)
    if self.encoder_H:
      check_heads('transformer', self.D, self.encoder_H, even=True, field='encoder_H')
    check_choice('model.activation', self.activation, ('relu', 'swish', 'gelu_erf', 'gelu_tanh'))
    check_choice('model.norm', self.norm, ('post', 'pre'))
    check_choice('model.biases', self.biases, ('none', 'attention', 'all'))
    check_choice('model.positions', self.positions, (*sinusoids.LAYOUTS, 'learned'))
    if (self.positions == 'learned') != (self.T > 0):
      raise InputError(
        f'model.T: got {self.T} with positions "{self.positions}"; expected the number of learned positions, or '
        '0 with sinusoids; set model.T or model.positions'
      )
    check_choice('model.attention', self.attention, attention_lib.BACKENDS)
    if self.first_position and self.positions == 'learned':
      raise InputError(
        f'model.first_position: got {self.first_position} with learned positions; expected 0, because it shifts '
        'sinusoids'
      )
    check_least('model', self, source_V=0, encoder_F=0, encoder_H=0, first_position=0)
    check_least('model', self, F=1, K=0, T=0, encoder_layers=1, decoder_layers=1, gain_qkv=0, eps=0)
    for field in ('dropout', 'dropout_attention', 'dropout_relu'):
      check_range(f'model.{field}', getattr(self, field), 0, 1)

  @property
  def N(self) -> int:  # noqa: N802, the number of layers in every model
    """Number of layers: the encoder's 0 .. encoder_layers-1, then the decoder's."""
    return self.encoder_layers + self.decoder_layers


VARIANTS = {
  'base': dict(V=41_100),  # table 3
  'big': dict(V=36_000, D=1024, F=4096, H=16, dropout=0.3),
  # Wu et al. 2021 (ACL), Transformer-Tiny, with code in fairseq
  'tiny_multi30k': dict(
    D=128,
    F=256,
    H=4,
    encoder_layers=4,
    decoder_layers=4,
    positions='tensor2tensor',
    biases='attention',
    gain_qkv=0.5**0.5,
    eps=1e-5,
    dropout=0.3,
  ),
  'tiny': dict(V=97, D=32, F=48, H=4, encoder_layers=2, decoder_layers=2, biases='all'),
}


def _net(cfg: Config) -> encoder_decoder.Net:
  common: dict[str, Any] = dict(kernel_init=transformer.Init('glorot'), dtype=cfg.dtype)
  attention: dict[str, Any] = dict(
    backend=cfg.attention, rate=cfg.dropout_attention, bias=cfg.biases != 'none', **common
  )
  block: dict[str, Any] = dict(norm=cfg.norm, eps=cfg.eps, rate=cfg.dropout, dtype=cfg.dtype)
  own: Any = transformer.SelfAttention
  cross: Any = decoder_block.CrossAttention
  if cfg.K:
    own, cross = narrow_attention.SelfAttention, narrow_attention.CrossAttention
    attention['key_width'] = cfg.K
  mlp = lambda F: transformer.Mlp(F, cfg.activation, rate=cfg.dropout_relu, **common)
  encoder = Block(own(heads=cfg.encoder_H or cfg.H, **attention), mlp(cfg.encoder_F or cfg.F), **block)
  attention['heads'] = cfg.H
  decoder = decoder_block.DecoderBlock(own(causal=True, **attention), mlp(cfg.F), cross=cross(**attention), **block)
  return encoder_decoder.Net(
    encoder,
    decoder,
    (cfg.encoder_layers, cfg.decoder_layers),
    cfg.D,
    cfg.positions,
    cfg.dropout,
    cfg.scan,
    cfg.remat,
    cfg.T,
    cfg.K,
    cfg.source_V,
    cfg.scale_embedding,
    cfg.first_position,
  )


def init(cfg: Config, key: Array) -> Params:
  """Initialise embed (tokens, and where they exist source, source_positions, target_positions), layer_00 .., and where
  they exist norm_encoder, norm_decoder, output (tokens, bias)."""
  params = dict(encoder_decoder.init(_net(cfg), cfg.V, key))
  for i in range(cfg.N):
    layer = params[layout.layer_name(i)]
    params[layout.layer_name(i)] = jax.tree_util.tree_map_with_path(functools.partial(_widen, cfg), layer)
  output = {'bias': jnp.zeros(cfg.V, jnp.float32)} if cfg.biases == 'all' else {}
  if not cfg.tied:
    output['tokens'] = embedding.table(jax.random.fold_in(key, 0), cfg.V, cfg.D, cfg.D**-0.5)
  return params | ({'output': output} if output else {})


def _widen(cfg: Config, path: tuple[jax.tree_util.DictKey, ...], x: Array) -> Array:
  """Return an initial parameter of a layer, times `gain_qkv` if it projects queries, keys or values."""
  return cfg.gain_qkv * x if path[-2].key in ('qkv', 'q', 'kv', 'k', 'v') else x


def begin(cfg: Config, params: Params, batch: Batch, length: int) -> State:
  """Encode the source, for decoding at most `length` tokens; see `encoder_decoder.begin`."""
  return encoder_decoder.begin(_net(cfg), params, batch, length)


def apply(
  cfg: Config, params: Params, batch: Batch, state: State = (), key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the decoder over `tokens_BT`; without a state, first run the encoder; see `encoder_decoder.apply`."""
  return encoder_decoder.apply(_net(cfg), params, batch, state, key, all_layers)


def alignment(cfg: Config, params: Params, batch: Batch, *, layer: int = -1) -> Array:
  """Return the cross-attention as an alignment (B, T, S); see `encoder_decoder.alignment`."""
  return encoder_decoder.alignment(_net(cfg), params, batch, layer)


def _output(params: Params) -> tuple[Array, Array | None]:
  """Return the output's matrix (V, D), and its bias if it has one."""
  output = params.get('output', {})
  return output.get('tokens', params['embed']['tokens']), output.get('bias')


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of the next token, (B, T, V) float32."""
  table_VD, bias_V = _output(params)
  return softmax.tied_logits(features.last_BTD, table_VD, bias_V, size=cfg.V)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32."""
  table_VD, bias_V = _output(params)
  return softmax.tied_nll(features.last_BTD, table_VD, targets_BT, bias_V, size=cfg.V)


def depth(cfg: Config, path: tuple[str, ...]) -> int:
  """Return a parameter's layer number: 0 in the table, i + 1 in layer i (encoder first, then decoder), else N + 1."""
  return encoder_decoder.depth(_net(cfg), path)
