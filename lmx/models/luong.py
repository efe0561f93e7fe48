"""Encoder-decoder with global and local attention: Luong, Pham & Manning 2015 (arXiv 1508.04025).

Sections 3 and 3.3, where s is the state of the decoder's top layer, h_j the source's annotations:

- Encoder: stacked LSTMs in one direction; `reverse` reads the source in reverse order (section 4.1).
- Start: each layer of the decoder starts from the last state of the same encoder layer.
- Attention: the query is the new top state of each step; c = sum_j a_j h_j, h~ = tanh(W_c [c; s]).
- Decoder: with input feeding, h~ is part of the next step's input.
- Output: softmax over h~.

Scores and local windows are in lmx/layers/rnn_attention.py. Annotations are in the order of the text, so that
alignments and local windows use its positions. `reading='hard'` and `doubly_stochastic` are from Xu et al. 2015
(arXiv 1502.03044).

Parameters: 222,083,000 with 50,000 words of each language.

Axes: S source positions, T target; E embedding, D hidden width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from lmx.errors import check_least
from lmx.layers import rnn_decoder, rnn_translation
from lmx.ops.dropout import split
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
OBJECTIVE = 'translation'
READS = 'source'
VOCABULARY, SOURCE_VOCABULARY = rnn_translation.VOCABULARY, rnn_translation.SOURCE_VOCABULARY


@dataclasses.dataclass(frozen=True)
class Config(rnn_decoder.Config):
  """Sizes and switches; the attributes are those of `rnn_decoder.Config`, and

  Attributes:
    layers: number of layers of the encoder, and of the decoder.
    input_feeding: h~ is part of the next input (section 3.3); it has dropout_hidden there.
  """

  V: int = 50_000  # section 4.1, as the fields below
  E: int = 1000
  layers: int = 4
  cell: str = 'lstm'
  reverse: bool = True
  score: str = 'general'
  window: str = 'local_p'
  input_feeding: bool = True
  dropout_embedding: float = 0.2
  dropout_hidden: float = 0.2
  dropout_output: float = 0.2
  init: str = 'uniform'

  def __post_init__(self) -> None:
    check_least('model', self, layers=1)
    super().__post_init__()

  @property
  def encoder_layers(self) -> int:
    """Layers of the encoder."""
    return self.layers

  @property
  def decoder_layers(self) -> int:
    """Layers of the decoder."""
    return self.layers


_NO_DROPOUT: dict[str, Any] = dict(dropout_embedding=0.0, dropout_hidden=0.0, dropout_output=0.0)
VARIANTS: dict[str, dict[str, Any]] = {
  'luong': {},  # section 4.1
  # For data sets of a few tens of thousands of sentences on two cores. A range of 0.2 for 256 units corresponds to the
  # paper's
  # 0.1 for 1,000.
  'luong_small': dict(**_NO_DROPOUT, V=30_000, E=256, D=256, layers=1, init_scale=0.2),
  'tiny': dict(**_NO_DROPOUT, V=61, E=12, D=16, layers=1, A=10, S=16, init_scale=0.3, reach=2),
}


def init(cfg: Config, key: Array) -> Params:
  """Initialise the parameters: embed, layer_00 .. of the encoder and then of the decoder, attention and output."""
  tree = rnn_translation.shapes(cfg, context=cfg.D if cfg.input_feeding else 0)
  tree['attention'] = rnn_decoder.score_shapes(cfg) | {'combine': (cfg.H + cfg.D, cfg.D)}
  return rnn_translation.init(cfg, tree, key)


def _encode(cfg: Config, params: Params, batch: Batch, key: Array | None) -> dict[str, Any]:
  """Run the encoder: the decoder's inputs from the source, and its initial state."""
  values_BSH, valid_BS, ends = rnn_translation.encode(cfg, params, batch, split(key, 2)[0])
  carries = [end['forward'] for end in ends]
  return {
    'layers': carries,
    'position_B': jnp.zeros(len(valid_BS), jnp.int32),
    'attentional_BD': jnp.zeros_like(carries[-1][0]),
    **rnn_decoder.source(cfg, params['attention'], values_BSH, valid_BS),
  }


def _decode(
  cfg: Config, params: Params, state: State, batch: Batch, key: Array | None, outputs: Sequence[str]
) -> tuple[Features, State]:
  """Run the decoder from a state under teacher forcing: (Features, state)."""
  embed_key, output_key, loop_key = split(key, 3)
  target = rnn_translation.target(cfg, params, batch, state['position_B'], embed_key)
  state, y = rnn_decoder.run(cfg, params, state, target, loop_key, ('attentional', *outputs))
  return rnn_translation.features(cfg, target.x_TBE, y['attentional'], y, output_key, outputs), state


_model = rnn_decoder.EncoderDecoder(_encode, _decode)
begin, apply, alignment = _model.begin, _model.apply, _model.alignment
logits, nll = rnn_translation.logits, rnn_translation.nll
penalties, penalty_weights, depth = rnn_decoder.penalties, rnn_decoder.penalty_weights, rnn_translation.depth
