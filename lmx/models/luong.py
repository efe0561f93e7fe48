"""Encoder-decoder with global and local attention: Luong, Pham & Manning 2015 (arXiv 1508.04025).

Sections 3 and 3.3, where s is the state of the decoder's top layer, h_j the source's annotations:

- Encoder: stacked LSTMs in one direction; `reverse` reads the source in reverse order (section 4.1).
- Start: each layer of the decoder starts from the last state of the same encoder layer.
- Attention: the query is the new top state of each step; c = sum_j a_j h_j, h~ = tanh(W_c [c; s]).
- Decoder: with input feeding, h~ is part of the next step's input.
- Output: softmax over h~.

Scores and local windows are those of lmx/layers/rnn_attention.py. Annotations are returned in the order of the text, so
that alignments and local windows use its positions. `reading='hard'` and `doubly_stochastic` are from Xu et al. 2015
(arXiv 1502.03044).

Parameters: 222,083,000 at V = 50,000.

Deviations: one vocabulary for both sides, hence its size counted twice.

Axes: S source positions, T target; E embedding, D hidden width.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp

from lmx.errors import check_least
from lmx.layers import rnn_attention, rnn_decoder, rnn_translation, softmax
from lmx.ops.dropout import split
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
OBJECTIVE = 'translation'
READS = 'source'
VOCABULARY = rnn_translation.VOCABULARY


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: vocabulary size, of both sides.
    E: embedding width.
    D: width of the hidden layers.
    layers: number of layers of the encoder, and of the decoder.
    cell: one of lmx.layers.rnn_cell.CELLS.
    reverse: the encoder reads the source in reverse order.
    score: one of lmx.layers.rnn_attention.SCORES.
    A: width of the alignment of the score 'additive'.
    S: maximum number of source positions of the score 'location'.
    window: source positions that attention covers, one of lmx.layers.rnn_attention.WINDOWS.
    reach: positions on either side of the centre of a local window, the D of Luong's section 3.2.
    reading: 'soft' or 'hard' attention.
    expected: hard: share of the rows that in training use the mean instead of a sampled position (Xu, section 4.1).
    doubly_stochastic: weight of the penalty for a source position whose attention does not sum to 1 (Xu, equation 14).
    input_feeding: h~ is part of the next input (section 3.3).
    shared: one embedding table for both sides.
    tied: use the target's embedding as the output matrix; needs W = E.
    dropout_embedding: dropout rate of the embeddings.
    dropout_hidden: dropout rate of the input of each layer but the first, of the annotations, and of h~ as an input.
    dropout_output: dropout rate of the input of the softmax.
    init: 'uniform' is +-init_scale for all, 'paper' as in Bahdanau's appendix B.1 (lmx/layers/rnn_translation.py).
    init_scale: bound of 'uniform'.
    dtype: compute type.
    backend: implementation of layers without attention (lmx/layers/recurrent.py).
    remat: recompute the scores in the backward pass instead of storing them.
  """

  V: int = 50_000  # section 4.1, as the fields below
  E: int = 1000
  D: int = 1000
  layers: int = 4
  cell: str = 'lstm'
  reverse: bool = True
  score: str = 'general'
  A: int = 1000
  S: int = 50
  window: str = 'local_p'
  reach: int = 10
  reading: str = 'soft'
  expected: float = 0.5
  doubly_stochastic: float = 0.0
  input_feeding: bool = True
  shared: bool = False
  tied: bool = False
  dropout_embedding: float = 0.2
  dropout_hidden: float = 0.2
  dropout_output: float = 0.2
  init: str = 'uniform'
  init_scale: float = 0.1
  dtype: str = 'float32'
  backend: str = 'auto'
  remat: bool = False

  bidirectional = False

  def __post_init__(self) -> None:
    check_least('model', self, layers=1)
    rnn_translation.check(self)
    rnn_decoder.check(self)

  @property
  def N(self) -> int:  # noqa: N802
    """Layers of the encoder, then of the decoder."""
    return 2 * self.layers

  @property
  def encoder_layers(self) -> int:
    """Layers of the encoder."""
    return self.layers

  @property
  def decoder_layers(self) -> int:
    """Layers of the decoder."""
    return self.layers

  @property
  def H(self) -> int:  # noqa: N802
    """Width of an annotation."""
    return self.D

  @property
  def W(self) -> int:  # noqa: N802
    """Width of the input of the softmax."""
    return self.D

  @property
  def longest(self) -> int | None:
    """Maximum source length in tokens, the end token included: the S of the score 'location'; None is any number."""
    return self.S if self.score == 'location' else None


_NO_DROPOUT: dict[str, Any] = dict(dropout_embedding=0.0, dropout_hidden=0.0, dropout_output=0.0)
VARIANTS: dict[str, dict[str, Any]] = {
  'luong': {},  # section 4.1
  # For data sets of a few ten thousand sentences on two cores. A range of 0.2 for 256 units corresponds to the paper's
  # 0.1 for 1,000.
  'luong_small': dict(**_NO_DROPOUT, V=30_000, E=256, D=256, layers=1, init_scale=0.2),
  'tiny': dict(**_NO_DROPOUT, V=61, E=12, D=16, layers=1, A=10, S=16, init_scale=0.3, reach=2),
}


