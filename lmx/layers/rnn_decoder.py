"""Recurrent decoders with attention at every step: one loop for Bahdanau's and Luong's designs.

`attends_before` (Bahdanau et al. 2015, arXiv 1409.0473, appendix A.1.2): the query is the state before the step, and
the context is part of the first layer's input. Otherwise (Luong et al. 2015, arXiv 1508.04025, sections 3 and 3.3) the
query is the new state of the top layer. h~ = tanh(W_c [c; s]) is the step's output and, with input feeding, part of the
next step's input.

Products that do not depend on earlier steps (W x, and the keys of the source) are computed before the loop, and all
matrix gradients after it (lmx/kernels/recurrent_scan.py).

Axes: S source positions, T target, which leads inside; E embedding, D state, H annotation, X keys.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lmx import layout
from lmx.errors import check_choice, check_least, check_share
from lmx.layers import rnn_attention, rnn_cell, rnn_translation
from lmx.layers.rnn_cell import Dot
from lmx.ops import recurrent_scan, rnn
from lmx.ops.dropout import dropout
from lmx.types import Array, Batch, Features, Params, State, is_recording_attention, record_attention


@dataclasses.dataclass(frozen=True)
class Config(rnn_translation.Config):
  """Sizes and switches of a model with attention; the attributes are those of `rnn_translation.Config`, and

  Attributes:
    score: one of lmx.layers.rnn_attention.SCORES.
    A: width of the alignment of the score 'additive'.
    S: maximum number of source positions of the score 'location'.
    window: source positions that attention covers, one of lmx.layers.rnn_attention.WINDOWS.
    reach: positions on either side of the centre of a local window, the D of Luong's section 3.2.
    reading: 'soft' or 'hard' attention.
    expected: hard: fraction of training rows that use the mean instead of a sampled position (Xu, section 4.1).
    doubly_stochastic: weight of the penalty for a source position whose attention does not sum to 1 (Xu, equation 14).
    remat: recompute the scores in the backward pass instead of storing them.
  """

  score: str = 'additive'
  A: int = 1000
  S: int = 50
  window: str = 'global'
  reach: int = 10
  reading: str = 'soft'
  expected: float = 0.5
  doubly_stochastic: float = 0.0
  remat: bool = False

  attends_before = False  # attention before the step (Bahdanau), not after it (Luong)

  def __post_init__(self) -> None:
    super().__post_init__()
    rnn_attention.get(self.score)
    check_choice('model.window', self.window, rnn_attention.WINDOWS)
    check_choice('model.reading', self.reading, rnn_attention.READINGS)
    check_least('model', self, reach=1, A=1, S=1, doubly_stochastic=0)
    check_share('model.expected', self.expected)
    score_shapes(self)

  @property
  def input_feeding(self) -> bool:
    """Attention after the step: h~ is part of the next input."""
    return False

  @property
  def longest(self) -> int | None:
    """Maximum source length in tokens, the end token included: the S of the score 'location'; None is any number."""
    return self.S if self.score == 'location' else None


class EncoderDecoder(rnn_translation.EncoderDecoder):
  """A model with attention."""

  def alignment(self, cfg: Config, params: Params, batch: Batch) -> Array:
    """Return the attention of each target position, (B, T, S) float32, with teacher forcing and without dropout.

    Rows sum to 1; a row without attention is 0. Source positions are in the order of the text, also with `reverse`. The
    Gaussian of local_p is normalised here.
    """
    features, _ = self.decode(cfg, params, self.encode(cfg, params, batch, None), batch, None, ('alignment',))
    a_BTS = features.alignment_BTS
    assert a_BTS is not None  # as `outputs` names it
    total_BT1 = jnp.sum(a_BTS, axis=-1, keepdims=True)
    return a_BTS / jnp.where(total_BT1 > 0, total_BT1, 1.0)


def score_shapes(cfg: Config) -> rnn_attention.Shapes:
  """Return the parameter shapes of the score and its window."""
  return rnn_attention.shapes(cfg.score, cfg.window, rnn_attention.Sizes(cfg.D, cfg.H, cfg.A, cfg.S))


def penalties(cfg: Config, params: Params, features: Features, batch: Batch) -> dict[str, Array]:
  """Return the doubly stochastic penalty (Xu et al. 2015, arXiv 1502.03044, equation 14), summed over rows."""
  del params
  if not cfg.doubly_stochastic:
    return {}
  valid_BS = batch.get('source_valid_BS', jnp.ones(batch['source_BS'].shape, bool))
  counted_BT = batch['weights_BT'] > 0
  assert features.alignment_BTS is not None
  return {'evenness': cfg.doubly_stochastic * rnn_attention.unevenness(features.alignment_BTS, valid_BS, counted_BT)}


def penalty_weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """Return the penalty's weight, the number of rows with a target; {} without the penalty."""
  rows = jnp.sum(jnp.max(batch['weights_BT'], axis=1) > 0, dtype=jnp.float32)
  return {'evenness': rows} if cfg.doubly_stochastic else {}


