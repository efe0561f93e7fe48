"""Recurrent encoder-decoders without attention.

Papers: Cho et al. 2014 (arXiv 1406.1078), Sutskever, Vinyals & Le 2014 (arXiv 1409.3215). e is the embedding of the
previous token, s the decoder's state, h_S the encoder's last state:

- `design='cho'` (RNNencdec): c = tanh(V h_S), s_0 = tanh(V' c); e and c enter every gate. The deep output of s, e and c
  is t~ = U_o s + V_o e + C_o c, maxout over pairs of neighbours, then the softmax. `readout='previous'` uses
  the state before the step (Bahdanau et al. 2015, appendix A.2.2), 'current' the state after it.
- `design='sutskever'`: the last states of the encoder's layers are the decoder's initial states; the source has no
  other effect. `reverse` reads the source in reverse order (section 3.3).

Parameters: rnnencdec 69,579,000 with 30,000 words of each language; Sutskever's LSTM 384,128,000 with 160,000 words of
the source and 80,000 of the target (section 3.4: 384M).

Deviations: the term of c is outside the reset gate (as in appendix A.1.1 of Bahdanau et al. 2015, arXiv 1409.0473, of
which this is the case of a fixed c). An LSTM's cell state starts at 0 where a learned map gives the state.

Axes: S source positions, T target; E embedding, D hidden width, H annotation, W width of the softmax input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from lmx.errors import InputError, check_choice, check_least
from lmx.layers import rnn_cell, rnn_translation
from lmx.ops.dropout import dropout, split
from lmx.ops.rnn import Carry
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
OBJECTIVE = 'translation'
READS = 'source'
VOCABULARY, SOURCE_VOCABULARY = rnn_translation.VOCABULARY, rnn_translation.SOURCE_VOCABULARY
DESIGNS = ('cho', 'sutskever')


@dataclasses.dataclass(frozen=True)
class Config(rnn_translation.Config):
  """Sizes and switches; the attributes are those of `rnn_translation.Config`, and

  Attributes:
    encoder_layers: layers of the encoder.
    decoder_layers: layers of the decoder.
    design: one of DESIGNS.
    bidirectional: the encoder reads in both directions; a layer concatenates their outputs.
    readout: cho: state used by the deep output, 'previous' or 'current'.
    maxout: cho: W, the width of the deep output.
  """

  encoder_layers: int = 1
  decoder_layers: int = 1
  design: str = 'cho'
  bidirectional: bool = False
  readout: str = 'previous'
  maxout: int = 500

  def __post_init__(self) -> None:
    check_choice('model.design', self.design, DESIGNS)
    check_choice('model.readout', self.readout, rnn_translation.READOUTS)
    check_least('model', self, maxout=1)
    super().__post_init__()
    if self.design == 'sutskever' and (self.bidirectional or self.encoder_layers != self.decoder_layers):
      raise InputError(
        f"model.design: got 'sutskever' with bidirectional={self.bidirectional}, {self.encoder_layers} and "
        f'{self.decoder_layers} layers; expected bidirectional=False and equally many layers, because each '
        'encoder layer initialises a decoder layer; set model.bidirectional, model.encoder_layers or '
        'model.decoder_layers'
      )

  @property
  def W(self) -> int:  # noqa: N802
    """Width of the input of the softmax."""
    return self.maxout if self.design == 'cho' else self.D


VARIANTS: dict[str, dict[str, Any]] = {
  'rnnencdec': {},  # Bahdanau et al. 2015, appendix A.2.3 and section 4.2
  # Luong et al. 2015 (arXiv 1508.04025), table 1, "Base + reverse + dropout".
  'sutskever': dict(
    design='sutskever',
    V=50_000,
    E=1000,
    D=1000,
    encoder_layers=4,
    decoder_layers=4,
    cell='lstm',
    reverse=True,
    init='uniform',
    dropout_embedding=0.2,
    dropout_hidden=0.2,
    dropout_output=0.2,
  ),
  # For data sets of a few tens of thousands of sentences on two cores.
  'rnnencdec_small': dict(E=256, D=256, maxout=256, init='uniform', init_scale=0.08, cell='gru'),
  'tiny': dict(V=61, E=12, D=16, maxout=8, init='uniform', init_scale=0.3),
}


def init(cfg: Config, key: Array) -> Params:
  """Initialise the parameters: embed, layer_00 .. of the encoder and then of the decoder, start of cho, and output."""
  if cfg.design == 'sutskever':
    return rnn_translation.init(cfg, rnn_translation.shapes(cfg, context=0), key)
  H, D, starts = cfg.H, cfg.D, cfg.decoder_layers * cfg.D
  tree = rnn_translation.shapes(cfg, context=D)
  tree['start'] = {'context': (H, D), 'context_bias': (D,), 'state': (D, starts), 'state_bias': (starts,)}
  tree['output'] |= rnn_translation.deep_shapes(cfg, D)
  return rnn_translation.init(cfg, tree, key)


def _encode(cfg: Config, params: Params, batch: Batch, key: Array | None) -> dict[str, Any]:
  """Run the encoder: the decoder's initial state, and c of cho."""
  source_key, context_key = split(key, 2)
  _, valid_BS, ends = rnn_translation.encode(cfg, params, batch, source_key)
  state: dict[str, Any] = {'position_B': jnp.zeros(len(valid_BS), jnp.int32)}
  if cfg.design == 'sutskever':
    return state | {'layers': [end['forward'] for end in ends]}
  start = params['start']
  last_BH = jnp.concatenate([end[0] for end in ends[-1].values()], axis=-1)
  context_BD = jnp.tanh(last_BH @ start['context'].astype(last_BH.dtype) + start['context_bias'][None])
  layers = rnn_translation.start(cfg, start, context_BD)
  return state | {'layers': layers, 'context_BD': dropout(context_BD, cfg.dropout_hidden, context_key)}


