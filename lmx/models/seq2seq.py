"""Recurrent encoder-decoders, without and with attention.

Papers: Cho et al. 2014 (arXiv 1406.1078), Sutskever et al. 2014 (arXiv 1409.3215), Bahdanau et al. 2015 (arXiv
1409.0473), Luong et al. 2015 (arXiv 1508.04025), Xu et al. 2015 (arXiv 1502.03044; hard attention and the doubly
stochastic penalty). With e the embedding of the token before, s the decoder's state, h_j the source's annotations:

- sutskever: the last states of the encoder's layers start the decoder's, and nothing else of the source is read.
- cho (RNNencdec): c = tanh(V h_S), s_0 = tanh(V' c); e and c enter every gate, and s, e and c the output.
- bahdanau (RNNsearch, appendix A): s_0 = tanh(W_s h_1 of the backward direction); at each step the state before it
  looks at the source, c = sum_j a_j h_j; e and c enter every gate.
- luong (sections 3 and 3.3): stacked layers that start from the encoder's last states; the new top state looks at the
  source, h~ = tanh(W_c [c; s]), which is what the softmax reads and, with input feeding, part of the next input.

Deep output of cho and bahdanau (appendix A.2.2): t~ = U_o s + V_o e + C_o c, the larger of each two neighbours, then
the softmax. `readout='previous'` reads the state before the step, as the appendix and the released code have it;
'current' the state after it, as equation 4 of section 3.1 has it.

Parameters: rnnsearch 80,443,000 and rnnencdec 69,579,000 at V = 30,000; luong 222,083,000 at V = 50,000.

Deviations: one vocabulary for both sides, hence its size counted twice; a bias wherever Bahdanau's text leaves it out
"to increase readability", none in W_c and W_a, as Luong writes them; in the cell 'gru_paper' z keeps the old state
(Cho's equation 7; Bahdanau's z is 1 - z); in cho, the term of c is outside of the reset gate (as in Bahdanau's appendix
A.1.1, of which this is the case of a fixed c). An LSTM's memory starts at 0 where a learned map gives the state.

`reverse` reads the source from its end (Sutskever et al., section 3.3; Luong et al., section 4.1). Annotations are put
back in the order of the text, so that alignments and local windows count its positions.

Axes: S source positions, T target; E embedding, D hidden width, X keys, G gates, W width of what the softmax reads.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_choice, check_least, check_range, check_share
from lmx.layers import embedding, recurrent, rnn_attention, rnn_cell, rnn_decoder, rnn_encoder, softmax
from lmx.layers.dropout import dropout, split
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
OBJECTIVE = 'translation'
READS = 'source'
HEADS: tuple[str, ...] = ()
VOCABULARY = ('embed/table', 'embed/source', 'embed/target', 'output/table', 'output/bias')
DESIGNS = ('sutskever', 'cho', 'bahdanau', 'luong')
LOOKING = ('bahdanau', 'luong')  # have attention
INITS = ('uniform', 'paper')
DEEP = ('cho', 'bahdanau')  # have a deep output


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: vocabulary size, of both sides.
    E: embedding width.
    D: width of the hidden layers, of each direction.
    encoder_layers: layers of the encoder.
    decoder_layers: layers of the decoder.
    design: one of DESIGNS.
    cell: one of lmx.layers.rnn_cell.CELLS.
    bidirectional: the encoder reads in both directions; a layer gives its outputs side by side.
    reverse: the encoder of one direction reads the source from its end.
    score: one of lmx.layers.rnn_attention.SCORES.
    A: width of the alignment of the score 'additive'.
    S: most source positions of the score 'location'.
    window: where attention looks, one of lmx.layers.rnn_attention.WINDOWS.
    reach: positions seen on either side of the centre of a local window, the D of Luong's section 3.2.
    reading: 'soft' or 'hard' attention.
    expected: hard: share of the rows that in training read the mean instead of a position drawn (Xu, section 4.1).
    doubly_stochastic: weight of the penalty by which every source position shall be looked at once (Xu, equation 14).
    input_feeding: luong: h~ is part of the next input (section 3.3).
    readout: state that the deep output reads, 'previous' or 'current'.
    maxout: W of the deep output.
    shared: one embedding table for both sides.
    tied: the embedding of the target is the output matrix; needs W = E.
    dropout_embedding: rate on embeddings.
    dropout_hidden: rate on what goes from a layer to the next, on the annotations, and on the one vector of cho.
    dropout_output: rate on what the softmax reads.
    init: 'uniform' draws all from +-init_scale (Luong, section 4.1), 'paper' as in Bahdanau's appendix B.1: orthogonal
      recurrent matrices, deviation 0.001 in the alignment and 0.01 elsewhere, zero biases and v.
    init_scale: of 'uniform'.
    dtype: compute type.
    backend: the loop of a layer without attention (lmx/layers/recurrent.py).
    remat: compute the scores again in the backward pass instead of keeping them.
  """

  V: int = 30_000
  E: int = 620
  D: int = 1000
  encoder_layers: int = 1
  decoder_layers: int = 1
  design: str = 'bahdanau'
  cell: str = 'gru_paper'
  bidirectional: bool = True
  reverse: bool = False
  score: str = 'additive'
  A: int = 1000
  S: int = 50
  window: str = 'global'
  reach: int = 10
  reading: str = 'soft'
  expected: float = 0.5
  doubly_stochastic: float = 0.0
  input_feeding: bool = True
  readout: str = 'previous'
  maxout: int = 500
  shared: bool = False
  tied: bool = False
  dropout_embedding: float = 0.0
  dropout_hidden: float = 0.0
  dropout_output: float = 0.0
  init: str = 'paper'
  init_scale: float = 0.1
  dtype: str = 'float32'
  backend: str = 'auto'
  remat: bool = False

  def __post_init__(self) -> None:
    rnn_cell.gates(self.cell)
    rnn_attention.get(self.score)
    for field, choices in (
      ('design', DESIGNS),
      ('window', rnn_attention.WINDOWS),
      ('reading', rnn_attention.READINGS),
      ('init', INITS),
      ('readout', ('previous', 'current')),
      ('backend', recurrent.BACKENDS),
    ):
      check_choice(f'model.{field}', getattr(self, field), choices)
    check_least(
      'model',
      self,
      E=1,
      D=1,
      encoder_layers=1,
      decoder_layers=1,
      reach=1,
      maxout=1,
      A=1,
      S=1,
      doubly_stochastic=0,
      init_scale=0,
    )
    for field in ('dropout_embedding', 'dropout_hidden', 'dropout_output'):
      check_range(f'model.{field}', getattr(self, field), 0, 1)
    check_share('model.expected', self.expected)
    if self.bidirectional and self.reverse:
      raise InputError('model.reverse is for an encoder of one direction; set model.bidirectional or model.reverse')
    if self.design in ('sutskever', 'luong') and (self.bidirectional or self.encoder_layers != self.decoder_layers):
      raise InputError(
        f"seq2seq: in the design '{self.design}' each layer of the encoder starts one of the decoder, so it needs "
        f'bidirectional=False and as many layers in both, not {self.encoder_layers} and {self.decoder_layers}'
      )
    if self.design not in LOOKING and (self.reading == 'hard' or self.doubly_stochastic or self.window != 'global'):
      raise InputError(f"seq2seq: the design '{self.design}' has no attention for reading, window or penalty to change")
    if self.tied and self.W != self.E:
      raise InputError(f'seq2seq: a tied output needs E = {self.W}, the width that the softmax reads, not {self.E}')
    if self.design in LOOKING:
      rnn_attention.shapes(self.score, self.window, self.sizes)

  @property
  def N(self) -> int:  # noqa: N802
    """Layers of the encoder, then of the decoder."""
    return self.encoder_layers + self.decoder_layers

  @property
  def H(self) -> int:  # noqa: N802
    """Width of an annotation."""
    return self.D * (2 if self.bidirectional else 1)

  @property
  def W(self) -> int:  # noqa: N802
    """Width of what the softmax reads."""
    return self.maxout if self.design in DEEP else self.D

  @property
  def sizes(self) -> rnn_attention.Sizes:
    """What the score is sized by."""
    return rnn_attention.Sizes(self.D, self.H, self.A, self.S)

  @property
  def longest(self) -> int | None:
    """Most tokens of a source, its end mark among them: what the score 'location' knows; None is any number."""
    return self.S if self.design in LOOKING and self.score == 'location' else None

  @property
  def looking(self) -> rnn_decoder.Spec:
    """How the designs with attention look at the source."""
    return rnn_decoder.Spec(
      'before' if self.design == 'bahdanau' else 'after',
      self.cell,
      self.score,
      self.window,
      self.reach,
      self.reading,
      self.expected,
      self.input_feeding,
      self.dropout_hidden,
      self.dtype,
      self.remat,
    )