def source(cfg: Config, score: Params, values_BSH: Array, valid_BS: Array) -> dict[str, Array]:
  """Return the loop's inputs from the source: annotations, their keys, and their mask."""
  keys_BSX = rnn_attention.get(cfg.score).keys(score, values_BSH)
  return {'values_BSH': values_BSH, 'keys_BSX': keys_BSX, 'valid_BS': valid_BS}


def _attend(
  cfg: Config, dot: Dot, shared: Params, constant: Params, h_BD: Array, now: Params
) -> tuple[Array, dict[str, Array]]:
  """Return one step's context (B, H), with the weights (B, S) and the log-probability (B) of a sampled position."""
  valid_BS, kind = constant['valid_BS'], rnn_attention.get(cfg.score)
  B, S = valid_BS.shape
  query_BX = dot('query', h_BD) if kind.has_matrix else h_BD
  compare = jax.checkpoint(kind.compare, prevent_cse=False) if cfg.remat else kind.compare
  scores_B1S = compare(shared, query_BX.astype(cfg.dtype)[:, None], shared['keys_BSX'])
  centre_B1, count_B = None, jnp.sum(valid_BS, axis=1)
  if cfg.window == 'local_m':
    centre_B1 = rnn_attention.monotonic_centre(now['position_B'][:, None], count_B)
  elif cfg.window == 'local_p':
    centre_B1 = rnn_attention.predictive_centre(shared, dot('centre_query', h_BD)[:, None], count_B)
  a_B1S = rnn_attention.align(cfg.window, scores_B1S, valid_BS, centre_BT=centre_B1, reach=cfg.reach)
  read_BS, outputs = a_B1S[:, 0], {'alignment': a_B1S[:, 0]}
  if cfg.reading == 'hard':
    noise_B1S = rnn_attention.noise(now['draw'], (B, 1, S)) if 'draw' in now else None
    drawn_B1S, log_p_B1 = rnn_attention.draw(a_B1S, noise_B1S)
    mean_B = constant['mean_B']
    read_BS = jnp.where(mean_B[:, None], read_BS, drawn_B1S[:, 0])
    outputs['choice'] = jnp.where(mean_B, 0.0, log_p_B1[:, 0])
  return dot('values', read_BS), outputs


def _body(
  cfg: Config,
  outputs: tuple[str, ...],
  dot: Dot,
  shared: Params,
  constant: Params,
  carry: dict[str, Any],
  x_BG: Array,
  now: Params,
) -> tuple[dict[str, Any], dict[str, Any]]:
  """Run one step: (carry, the values named in `outputs`)."""
  layers, x_BG, y = list(carry['layers']), x_BG.astype(jnp.float32), {}
  if cfg.attends_before:
    y['before'] = layers[-1][0]
    y['context'], attention_outputs = _attend(cfg, dot, shared, constant, layers[-1][0], now)
    x_BG = x_BG + dot('extra', y['context'])
  elif cfg.input_feeding:
    x_BG = x_BG + dot('extra', dropout(carry['attentional_BD'], cfg.dropout_hidden, now.get('between_0')))
  for i, carry_in in enumerate(layers):
    if i:
      h_BD = dropout(layers[i - 1][0], cfg.dropout_hidden, now.get(f'between_{i}'))
      x_BG = dot(f'input_{i}', h_BD) + shared[f'bias_{i}'][None]
    cell = jax.named_scope(layout.layer_name(cfg.encoder_layers + i))(rnn_cell.cell_step)
    layers[i] = cell(cfg.cell, dot, f'recurrent_{i}', x_BG, carry_in)
  new = {'layers': layers}
  y['state'] = layers[-1][0]
  if not cfg.attends_before:
    context_BH, attention_outputs = _attend(cfg, dot, shared, constant, layers[-1][0], now)
    y['attentional'] = jnp.tanh(dot('combine', jnp.concatenate([context_BH, layers[-1][0]], axis=-1)))
    new['attentional_BD'] = y['attentional']
  y |= attention_outputs | {'layers': tuple(layer[0] for layer in layers)}
  return rnn.where_valid(now.get('valid_B'), new, carry), {name: y[name] for name in outputs}


