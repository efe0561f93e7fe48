"""Recurrent decoders with attention at every step: one loop for the designs of Bahdanau and Luong.

before (Bahdanau et al. 2015, arXiv 1409.0473, appendix A.1.2): the query is the state before the step; the
  context is part of the input of the first layer.
after (Luong et al. 2015, arXiv 1508.04025, sections 3 and 3.3): the query is the new state of the top layer;
  h~ = tanh(W_c [c; s]) is the output of the step and, with input feeding, part of the next step's input.

Products that do not depend on earlier steps (the inputs with W, the source with the score's matrix) are computed
outside the loop, as are the gradients of all matrices (lmx/kernels/recurrent.py).

Axes: S source positions, T target, which leads inside; E embedding, D state, H annotation, X keys.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lmx.errors import check_choice, check_least, check_share
from lmx.kernels import recurrent as kernels
from lmx.layers import rnn_attention, rnn_cell
from lmx.layers.rnn_cell import Dot
from lmx.ops.dropout import dropout
from lmx.types import Array, Batch, Features, Params


class Spec(NamedTuple):
  """Static options of the decoder.

  Attributes:
    attention: attention 'before' or 'after' the step.
    cell: one of rnn_cell.CELLS.
    score: one of rnn_attention.SCORES.
    window: one of rnn_attention.WINDOWS.
    reach: positions on either side of the centre of a local window.
    reading: 'soft' or 'hard'.
    expected: hard: share of the rows that in training use the mean instead of a sampled position.
    feeding: after: h~ is part of the next input.
    rate: dropout rate of h~ as an input of the next step, and between layers.
    dtype: type of the products.
    remat: recompute the scores in the backward pass.
  """

  attention: str
  cell: str
  score: str
  window: str = 'global'
  reach: int = 0
  reading: str = 'soft'
  expected: float = 0.5
  feeding: bool = False
  rate: float = 0.0
  dtype: str = 'float32'
  remat: bool = False


def check(cfg: Any) -> None:
  """Raise InputError if an attention field in the Config of a model is out of range."""
  rnn_attention.get(cfg.score)
  check_choice('model.window', cfg.window, rnn_attention.WINDOWS)
  check_choice('model.reading', cfg.reading, rnn_attention.READINGS)
  check_least('model', cfg, reach=1, A=1, S=1, doubly_stochastic=0)
  check_share('model.expected', cfg.expected)
  rnn_attention.shapes(cfg.score, cfg.window, sizes(cfg))


def sizes(cfg: Any) -> rnn_attention.Sizes:
  """Return the sizes of the score."""
  return rnn_attention.Sizes(cfg.D, cfg.H, cfg.A, cfg.S)


def spec(cfg: Any, attention: str, *, feeding: bool = False) -> Spec:
  """Return the static options of the decoder from the Config of a model."""
  return Spec(
    attention,
    cfg.cell,
    cfg.score,
    cfg.window,
    cfg.reach,
    cfg.reading,
    cfg.expected,
    feeding,
    cfg.dropout_hidden,
    cfg.dtype,
    cfg.remat,
  )


def output_names(cfg: Any, *, alignment: bool, all_layers: bool) -> tuple[str, ...]:
  """Return the outputs of `run` that the objective, a picture or `all_layers` need beyond the softmax input."""
  hard = cfg.reading == 'hard'
  needed = {'alignment': alignment or hard or cfg.doubly_stochastic > 0, 'choice': hard, 'layers': all_layers}
  return tuple(name for name, is_needed in needed.items() if is_needed)


def normalized_alignment(features: Features) -> Array:
  """Return the attention of each target position normalised to sum 1, (B, T, S); a row without attention stays 0."""
  a_BTS = features.alignment_BTS
  assert a_BTS is not None
  total_BT1 = jnp.sum(a_BTS, axis=-1, keepdims=True)
  return a_BTS / jnp.where(total_BT1 > 0, total_BT1, 1.0)


def evenness(weight: float, features: Features, batch: Batch) -> dict[str, Array]:
  """Return the doubly stochastic penalty (Xu et al. 2015, arXiv 1502.03044, equation 14), summed over rows."""
  if not weight:
    return {}
  valid_BS = batch.get('source_valid_BS', jnp.ones(batch['source_BS'].shape, bool))
  counted_BT = batch['weights_BT'] > 0
  assert features.alignment_BTS is not None
  return {'evenness': weight * rnn_attention.unevenness(features.alignment_BTS, valid_BS, counted_BT)}


def evenness_weights(weight: float, batch: Batch) -> dict[str, Array]:
  """Return the number of rows that have a target."""
  rows = jnp.sum(jnp.max(batch['weights_BT'], axis=1) > 0, dtype=jnp.float32)
  return {'evenness': rows} if weight else {}


def source(spec: Spec, score: Params, values_BSH: Array, valid_BS: Array) -> dict[str, Array]:
  """Return the loop's inputs from the source: annotations, their keys, and their mask."""
  keys_BSX = rnn_attention.get(spec.score).keys(score, values_BSH)
  return {'values_BSH': values_BSH, 'keys_BSX': keys_BSX, 'valid_BS': valid_BS}


