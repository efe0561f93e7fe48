"""Beam search for any model with explicit state: an encoder-decoder with a source, or a causal LM.

The search returns the K continuations of each row with the highest log p(Y) / lp(Y), where |Y| counts the
end-of-sequence token (EOS) and

    lp(Y) = ((5 + |Y|) / 6)^alpha   'gnmt': Wu et al. 2016 (arXiv 1609.08144), equation 14, without their coverage term
    lp(Y) = |Y|^alpha               'power': Hugging Face's length_penalty

A step extends K live hypotheses by one token and keeps the 2K most probable extensions ((E + 1) K with E EOS ids), so
that K of them can continue even if K others end. Those among the first K that end are finished: they never change
again, and the K best of all finished ones by score are kept. The others become the live ones. A hypothesis that reaches
its row's limit counts as finished without EOS.

A row ends when K hypotheses are finished and, by `stop`,
  'bound': no live one can ever beat them. Its log-probability can only fall, so that its score can never exceed
    log p / lp(limit), or log p / lp(present length) with alpha < 0. This is exact: continuing could not change the
    result.
  'current': the best live one, scored at its present length, does not beat them (Hugging Face's early_stopping=False);
  'full': at once (early_stopping=True).
With 'power', equal limits and 'current' or 'full' (or 'bound', its early_stopping='never') the hypotheses equal those
of `generate` in `transformers` with num_beams above 1. One beam is greedy there, as with 'full' here. `first`,
`force_end` and `renormalise` are its forced_bos_token_id, forced_eos_token_id and renormalize_logits. As there, the
repetition penalty applies to log-probabilities, which are not normalised again, but to logits with one beam.

A row's result does not depend on other rows or on padding. State leaves that `apply` returns unchanged (the encoder's
outputs) are shared by a row's hypotheses and are not gathered.

Axes: K hypotheses, W candidates.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lmx import placement
from lmx.decoding import PENALTIES, STOPS, generate, sampling
from lmx.engine import devices
from lmx.errors import InputError, check_choice, check_range
from lmx.kernels.dense import for_decoding
from lmx.placement import Placement
from lmx.types import Array, Batch, Model, Params, State


@dataclasses.dataclass(frozen=True)
class Beam(sampling.Constraints):
  """Options of the search and the ranking of hypotheses, and the constraints on a token.

  Attributes:
    size: K, number of live and returned hypotheses per row; 1 is greedy.
    alpha: exponent of the length penalty, 0.6 in Wu et al. 2016 and Vaswani et al. 2017; 0 ranks by probability, and a
      negative one favours short hypotheses.
    penalty: 'gnmt' or 'power', see above.
    stop: 'bound', 'current' or 'full', see above.
    renormalise: normalise probabilities over the allowed tokens; else use the model's.
    first: id with which every hypothesis begins, at probability 1; None for no such token. After an encoder-decoder's
      start symbol, `forbidden_first` then applies to the next token.

  Raises:
    InputError: a value is outside its range.
  """

  size: int = 4
  alpha: float = 0.6
  penalty: str = 'gnmt'
  stop: str = 'bound'
  renormalise: bool = False
  first: int | None = None

  def __post_init__(self) -> None:
    super().__post_init__()
    check_range('beam size', self.size, 1)
    check_range('beam alpha', self.alpha, -float('inf'), float('inf'))
    check_choice('beam penalty', self.penalty, PENALTIES)
    check_choice('beam stop', self.stop, STOPS)


def length_penalty(beam: Beam, length: Array) -> Array:
  """Return lp of hypotheses with `length` tokens, EOS included; float32 in the shape of `length`."""
  length = jnp.asarray(length, jnp.float32)
  return (length if beam.penalty == 'power' else (5 + length) / 6) ** beam.alpha


class Hypotheses(NamedTuple):
  """Hypotheses of `search`, best first.

  Attributes:
    tokens_BKT: int32, the continuations without the prompt, padded with the first of `eos_ids`.
    counts_BK: int32, tokens of each, EOS included; 0 for missing hypotheses, if fewer than K exist.
    log_p_BK: float32, sum of the tokens' log-probabilities in nats; minus infinity for missing hypotheses.
    scores_BK: float32, log_p divided by the length penalty, in descending order.
  """

  tokens_BKT: np.ndarray
  counts_BK: np.ndarray
  log_p_BK: np.ndarray
  scores_BK: np.ndarray


class _Carry(NamedTuple):
  """Carry of the loop over tokens."""

  state: State  # B * K rows
  live_BKT: Array  # tokens of the live hypotheses
  log_p_BK: Array  # of the live hypotheses; minus infinity for a missing one
  finished: tuple[Array, Array, Array, Array]  # the finished hypotheses, fields as in Hypotheses
  done_B: Array


@dataclasses.dataclass(frozen=True)
class _Setting:
  """Values fixed at compile time."""

  model: Model
  cfg: Any
  beam: Beam
  eos_ids: tuple[int, ...]
  cache: int
  placement: Placement | None = dataclasses.field(default_factory=placement.current)


class _Rows(NamedTuple):
  """Arrays of a row that stay the same during the search."""

  prompt_BL: Array  # padded on the right to the length of the longest text
  lengths_B: Array
  limits_B: Array
  least_B: Array


def _allow(setting: _Setting, logits_BKV: Array, live_BKT: Array, rows: _Rows, t: Array) -> tuple[Array, Array]:
  """Return the logits of token t with disallowed tokens at minus infinity, and their normalisation (B, K, 1)."""
  beam, (B, K, V) = setting.beam, logits_BKV.shape
  spread = lambda x_B: jnp.repeat(x_B, K, axis=0)
  ids_BL, length_B = spread(rows.prompt_BL), spread(rows.lengths_B) + t
  if beam.of_text:
    put = jax.vmap(lambda ids_L, own_T, at: jax.lax.dynamic_update_slice(ids_L, own_T, (at,)))
    ids_BL = put(ids_BL, live_BKT.reshape(B * K, -1), spread(rows.lengths_B))
  logits_BV = logits_BKV.reshape(B * K, V)
  norm_B1 = jax.nn.logsumexp(logits_BV, axis=-1, keepdims=True)
  if beam.repetition_penalty != 1:
    logits_BV = logits_BV if K == 1 else logits_BV - norm_B1
    logits_BV = sampling.penalise_repetition(logits_BV, ids_BL, length_B, beam.repetition_penalty)
    norm_B1 = jax.nn.logsumexp(logits_BV, axis=-1, keepdims=True) if K == 1 else jnp.zeros_like(norm_B1)
  text = sampling.Text(ids_BL, length_B, jnp.broadcast_to(t, B * K))
  firsts: tuple[int, ...] = () if beam.first is None else (beam.first,)
  allowed_BV = sampling.constrain(beam, logits_BV, text, setting.eos_ids, spread(rows.least_B), len(firsts))
  if beam.renormalise:
    norm_B1 = jax.nn.logsumexp(allowed_BV, axis=-1, keepdims=True)
  forced = [(firsts, jnp.broadcast_to(t == 0, B * K))] * len(firsts)
  forced += [(setting.eos_ids, t + 1 >= spread(rows.limits_B))] * beam.force_end
  for ids, now_B in forced:
    allowed_BV, norm_B1 = sampling.force(allowed_BV, now_B, ids), jnp.where(now_B[:, None], 0.0, norm_B1)
  return allowed_BV.reshape(B, K, V), norm_B1.reshape(B, K, 1)


def _candidates(
  setting: _Setting, carry: _Carry, logits_BKV: Array, rows: _Rows, t: Array
) -> tuple[Array, Array, Array]:
  """Return the W most probable extensions of a row's hypotheses by token t: (log_p_BW, parent_BW, token_BW)."""
  B, K, V = logits_BKV.shape
  W = K * (1 + max(len(setting.eos_ids), 1))
  allowed_BKV, norm_BK1 = _allow(setting, logits_BKV, carry.live_BKT, rows, t)
  # A row's best extensions are among the best of each hypothesis, so top_k over V runs once per hypothesis.
  best_BKW, token_BKW = jax.lax.top_k(allowed_BKV, min(W, V))
  each = best_BKW.shape[-1]
  log_p_BKW = carry.log_p_BK[..., None] + (best_BKW - norm_BK1)
  log_p_BW, index_BW = jax.lax.top_k(log_p_BKW.reshape(B, K * each), min(W, K * each))
  return log_p_BW, index_BW // each, jnp.take_along_axis(token_BKW.reshape(B, K * each), index_BW, axis=1)


