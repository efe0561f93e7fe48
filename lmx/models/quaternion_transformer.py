"""Quaternion Transformer for translation: Tay, Zhang, Luu, Rao, Zhang, Wang, Fu & Hui 2019 (arXiv 1906.04393).

"Lightweight and Efficient Neural Natural Language Processing with Quaternion Networks": the encoder and decoder of
Vaswani et al. 2017 with quaternion matrices (sections 2.2 and 3.2) and attention between quaternions. The
parts, and the choices that paper and released code (vanzytay/QuaternionTransformers) leave open, are in
lmx/layers/quaternion.py. Sizes, pre-norm, positions and dropout are those of tensor2tensor's transformer_base since its
version 2, which the released code copies. models/quaternion_text.py has the same layers for a single text.

The paper's translation table gives parameters without the embedding, for any vocabulary. Exactly:

  base     44,103,680   the ordinary Transformer                        44M
  partial  29,947,904   the four matrices of each attention             29M (truncated, not rounded)
  full     11,042,816   those of the feed-forward networks too          11M

With an ordinary output projection of attention, partial would have 33.5 million; so that one is quaternion too, as in
the released code. Of the 44,103,680, matrices have 44,040,192, biases 30,720 and normalisations 32,768.

Deviations: no embedding of the target's language, which tensor2tensor adds to the source; the decoder's first input is
eos_id's embedding, where tensor2tensor has a vector of zeros; the table and the ordinary kernels are
initialised as in models/transformer.py; the dropout mask is a hash (lmx/ops/dropout.py).
"""

from __future__ import annotations

import dataclasses

from lmx.errors import check_least, check_range
from lmx.layers import encoder_decoder, quaternion, softmax
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
READS = 'source'
OBJECTIVE = 'translation'
HEADS = ('embed',)  # not included in the paper's counts
VOCABULARY = ('embed/tokens', 'embed/source')
SOURCE_VOCABULARY = ('embed/source',)
TIED = ('embed/tokens',)


@dataclasses.dataclass(frozen=True)
class Config(quaternion.Config):
  """Sizes and switches, in addition to those of `quaternion.Config`.

  Attributes:
    source_V: vocabulary size of the source, if it has its own table; 0: source and target share one.
    encoder_layers: layers of the encoder.
    decoder_layers: layers of the decoder.
  """

  source_V: int = 0
  encoder_layers: int = 6
  decoder_layers: int = 6

  def __post_init__(self) -> None:
    super().__post_init__()
    check_least('model', self, source_V=0)
    for field in ('encoder_layers', 'decoder_layers'):
      check_range(f'model.{field}', getattr(self, field), 1)

  @property
  def N(self) -> int:  # noqa: N802, the number of layers in every model
    """Number of layers: the encoder's 0 .. encoder_layers-1, then the decoder's."""
    return self.encoder_layers + self.decoder_layers


VARIANTS = {
  'base': dict(quaternion='none'),  # table of translation
  'partial': dict(quaternion='partial'),
  'full': dict(quaternion='full'),
  'tiny': dict(V=97, D=32, F=48, H=4, encoder_layers=1, decoder_layers=1, bias=True),
}


def _net(cfg: Config) -> encoder_decoder.Net:
  encoder, decoder = quaternion.block(cfg, causal=False), quaternion.decoder(cfg)
  layers = (cfg.encoder_layers, cfg.decoder_layers)
  return encoder_decoder.Net(
    encoder, decoder, layers, cfg.D, cfg.positions, cfg.dropout, cfg.scan, cfg.remat, source_size=cfg.source_V
  )


def init(cfg: Config, key: Array) -> Params:
  """Initialise the parameters: embed (tokens, with source_V source), layer_00 .., and norm_encoder, norm_decoder."""
  return encoder_decoder.init(_net(cfg), cfg.V, key)


def begin(cfg: Config, params: Params, batch: Batch, length: int) -> State:
  """Encode the source, for decoding at most `length` tokens; see `encoder_decoder.begin`."""
  return encoder_decoder.begin(_net(cfg), params, batch, length)


def apply(
  cfg: Config, params: Params, batch: Batch, state: State = (), key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the decoder over `tokens_BT`; without a state, first run the encoder; see `encoder_decoder.apply`."""
  return encoder_decoder.apply(_net(cfg), params, batch, state, key, all_layers)


def alignment(cfg: Config, params: Params, batch: Batch, *, layer: int = -1) -> Array:
  """Return the cross-attention as an alignment, averaged over heads and components, (B, T, S)."""
  return encoder_decoder.alignment(_net(cfg), params, batch, layer)


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of the next token, (B, T, V) float32."""
  return softmax.tied_logits(features.last_BTD, params['embed']['tokens'], size=cfg.V)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32."""
  return softmax.tied_nll(features.last_BTD, params['embed']['tokens'], targets_BT, size=cfg.V)


def depth(cfg: Config, path: tuple[str, ...]) -> int:
  """Return a parameter's layer number: 0 in the table, i + 1 in layer i (encoder first, then decoder), else N + 1."""
  return encoder_decoder.depth(_net(cfg), path)