def _attend(
  spec: Spec, dot: Dot, shared: Params, constant: Params, h_BD: Array, now: Params
) -> tuple[Array, dict[str, Array]]:
  """Return one step's context (B, H), with the weights (B, S) and the log-probability (B) of a sampled position."""
  valid_BS, kind = constant['valid_BS'], rnn_attention.get(spec.score)
  B, S = valid_BS.shape
  query_BX = h_BD if kind.matrix is None else dot('query', h_BD)
  compare = jax.checkpoint(kind.compare, prevent_cse=False) if spec.remat else kind.compare
  scores_B1S = compare(shared, query_BX.astype(spec.dtype)[:, None], shared['keys_BSX'])
  centre_B1, count_B = None, jnp.sum(valid_BS, axis=1)
  if spec.window == 'local_m':
    centre_B1 = rnn_attention.monotonic_centre(now['position_B'][:, None], count_B)
  elif spec.window == 'local_p':
    centre_B1 = rnn_attention.predictive_centre(shared, dot('centre_query', h_BD)[:, None], count_B)
  a_B1S = rnn_attention.align(spec.window, scores_B1S, valid_BS, centre_BT=centre_B1, reach=spec.reach)
  read_BS, outputs = a_B1S[:, 0], {'alignment': a_B1S[:, 0]}
  if spec.reading == 'hard':
    noise_B1S = rnn_attention.noise(now['draw'], (B, 1, S)) if 'draw' in now else None
    drawn_B1S, log_p_B1 = rnn_attention.draw(a_B1S, noise_B1S)
    mean_B = constant['mean_B']
    read_BS = jnp.where(mean_B[:, None], read_BS, drawn_B1S[:, 0])
    outputs['choice'] = jnp.where(mean_B, 0.0, log_p_B1[:, 0])
  return dot('values', read_BS), outputs