def _gather(tree: Any, index_BK: Array) -> Any:
  """Gather hypotheses `index_BK` along axis 1 of every (B, ...) leaf."""
  expand = lambda x: index_BK.reshape(index_BK.shape + (1,) * (x.ndim - 2))
  return jax.tree.map(lambda x: jnp.take_along_axis(x, expand(x), axis=1), tree)


def _extend(setting: _Setting, carry: _Carry, logits_BKV: Array, rows: _Rows, t: Array) -> tuple[_Carry, Array]:
  """Extend the hypotheses by token t (from 0). Returns the carry, with its state unchanged, and the parents (B, K)."""
  beam, K, count = setting.beam, setting.beam.size, t + 1
  log_p_BW, parent_BW, token_BW = _candidates(setting, carry, logits_BKV, rows, t)
  tokens_BWT = jax.lax.dynamic_update_slice_in_dim(_gather(carry.live_BKT, parent_BW), token_BW[..., None], t, axis=2)
  ends_BW = jnp.broadcast_to((count >= rows.limits_B)[:, None], token_BW.shape)
  for end in setting.eos_ids:
    ends_BW |= token_BW == end

  first_W = jnp.arange(ends_BW.shape[1]) < K
  finished_BW = ends_BW & first_W & (log_p_BW > -jnp.inf) & ~carry.done_B[:, None]
  ended_BW = jnp.where(finished_BW, log_p_BW, -jnp.inf)
  scores_BW = ended_BW / length_penalty(beam, count)
  counts_BW = jnp.where(finished_BW, count, 0)
  join = lambda old, new: jnp.concatenate([old, new], axis=1)
  both = jax.tree.map(join, carry.finished, (tokens_BWT, counts_BW, ended_BW, scores_BW))
  finished = _gather(both, jax.lax.top_k(both[3], K)[1])

  log_p_BK, next_BK = _top(jnp.where(ends_BW, -jnp.inf, log_p_BW), K)
  live_BKT, parent_BK = _gather((tokens_BWT, parent_BW), next_BK)
  worst_B, best_B = jnp.min(finished[3], axis=1), jnp.max(log_p_BK, axis=1)
  best_score_B = {
    'bound': lambda: best_B / length_penalty(beam, rows.limits_B if beam.alpha > 0 else count),
    'current': lambda: best_B / length_penalty(beam, count),
    'full': lambda: jnp.full_like(best_B, -jnp.inf),
  }[beam.stop]()
  done_B = carry.done_B | (best_B == -jnp.inf) | ((worst_B > -jnp.inf) & (best_score_B <= worst_B))
  return _Carry(carry.state, live_BKT, log_p_BK, finished, done_B), parent_BK