def _matrices(
  cfg: Config, layers: Sequence[Params], score: Params, state: Mapping[str, Any], E: int
) -> tuple[dict[str, Array], dict[str, Array]]:
  """Return (the loop's matrices, the small parameters read by every step)."""
  matrices = {'values': state['values_BSH']}
  shared = {name: p for name, p in score.items() if p.ndim == 1} | {'keys_BSX': state['keys_BSX']}
  for i, layer in enumerate(layers):
    matrices |= rnn_cell.recurrent_matrices(cfg.cell, layer, f'recurrent_{i}')
    if i:
      matrices[f'input_{i}'], shared[f'bias_{i}'] = layer['input'], layer['bias']
  if cfg.attends_before or cfg.input_feeding:
    matrices['extra'] = layers[0]['input'][E:]
  if (kind := rnn_attention.get(cfg.score)).has_matrix:
    matrices['query'] = kind.matrix(score, cfg.D)
  return matrices | {name: score[name] for name in ('centre_query', 'combine') if name in score}, shared


def run(
  cfg: Config,
  params: Params,
  state: Mapping[str, Any],
  target: rnn_translation.Target,
  key: Array | None,
  outputs: Sequence[str],
) -> tuple[State, dict[str, Any]]:
  """Run the decoder over the target.

  Args:
    params: of the model. The input of the decoder's first layer is E and then the context (or h~). 'attention' has the
      score's, and for attention after the step the matrix 'combine' (H + D, D).
    state: from `source`, with 'layers', the carries, 'position_B', and for attention after the step 'attentional_BD',
      the previous h~.
    target: the inputs.
    key: PRNG key, None at evaluation.
    outputs: of 'before' (the state before each step), 'state', 'context', 'attentional' (h~), 'alignment', 'choice' and
      'layers' (the state of all). Hard attention and the penalty add those that the objective reads.

  Returns:
    (state, {name: (T, B, ..)} of `outputs`).
  """
  layers, score, x_TBE = rnn_translation.decoder_layers(cfg, params), params.get('attention', {}), target.x_TBE
  (T, B), E = x_TBE.shape[:2], x_TBE.shape[-1]
  matrices, shared = _matrices(cfg, layers, score, state, E)
  first = layers[0]
  x_TBG = jnp.matmul(x_TBE, first['input'][:E].astype(cfg.dtype)) + first['bias'].astype(cfg.dtype)[None, None]
  now = {'position_B': target.position_TB}
  if target.valid_TB is not None:
    now['valid_B'] = target.valid_TB
  constant = {'valid_BS': state['valid_BS'], 'mean_B': jnp.zeros(B, bool)}
  if key is not None:
    mean_key, draw_key, *between = jax.random.split(key, len(layers) + 2)
    now |= {f'between_{i}': jax.random.split(k, T) for i, k in enumerate(between)}
    if cfg.reading == 'hard':
      now['draw'] = jax.random.split(draw_key, T)
      constant['mean_B'] = jax.random.bernoulli(mean_key, cfg.expected, (B,))
  carry = {name: state[name] for name in ('layers', 'attentional_BD') if name in state}
  body = functools.partial(_body, cfg, _output_names(cfg, outputs))
  end, y = recurrent_scan.scan(body, matrices, shared, carry, x_TBG, fixed=(constant, now), dtype=cfg.dtype)
  record_attention('cross', lambda: y['alignment'].swapaxes(0, 1))
  return {**state, **end, 'position_B': state['position_B'] + jnp.sum(target.steps_TB, axis=0)}, y


def _output_names(cfg: Config, outputs: Sequence[str]) -> tuple[str, ...]:
  """Add the outputs that hard attention, the penalty and recorded attention need."""
  names = set(outputs)
  if cfg.reading == 'hard':
    names |= {'alignment', 'choice'}
  if cfg.doubly_stochastic > 0 or is_recording_attention():
    names.add('alignment')
  return tuple(sorted(names))