_LUONG: dict[str, Any] = dict(
  design='luong', cell='lstm', bidirectional=False, reverse=True, score='general', window='local_p', init='uniform'
)
_SMALL: dict[str, Any] = dict(E=256, D=256, A=256, maxout=256, init='uniform', init_scale=0.08, cell='gru')
VARIANTS: dict[str, dict[str, Any]] = {
  # Bahdanau et al. 2015, appendix A.2.3 and section 4.2
  'rnnsearch': {},
  'rnnencdec': dict(design='cho', bidirectional=False),
  # Luong et al. 2015, section 4.1
  'luong': dict(
    **_LUONG,
    V=50_000,
    E=1000,
    D=1000,
    encoder_layers=4,
    decoder_layers=4,
    dropout_embedding=0.2,
    dropout_hidden=0.2,
    dropout_output=0.2,
  ),
  # For data sets of a few ten thousand sentences on two cores.
  'rnnsearch_small': dict(**_SMALL),
  'rnnencdec_small': dict(**_SMALL, design='cho', bidirectional=False),
  # A range of 0.2 is to 256 units what the 0.1 of the paper is to its 1,000.
  'luong_small': dict(**_LUONG, E=256, D=256, init_scale=0.2),
  'tiny': dict(V=61, E=12, D=16, A=10, S=16, maxout=8, init='uniform', init_scale=0.3, reach=2),
}