def _top(x_BW: Array, k: int) -> tuple[Array, Array]:
  """Return `top_k`, padded with minus infinity if there are fewer than k values."""
  missing = max(k - x_BW.shape[1], 0)
  values_BK, index_BK = jax.lax.top_k(jnp.pad(x_BW, ((0, 0), (0, missing)), constant_values=-jnp.inf), k)
  return values_BK, jnp.minimum(index_BK, x_BW.shape[1] - 1)


@functools.partial(devices.jit_for_platform, static_argnames=('setting', 'steps'))
def _search(
  setting: _Setting,
  params: Params,
  prompt_BT: Array,
  lengths_B: Array,
  source: Batch | None,
  limits_B: Array,
  least_B: Array,
  steps: int,
) -> tuple[Array, Array, Array, Array]:
  model, cfg, K, B = setting.model, setting.cfg, setting.beam.size, prompt_BT.shape[0]
  state, logits_BV = generate.read_prompt(model, cfg, params, prompt_BT, lengths_B, setting.cache, source)
  state = jax.tree.map(lambda x: jnp.repeat(x, K, axis=0), state)
  rows = _Rows(jnp.pad(prompt_BT, ((0, 0), (0, steps))), lengths_B, limits_B, least_B)
  none_BK = jnp.full((B, K), -jnp.inf)
  empty_BKT = jnp.full((B, K, steps), setting.eos_ids[0] if setting.eos_ids else 0, jnp.int32)
  finished = (empty_BKT, jnp.zeros((B, K), jnp.int32), none_BK, none_BK)
  # At first one hypothesis, the empty one; the other K - 1 are missing.
  carry = _Carry(state, empty_BKT, none_BK.at[:, 0].set(0.0), finished, jnp.zeros(B, bool))
  spread = lambda x_BV: jnp.broadcast_to(x_BV[:, None], (B, K, x_BV.shape[1]))
  carry, _ = _extend(setting, carry, spread(logits_BV), rows, jnp.int32(0))

  def advance(loop: Any) -> Any:
    t, carry = loop
    last_BK1 = jax.lax.dynamic_slice_in_dim(carry.live_BKT, t - 1, 1, axis=2)
    features, state = model.apply(cfg, params, {'tokens_BT': last_BK1.reshape(B * K, 1)}, carry.state)
    logits_BKV = model.logits(cfg, params, features)[:, 0].reshape(B, K, -1)
    carry, parent_BK = _extend(setting, carry, logits_BKV, rows, t)
    parents = (jnp.arange(B)[:, None] * K + parent_BK).reshape(-1)
    state = jax.tree.map(lambda new, old: old if new is old else new[parents], state, carry.state)
    return t + 1, carry._replace(state=state)

  unfinished = lambda loop: (loop[0] < steps) & ~jnp.all(loop[1].done_B)
  with placement.scope(for_decoding(params)):
    return jax.lax.while_loop(unfinished, advance, (jnp.int32(1), carry))[1].finished