def init(cfg: Config, key: Array) -> Params:
  """Initialise the parameters: embed, layer_00 .. of the encoder and then of the decoder, attention and output."""
  tree = rnn_translation.shapes(cfg, context=cfg.D if cfg.input_feeding else 0)
  attention = rnn_attention.shapes(cfg.score, cfg.window, rnn_decoder.sizes(cfg))
  tree['attention'] = attention | {'combine': (cfg.H + cfg.D, cfg.D)}
  return rnn_translation.init(cfg, tree, key)


def begin(cfg: Config, params: Params, batch: Batch, length: int) -> State:
  """Return the state after the source and before the target; it has one size for any `length`."""
  del length
  return _read(cfg, params, batch, None)


def apply(
  cfg: Config, params: Params, batch: Batch, state: State = (), key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Encode the source and run the decoder over the target, or continue a target.

  Args:
    batch: tokens_BT, valid_BT (optional); source_BS and source_valid_BS (optional) where the state is ().
    state: (), or from `begin` or the previous call.
    key: PRNG key of dropout and hard attention; None at evaluation, where it takes the most probable position.
    all_layers: also return the target's embedding, each layer of the decoder, and the input of the softmax.

  Returns:
    (Features, with alignment_BTS where a penalty or hard attention needs it; () or the state after the target).
  """
  source_key, target_key = split(key, 2)
  begun = state if state else _read(cfg, params, batch, source_key)
  features, end = _write(cfg, params, begun, batch, target_key, all_layers=all_layers, alignment=False)
  return features, end if state else ()


def _read(cfg: Config, params: Params, batch: Batch, key: Array | None) -> dict[str, Any]:
  """Run the encoder: the decoder's inputs from the source, and its initial state."""
  values_BSH, valid_BS, ends = rnn_translation.encode(cfg, params, batch, split(key, 2)[0])
  state: dict[str, Any] = {
    'layers': [end['forward'] for end in ends],
    'position_B': jnp.zeros(len(valid_BS), jnp.int32),
  }
  state |= rnn_decoder.source(rnn_decoder.spec(cfg, 'after'), params['attention'], values_BSH, valid_BS)
  return state | {'attentional_BD': jnp.zeros_like(state['layers'][-1][0])}


def _write(
  cfg: Config, params: Params, state: State, batch: Batch, key: Array | None, *, all_layers: bool, alignment: bool
) -> tuple[Features, State]:
  """Run the decoder from a state under teacher forcing: (Features, state)."""
  embed_key, output_key, loop_key = split(key, 3)
  target = rnn_translation.target(cfg, params, batch, state['position_B'], embed_key)
  end, y = rnn_decoder.run(
    rnn_decoder.spec(cfg, 'after', feeding=cfg.input_feeding),
    rnn_translation.decoder_layers(cfg, params),
    params['attention'],
    state,
    target.x_TBE,
    target.valid_TB,
    target.position_TB,
    loop_key,
    ('attentional', *rnn_decoder.output_names(cfg, alignment=alignment, all_layers=all_layers)),
  )
  features = rnn_translation.features(cfg, target.x_TBE, y['attentional'], y, output_key, all_layers=all_layers)
  return features, {**state, **end, 'position_B': state['position_B'] + jnp.sum(target.steps_TB, axis=0)}


def alignment(cfg: Config, params: Params, batch: Batch) -> Array:
  """Return the attention of each target position, (B, T, S) float32, teacher forcing without dropout; rows sum to 1.

  Source positions are those of the text, also with `reverse`. The Gaussian of local_p is normalised here.
  """
  features, _ = _write(cfg, params, _read(cfg, params, batch, None), batch, None, all_layers=False, alignment=True)
  return rnn_decoder.normalized_alignment(features)


def penalties(cfg: Config, params: Params, features: Features, batch: Batch) -> dict[str, Array]:
  """Return the doubly stochastic penalty, summed over rows; {} where its weight is 0."""
  del params
  return rnn_decoder.evenness(cfg.doubly_stochastic, features, batch)


def penalty_weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """Return the number of rows that have a target."""
  return rnn_decoder.evenness_weights(cfg.doubly_stochastic, batch)


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of every next token, (B, T, V) float32."""
  return softmax.tied_logits(features.last_BTD, *rnn_translation.output(cfg, params), size=cfg.V)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32."""
  table_VD, bias_V = rnn_translation.output(cfg, params)
  return softmax.tied_nll(features.last_BTD, table_VD, targets_BT, bias_V, size=cfg.V)


def depth(cfg: Config, path: tuple[str, ...]) -> int:
  """Return the layer of a parameter, see `rnn_translation.depth`."""
  return rnn_translation.depth(cfg, path)