def _name(i: int) -> str:
  return f'layer_{i:02d}'


def _shapes(cfg: Config) -> dict[str, Any]:
  """Nested dict of the shapes of all parameters."""
  V, E, D, H, W, G = cfg.V, cfg.E, cfg.D, cfg.H, cfg.W, cfg.D * rnn_cell.gates(cfg.cell)
  layer = lambda width: {'input': (width, G), 'recurrent': (D, G), 'bias': (G,)}
  found: dict[str, Any] = {'embed': {'table': (V, E)} if cfg.shared else {'source': (V, E), 'target': (V, E)}}
  for i in range(cfg.encoder_layers):
    directions = ('forward', 'backward') if cfg.bidirectional else ('forward',)
    found[_name(i)] = {direction: layer(H if i else E) for direction in directions}
  extra = {'sutskever': 0, 'luong': D if cfg.input_feeding else 0}.get(cfg.design, D if cfg.design == 'cho' else H)
  for i in range(cfg.decoder_layers):
    found[_name(cfg.encoder_layers + i)] = layer(D if i else E + extra)
  output: dict[str, Any] = {'bias': (V,)} if cfg.tied else {'table': (V, W), 'bias': (V,)}
  starts = cfg.decoder_layers * D
  if cfg.design == 'cho':
    found['start'] = {'context': (H, D), 'context_bias': (D,), 'state': (D, starts), 'state_bias': (starts,)}
  if cfg.design == 'bahdanau':
    found['start'] = {'state': (D, starts), 'state_bias': (starts,)}
  if cfg.design in DEEP:
    context = D if cfg.design == 'cho' else H
    output |= {
      'readout_state': (D, 2 * W),
      'readout_embed': (E, 2 * W),
      'readout_context': (context, 2 * W),
      'readout_bias': (2 * W,),
    }
  if cfg.design in LOOKING:
    combine = {'combine': (H + D, D)} if cfg.design == 'luong' else {}
    found['attention'] = rnn_attention.shapes(cfg.score, cfg.window, cfg.sizes) | combine
  return {name: group for name, group in found.items() if group} | {'output': output}


