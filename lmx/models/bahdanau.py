"""RNNsearch, the encoder-decoder with attention: Bahdanau, Cho & Bengio 2015 (arXiv 1409.0473).

Appendix A, where e is the embedding of the previous token, s the decoder's state, h_j the source's annotations:

- Encoder: bidirectional gated units, outputs concatenated.
- Start: s_0 = tanh(W_s h_1 of the backward direction).
- Attention: the query is the state before each step; c = sum_j a_j h_j, a = softmax(v tanh(W s + U h_j)).
- Decoder: e and c enter every gate.
- Deep output (appendix A.2.2): t~ = U_o s + V_o e + C_o c, maxout over pairs of neighbours, then the softmax.
  `readout='previous'` uses the state before the step, as in the appendix and the released code; 'current' the
  state after it, as in equation 4 of section 3.1.

`reading='hard'` and `doubly_stochastic` are from Xu et al. 2015 (arXiv 1502.03044). Other scores and windows are those
of lmx/layers/rnn_attention.py.

Parameters: 80,443,000 with 30,000 words of each language.

Deviations: a bias wherever the text omits it "to
increase readability"; in the cell 'gru_paper' z weights the old state (the paper's z is 1 - z). An LSTM's cell state
starts at 0.

Axes: S source positions, T target; E embedding, D hidden width, H annotation, W width of the softmax input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from lmx.errors import check_choice, check_least
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
    encoder_layers: layers of the encoder.
    decoder_layers: layers of the decoder.
    bidirectional: the encoder reads in both directions; a layer concatenates their outputs.
    readout: state used by the deep output, 'previous' or 'current'.
    maxout: W, the width of the deep output.
  """

  encoder_layers: int = 1
  decoder_layers: int = 1
  bidirectional: bool = True
  readout: str = 'previous'
  maxout: int = 500

  attends_before = True

  def __post_init__(self) -> None:
    check_choice('model.readout', self.readout, rnn_translation.READOUTS)
    check_least('model', self, maxout=1)
    super().__post_init__()

  @property
  def W(self) -> int:  # noqa: N802
    """Width of the input of the softmax."""
    return self.maxout


VARIANTS: dict[str, dict[str, Any]] = {
  'rnnsearch': {},  # appendix A.2.3 and section 4.2
  # For data sets of a few tens of thousands of sentences on two cores.
  'rnnsearch_small': dict(E=256, D=256, A=256, maxout=256, init='uniform', init_scale=0.08, cell='gru'),
  'tiny': dict(V=61, E=12, D=16, A=10, S=16, maxout=8, init='uniform', init_scale=0.3, reach=2),
}


def init(cfg: Config, key: Array) -> Params:
  """Initialise embed, layer_00 .. of the encoder and then of the decoder, start, attention and output."""
  starts = cfg.decoder_layers * cfg.D
  tree = rnn_translation.shapes(cfg, context=cfg.H)
  tree['start'] = {'state': (cfg.D, starts), 'state_bias': (starts,)}
  tree['output'] |= rnn_translation.deep_shapes(cfg, cfg.H)
  if attention := rnn_decoder.score_shapes(cfg):
    tree['attention'] = attention
  return rnn_translation.init(cfg, tree, key)


def _encode(cfg: Config, params: Params, batch: Batch, key: Array | None) -> dict[str, Any]:
  """Run the encoder: the decoder's inputs from the source, and its initial state."""
  values_BSH, valid_BS, ends = rnn_translation.encode(cfg, params, batch, split(key, 2)[0])
  first_BD = ends[-1]['backward' if cfg.bidirectional else 'forward'][0]
  state = {
    'layers': rnn_translation.start(cfg, params['start'], first_BD),
    'position_B': jnp.zeros(len(valid_BS), jnp.int32),
  }
  return state | rnn_decoder.source(cfg, params.get('attention', {}), values_BSH, valid_BS)


def _decode(
  cfg: Config, params: Params, state: State, batch: Batch, key: Array | None, outputs: Sequence[str]
) -> tuple[Features, State]:
  """Run the decoder from a state under teacher forcing: (Features, state)."""
  embed_key, output_key, loop_key = split(key, 3)
  target = rnn_translation.target(cfg, params, batch, state['position_B'], embed_key)
  readout = 'before' if cfg.readout == 'previous' else 'state'
  state, y = rnn_decoder.run(cfg, params, state, target, loop_key, (readout, 'context', *outputs))
  last_TBW = rnn_translation.deep_output(cfg, params, target.x_TBE, y['context'], y[readout])
  return rnn_translation.features(cfg, target.x_TBE, last_TBW, y, output_key, outputs), state


_model = rnn_decoder.EncoderDecoder(_encode, _decode)
begin, apply, alignment = _model.begin, _model.apply, _model.alignment
logits, nll = rnn_translation.logits, rnn_translation.nll
penalties, penalty_weights, depth = rnn_decoder.penalties, rnn_decoder.penalty_weights, rnn_translation.depth