def _decode(
  cfg: Config, params: Params, state: State, batch: Batch, key: Array | None, outputs: Sequence[str]
) -> tuple[Features, State]:
  """Run the decoder from a state under teacher forcing: (Features, state)."""
  embed_key, output_key, loop_key = split(key, 3)
  target = rnn_translation.target(cfg, params, batch, state['position_B'], embed_key)
  carries, layers = _stack(cfg, params, state, target, split(loop_key, cfg.decoder_layers))
  last_TBW = layers[-1]
  if cfg.design == 'cho':
    if cfg.readout == 'previous':
      last_TBW = jnp.concatenate([state['layers'][-1][0][None].astype(cfg.dtype), last_TBW[:-1]])
    last_TBW = rnn_translation.deep_output(cfg, params, target.x_TBE, state['context_BD'][None], last_TBW)
  features = rnn_translation.features(cfg, target.x_TBE, last_TBW, {'layers': layers}, output_key, outputs)
  position_B = state['position_B'] + jnp.sum(target.steps_TB, axis=0)
  return features, {**state, 'layers': carries, 'position_B': position_B}


def _stack(
  cfg: Config, params: Params, state: State, target: rnn_translation.Target, keys: list[Array | None]
) -> tuple[list[Carry], tuple[Array, ...]]:
  """Run the decoder's layers: (carries after them, outputs of all layers, time leading)."""
  x_TBE = target.x_TBE
  if cfg.design == 'cho':
    context_TBD = jnp.broadcast_to(state['context_BD'].astype(cfg.dtype)[None], (*x_TBE.shape[:2], cfg.D))
    x_TBE = jnp.concatenate([x_TBE, context_TBD], axis=-1)
  carries, outputs = [], []
  layers = rnn_translation.decoder_layers(cfg, params)
  for i, (layer, carry, key) in enumerate(zip(layers, state['layers'], keys, strict=True)):
    x_TBE = dropout(x_TBE, cfg.dropout_hidden if i else 0.0, key)
    x_TBE, carry = rnn_cell.layer(cfg.cell, layer, x_TBE, carry, target.valid_TB, dtype=cfg.dtype, backend=cfg.backend)
    carries.append(carry)
    outputs.append(x_TBE)
  return carries, tuple(outputs)


_model = rnn_translation.EncoderDecoder(_encode, _decode)
begin, apply = _model.begin, _model.apply
logits, nll = rnn_translation.logits, rnn_translation.nll
depth = rnn_translation.depth