def _draw(cfg: Config, key: Array, path: tuple[str, ...], shape: tuple[int, ...]) -> Array:
  """The first value of a parameter; see `Config.init`."""
  if cfg.init == 'uniform':
    return jax.random.uniform(key, shape, jnp.float32, -cfg.init_scale, cfg.init_scale)
  if path[-1].endswith('bias') or path[-1] == 'energy':
    return jnp.zeros(shape, jnp.float32)
  if path[-1] == 'recurrent':
    orthogonal = jax.random.orthogonal(key, cfg.D, (shape[1] // cfg.D,))
    return orthogonal.transpose(1, 0, 2).reshape(shape)
  return (0.001 if path[0] == 'attention' else 0.01) * jax.random.normal(key, shape, jnp.float32)


def init(cfg: Config, key: Array) -> Params:
  """Parameters: embed, layer_00 .. of the encoder and then of the decoder, start and attention if any, and output."""
  shapes, tree = jax.tree_util.tree_flatten_with_path(_shapes(cfg), is_leaf=lambda x: isinstance(x, tuple))
  keys = jax.random.split(key, len(shapes))
  found = [_draw(cfg, k, tuple(p.key for p in path), shape) for k, (path, shape) in zip(keys, shapes, strict=True)]
  return jax.tree_util.tree_unflatten(tree, found)


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """(): between batches nothing is kept; decoding starts from `begin`."""
  del cfg, batch_size, length
  return ()


def _table(params: Params, side: str) -> Array:
  return params['embed'].get('table', params['embed'].get(side))


def _encode(cfg: Config, params: Params, batch: Batch, key: Array | None) -> Any:
  """(annotations (B, S, H) after dropout, valid_BS, last carries of each layer by direction)."""
  source_BS = batch['source_BS']
  valid_BS = batch.get('source_valid_BS', jnp.ones(source_BS.shape, bool))
  embed_key, *keys = split(key, cfg.encoder_layers + 1)
  x_BSE = dropout(embedding.lookup(_table(params, 'source'), source_BS, cfg.dtype), cfg.dropout_embedding, embed_key)
  layers = [params[_name(i)] for i in range(cfg.encoder_layers)]
  values_BSH, ends = rnn_encoder.read(
    cfg.cell,
    layers,
    x_BSE,
    valid_BS,
    keys,
    width=cfg.D,
    reverse=cfg.reverse,
    rate=cfg.dropout_hidden,
    dtype=cfg.dtype,
    backend=cfg.backend,
  )
  return values_BSH, valid_BS, ends


def _start(cfg: Config, params: Params, ends: Any) -> tuple[list[recurrent.Carry], Array | None]:
  """(carry of each of the decoder's layers, fixed context (B, D) of the design cho)."""
  if cfg.design in ('sutskever', 'luong'):
    return [end['forward'] for end in ends], None
  start, context_BD = params['start'], None
  if cfg.design == 'cho':
    last_BH = jnp.concatenate([end[0] for end in ends[-1].values()], axis=-1)
    read_BD = context_BD = jnp.tanh(rnn_attention.product(last_BH, start['context']) + start['context_bias'][None])
  else:
    read_BD = ends[-1]['backward' if cfg.bidirectional else 'forward'][0]
  starts = jnp.tanh(rnn_attention.product(read_BD, start['state']) + start['state_bias'][None])
  states = jnp.split(starts, cfg.decoder_layers, -1)
  return [(h_BD, *rnn_cell.init_carry(cfg.cell, *h_BD.shape)[1:]) for h_BD in states], context_BD


def _read(cfg: Config, params: Params, batch: Batch, key: Array | None) -> dict[str, Any]:
  """What the decoder reads of the source, and its own state before the first word."""
  source_key, context_key = split(key, 2)
  values_BSH, valid_BS, ends = _encode(cfg, params, batch, source_key)
  layers, context_BD = _start(cfg, params, ends)
  state: dict[str, Any] = {'layers': layers, 'position_B': jnp.zeros(len(valid_BS), jnp.int32)}
  if cfg.design in LOOKING:
    state |= rnn_decoder.source(cfg.looking, params.get('attention', {}), values_BSH, valid_BS)
  if cfg.design == 'luong':
    state['attentional_BD'] = jnp.zeros_like(layers[-1][0])
  if context_BD is not None:
    state['context_BD'] = dropout(context_BD, cfg.dropout_hidden, context_key)
  return state


def begin(cfg: Config, params: Params, batch: Batch, length: int) -> State:
  """The state after the source and before the target; `length` is not needed, the carry has one size for any."""
  del length
  return _read(cfg, params, batch, None)


def _stack(cfg: Config, layers: Any, state: State, x_TBE: Array, valid_TB: Array | None, keys: Any) -> Any:
  """Runs a decoder without attention: (the state after it, outputs of all layers, time leading)."""
  if cfg.design == 'cho':
    context_TBD = jnp.broadcast_to(state['context_BD'].astype(cfg.dtype)[None], (*x_TBE.shape[:2], cfg.D))
    x_TBE = jnp.concatenate([x_TBE, context_TBD], axis=-1)
  carries, outputs = [], []
  for i, (layer, carry, key) in enumerate(zip(layers, state['layers'], keys, strict=True)):
    x_TBE = dropout(x_TBE, cfg.dropout_hidden if i else 0.0, key)
    x_TBE, carry = rnn_cell.layer(cfg.cell, layer, x_TBE, carry, valid_TB, dtype=cfg.dtype, backend=cfg.backend)
    carries.append(carry)
    outputs.append(x_TBE)
  return {'layers': carries}, {'layers': tuple(outputs), 'state': outputs[-1]}


def _deep(cfg: Config, params: Params, state: State, x_TBE: Array, y: dict[str, Array]) -> Array:
  """The deep output's maxout layer, (T, B, W)."""
  output, parts = params['output'], {'embed': x_TBE}
  parts['context'] = y['context'] if 'context' in y else state['context_BD'][None]
  if 'before' in y or cfg.readout == 'current':
    parts['state'] = y['before'] if 'before' in y else y['state']
  else:
    parts['state'] = jnp.concatenate([state['layers'][-1][0][None].astype(cfg.dtype), y['state'][:-1]])
  t_TBW = output['readout_bias'].astype(cfg.dtype)[None, None]
  for name, x in parts.items():
    t_TBW = t_TBW + rnn_attention.product(x.astype(cfg.dtype), output[f'readout_{name}'])
  return jnp.max(t_TBW.reshape(*t_TBW.shape[:2], cfg.W, 2), axis=-1)


def _write(
  cfg: Config, params: Params, state: State, batch: Batch, key: Array | None, *, all_layers: bool, alignment: bool
) -> Any:
  """Teacher forcing from a state: (Features, state)."""
  tokens_TB, valid_BT = batch['tokens_BT'].T, batch.get('valid_BT')
  (T, B), valid_TB = tokens_TB.shape, None if valid_BT is None else valid_BT.T
  embed_key, output_key, loop_key = split(key, 3)
  x_TBE = dropout(embedding.lookup(_table(params, 'target'), tokens_TB, cfg.dtype), cfg.dropout_embedding, embed_key)
  steps_TB = jnp.ones((T, B), jnp.int32) if valid_TB is None else valid_TB.astype(jnp.int32)
  position_TB = state['position_B'] + jnp.cumsum(steps_TB, axis=0) - steps_TB
  layers = [params[_name(cfg.encoder_layers + i)] for i in range(cfg.decoder_layers)]
  if cfg.design in LOOKING:
    hard = cfg.reading == 'hard'
    first = {'bahdanau': ('before' if cfg.readout == 'previous' else 'state', 'context'), 'luong': ('attentional',)}
    asked = {'alignment': alignment or hard or cfg.doubly_stochastic > 0, 'choice': hard, 'layers': all_layers}
    wanted = (*first[cfg.design], *(name for name, wish in asked.items() if wish))
    score = params.get('attention', {})
    end, y = rnn_decoder.run(cfg.looking, layers, score, state, x_TBE, valid_TB, position_TB, loop_key, wanted)
  else:
    end, y = _stack(cfg, layers, state, x_TBE, valid_TB, split(loop_key, cfg.decoder_layers))
  if cfg.design in DEEP:
    last_TBW = _deep(cfg, params, state, x_TBE, y)
  else:
    last_TBW = y['attentional' if cfg.design == 'luong' else 'state']
  last_TBW = dropout(last_TBW.astype(cfg.dtype), cfg.dropout_output, output_key)
  rows_first = lambda x: x.swapaxes(0, 1)
  features = Features(
    rows_first(last_TBW),
    layers=tuple(map(rows_first, (x_TBE, *y['layers'], last_TBW))) if all_layers else None,
    alignment_BTS=rows_first(y['alignment']) if 'alignment' in y else None,
    choice_BT=rows_first(y['choice']) if 'choice' in y else None,
  )
  return features, {**state, **end, 'position_B': state['position_B'] + jnp.sum(steps_TB, axis=0)}


def apply(
  cfg: Config, params: Params, batch: Batch, state: State = (), key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Reads the source and predicts the target, or goes on with a target.

  Args:
    batch: tokens_BT, valid_BT (optional); source_BS and source_valid_BS (optional) where the state is ().
    state: (), or of `begin` or the call before.
    key: randomness of dropout and of hard attention, None at evaluation, when that reads the most probable position.
    all_layers: also return the target's embedding, each layer of the decoder, and what the softmax reads.

  Returns:
    (Features, with alignment_BTS where a penalty or hard attention needs it; () or the state after the target).
  """
  source_key, target_key = split(key, 2)
  begun = state if state else _read(cfg, params, batch, source_key)
  features, end = _write(cfg, params, begun, batch, target_key, all_layers=all_layers, alignment=False)
  return features, end if state else ()


def alignment(cfg: Config, params: Params, batch: Batch) -> Array:
  """Where each target position looked, (B, T, S) float32: teacher forcing without dropout, rows that sum to 1.

  Source positions are those of the text, also with `reverse`. The Gaussian of local_p is normalised here.

  Raises:
    InputError: the design has no attention.
  """
  if cfg.design not in LOOKING:
    raise InputError(f"seq2seq: the design '{cfg.design}' has no attention, and so no alignment")
  features, _ = _write(cfg, params, _read(cfg, params, batch, None), batch, None, all_layers=False, alignment=True)
  a_BTS = features.alignment_BTS
  total_BT1 = jnp.sum(a_BTS, axis=-1, keepdims=True)
  return a_BTS / jnp.where(total_BT1 > 0, total_BT1, 1.0)


def penalties(cfg: Config, params: Params, features: Features, batch: Batch) -> dict[str, Array]:
  """The doubly stochastic penalty, summed over rows; nothing where its weight is 0."""
  del params
  if not cfg.doubly_stochastic:
    return {}
  valid_BS = batch.get('source_valid_BS', jnp.ones(batch['source_BS'].shape, bool))
  counted_BT = batch['weights_BT'] > 0
  assert features.alignment_BTS is not None
  return {'evenness': cfg.doubly_stochastic * rnn_attention.unevenness(features.alignment_BTS, valid_BS, counted_BT)}


def penalty_weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """The number of rows with a target."""
  rows = jnp.sum(jnp.max(batch['weights_BT'], axis=1) > 0, dtype=jnp.float32)
  return {'evenness': rows} if cfg.doubly_stochastic else {}


def _output(cfg: Config, params: Params) -> tuple[Array, Array]:
  """(table_VD, bias_V) of the output layer."""
  return _table(params, 'target') if cfg.tied else params['output']['table'], params['output']['bias']


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Scores of every next token, (B, T, V) float32."""
  return softmax.tied_logits(features.last_BTD, *_output(cfg, params))


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Negative log-likelihood of each target in nats, (B, T) float32."""
  table_VD, bias_V = _output(cfg, params)
  return softmax.tied_nll(features.last_BTD, table_VD, targets_BT, bias_V)


def depth(cfg: Config, path: tuple[str, ...]) -> int:
  """Layer number of a parameter: embeddings 0, layer i is i + 1, start below the decoder, attention at its top."""
  if path[0].startswith('layer_'):
    return int(path[0].removeprefix('layer_')) + 1
  return {'embed': 0, 'start': cfg.encoder_layers + 1, 'attention': cfg.N, 'output': cfg.N + 1}[path[0]]