def _body(
  spec: Spec,
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
  if spec.attention == 'before':
    y['before'] = layers[-1][0]
    y['context'], attention_outputs = _attend(spec, dot, shared, constant, layers[-1][0], now)
    x_BG = x_BG + dot('extra', y['context'])
  elif spec.feeding:
    x_BG = x_BG + dot('extra', dropout(carry['attentional_BD'], spec.rate, now.get('between_0')))
  for i, carry_in in enumerate(layers):
    if i:
      h_BD = dropout(layers[i - 1][0], spec.rate, now.get(f'between_{i}'))
      x_BG = dot(f'input_{i}', h_BD) + shared[f'bias_{i}'][None]
    layers[i] = rnn_cell.cell_step(spec.cell, dot, f'recurrent_{i}', x_BG, carry_in)
  new = {'layers': layers}
  y['state'] = layers[-1][0]
  if spec.attention == 'after':
    context_BH, attention_outputs = _attend(spec, dot, shared, constant, layers[-1][0], now)
    y['attentional'] = jnp.tanh(dot('combine', jnp.concatenate([context_BH, layers[-1][0]], axis=-1)))
    new['attentional_BD'] = y['attentional']
  y |= attention_outputs | {'layers': tuple(layer[0] for layer in layers)}
  return kernels.where_valid(now.get('valid_B'), new, carry), {name: y[name] for name in outputs}


def _matrices(
  spec: Spec, layers: Sequence[Params], score: Params, state: Mapping[str, Any], E: int
) -> tuple[dict[str, Array], dict[str, Array]]:
  """Return (the matrices of the loop, the small parameters that every step reads)."""
  matrices = {'values': state['values_BSH']}
  shared = {name: p for name, p in score.items() if p.ndim == 1} | {'keys_BSX': state['keys_BSX']}
  for i, layer in enumerate(layers):
    matrices |= rnn_cell.recurrent_matrices(spec.cell, layer, f'recurrent_{i}')
    if i:
      matrices[f'input_{i}'], shared[f'bias_{i}'] = layer['input'], layer['bias']
  if spec.attention == 'before' or spec.feeding:
    matrices['extra'] = layers[0]['input'][E:]
  if (matrix := rnn_attention.get(spec.score).matrix) is not None:
    matrices['query'] = matrix(score, layers[0]['recurrent'].shape[0])
  return matrices | {name: score[name] for name in ('centre_query', 'combine') if name in score}, shared


def run(
  spec: Spec,
  layers: Sequence[Params],
  score: Params,
  state: Mapping[str, Any],
  x_TBE: Array,
  valid_TB: Array | None,
  position_TB: Array,
  key: Array | None,
  outputs: tuple[str, ...],
) -> tuple[dict[str, Any], dict[str, Any]]:
  """Run the layers over the target.

  Args:
    spec: static options.
    layers: parameters of each layer; the first one's input reads E and then the context (or h~).
    score: parameters of the score, and for 'after' the matrix 'combine' (H + D, D).
    state: from `source`, with 'layers', the carries, and for 'after' 'attentional_BD', the previous h~.
    x_TBE: inputs.
    valid_TB: an invalid step leaves the state unchanged. None: all are valid.
    position_TB: position of each step in its target.
    key: PRNG key, None at evaluation.
    outputs: of 'before' (the state before each step), 'state', 'context', 'attentional' (h~), 'alignment', 'choice' and
      'layers' (the state of all).

  Returns:
    (the changed part of the state, {name: (T, B, ..)} of `outputs`).
  """
  (T, B), E = x_TBE.shape[:2], x_TBE.shape[-1]
  matrices, shared = _matrices(spec, layers, score, state, E)
  first = layers[0]
  x_TBG = jnp.matmul(x_TBE, first['input'][:E].astype(spec.dtype)) + first['bias'].astype(spec.dtype)[None, None]
  now = {'position_B': position_TB} | ({} if valid_TB is None else {'valid_B': valid_TB})
  constant = {'valid_BS': state['valid_BS'], 'mean_B': jnp.zeros(B, bool)}
  if key is not None:
    mean_key, draw_key, *between = jax.random.split(key, len(layers) + 2)
    now |= {f'between_{i}': jax.random.split(k, T) for i, k in enumerate(between)}
    if spec.reading == 'hard':
      now['draw'] = jax.random.split(draw_key, T)
      constant['mean_B'] = jax.random.bernoulli(mean_key, spec.expected, (B,))
  carry = {name: state[name] for name in ('layers', 'attentional_BD') if name in state}
  body = functools.partial(_body, spec, outputs)
  return kernels.scan(body, matrices, shared, carry, x_TBG, fixed=(constant, now), dtype=spec.dtype)