def check_penalty(beam: Beam, tokens: int) -> None:
  """Raise InputError unless the length penalty of `tokens` tokens is a positive float32."""
  if not 0 < length_penalty(beam, jnp.asarray(tokens)) < np.inf:
    raise InputError(
      f'beam alpha: got {beam.alpha:g}; expected a finite and positive length penalty for {tokens} tokens; set it '
      'closer to 0'
    )


def search(
  model: Model,
  cfg: Any,
  params: Params,
  prompt_BT: np.ndarray | None = None,
  lengths_B: np.ndarray | None = None,
  *,
  beam: Beam,
  limits: int | np.ndarray,
  least: int | np.ndarray = 0,
  eos_ids: Sequence[int] = (),
  source: Batch | None = None,
  steps: int | None = None,
) -> Hypotheses:
  """Search for the best continuations of each row, in one compiled loop.

  Args:
    model: a causal model's module, with its config `cfg` and its parameters `params` (without the objective's).
    prompt_BT: (B, T) ids, padded on the right; None is only the first of `eos_ids`, the start
      symbol of an encoder-decoder.
    lengths_B: (B,) tokens in each prompt; None is T for all.
    beam: options of the search.
    limits: maximum continuation length, EOS included: one number, or (B,). The model's window bounds it too.
    least: minimum number of tokens before EOS, if above `beam.min_tokens`: one number, or (B,). A row's limit takes
      precedence.
    eos_ids: ids of EOS; () for none, so that all hypotheses have the maximum length.
    source: source_BS and source_valid_BS, padded on the right, for an encoder-decoder.
    steps: at least the largest limit, to share one compilation among batches; None is the largest limit.

  Raises:
    InputError: the model is not causal, ids are outside the vocabulary, a continuation does not fit, or the length
      penalty overflows.
  """
  if prompt_BT is None:
    prompt_BT = np.full((len(source['source_BS']) if source is not None else 0, 1), eos_ids[0])
  prompt_BT = np.asarray(prompt_BT, np.int32)
  lengths_B = np.full(len(prompt_BT), prompt_BT.shape[-1]) if lengths_B is None else np.asarray(lengths_B)
  generate.check(model, cfg, prompt_BT, lengths_B, beam, source, eos_ids)
  if beam.first is not None and not 0 <= beam.first < cfg.V:
    raise InputError(f'beam first: got {beam.first}; expected an id of the vocabulary, 0 to {cfg.V - 1}')
  limits_B = np.broadcast_to(np.asarray(limits, np.int32), lengths_B.shape)
  window = generate.window(cfg)
  if window is not None:  # the last token is generated, but never read
    limits_B = np.minimum(limits_B, window + 1 - lengths_B)
    steps = None if steps is None else min(steps, window)
  if limits_B.min() < 1:
    raise InputError(
      f'no room for a continuation: limits {np.min(limits)}, prompts up to {lengths_B.max()} tokens'
      + ('' if window is None else f', and the model has {window} positions')
    )
  steps = max(int(limits_B.max()), steps or 0)
  check_penalty(beam, steps)
  length = prompt_BT.shape[1] + steps
  setting = _Setting(model, cfg, beam, tuple(eos_ids), length if window is None else min(length, window))
  least_B = jnp.broadcast_to(jnp.maximum(jnp.asarray(least, jnp.int32), beam.min_tokens), limits_B.shape)
  arrays = jnp.asarray(prompt_BT), jnp.asarray(lengths_B, jnp.int32), source, jnp.asarray(limits_B), least_B
  hypotheses = _search(setting, params, *arrays, steps)
  return Hypotheses(*(np.asarray(x) for x in hypotheses))
