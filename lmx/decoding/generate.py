"""Autoregressive generation from any model with explicit state.

One step serves every causal model, because a key/value cache (gpt2) and a recurrent carry (rnn_lm) are both the `State`
of the model contract: `apply` reads the prompt once, then one token at a time. The initial state of an encoder-decoder
comes from its source (`begin`); its prompt is the start symbol. Beam search is in lmx/decoding/beam_search.py.

Beyond the model's window: when a row has filled all `context` positions, its last `context // 2` tokens are read again
as a new prompt. So a token is always conditioned on at least half a window. A recurrent model has no window and never
does this.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lmx import placement
from lmx.decoding import sampling
from lmx.decoding.sampling import Constraints, Sampler, sample
from lmx.engine import by_layer, devices
from lmx.errors import InputError, InputWarning
from lmx.kernels.dense import ROWS, for_decoding
from lmx.placement import Placement
from lmx.types import Array, Batch, Features, Model, Params, State

# Prompts are padded to a multiple of this, so that a new length seldom needs a new compilation.
_BUCKET = 32
_MOST_STEPS = 512  # from about here on, one compiled loop takes less time, its compilation included
MAX_POSITIONS = 10_000_000  # of all rows together: larger arrays do not fit, and XLA aborts beyond 2**31


class Generated(NamedTuple):
  """Continuations of `generate`.

  Attributes:
    tokens_BT: (B, steps) int32, the continuation without the prompt; padded after the end-of-text token with the first
      of `eos_ids`.
    counts_B: (B,) int32, number of sampled tokens, the end-of-text token included.
  """

  tokens_BT: np.ndarray
  counts_B: np.ndarray


class _Carry(NamedTuple):
  """Carry of the loop over tokens; axis L of the history has prompt and continuation."""

  state: State
  logits_BV: Array  # of the next token
  history_BL: Array
  length_B: Array  # tokens in the history
  used_B: Array  # positions of the window in use
  sampled_B: Array
  done_B: Array


@dataclasses.dataclass(frozen=True)
class _Setting:
  """Values fixed at compile time."""

  model: Model
  cfg: Any
  sampler: Sampler
  eos_ids: tuple[int, ...]
  context: int | None  # None: no window, or one that cannot overflow
  cache: int
  steps: int  # most tokens to sample
  placement: Placement | None = dataclasses.field(default_factory=placement.current)


def read_prompt(
  model: Model, cfg: Any, params: Params, prompt_BT: Array, lengths_B: Array, cache: int, source: Batch | None
) -> tuple[State, Array]:
  """Run right-padded prompts from an empty state, or from the state of an encoded source.

  Args:
    cache: positions that the state must hold.
    source: source_BS and source_valid_BS for an encoder-decoder, else None.

  Returns:
    (state, logits_BV of the token after each row's last one).
  """
  B, T = prompt_BT.shape
  state = model.init_state(cfg, B, cache) if source is None else model.begin(cfg, params, source, cache)
  batch = {'tokens_BT': prompt_BT, 'valid_BT': jnp.arange(T)[None] < lengths_B[:, None]}
  features, state = model.apply(cfg, params, batch, state)
  last_B1D = jnp.take_along_axis(features.last_BTD, (lengths_B - 1)[:, None, None], axis=1)
  return state, model.logits(cfg, params, Features(last_B1D))[:, 0]


def _read(setting: _Setting, params: Params, prompt_BT: Array, lengths_B: Array, source: Batch | None) -> _Carry:
  """Return the carry after the prompt."""
  B = prompt_BT.shape[0]
  state, logits_BV = read_prompt(setting.model, setting.cfg, params, prompt_BT, lengths_B, setting.cache, source)
  history_BL = jnp.pad(prompt_BT, ((0, 0), (0, setting.steps)))
  # Distinct buffers: the carry is donated, and one buffer cannot be donated twice.
  return _Carry(
    state,
    logits_BV,
    history_BL,
    lengths_B + 0,
    lengths_B + 0,
    jnp.zeros(B, jnp.int32),
    jnp.zeros(B, bool),
  )


def _select_rows(choose_B: Array, new: Any, old: Any) -> Any:
  """Return in every leaf the rows of `new` where `choose_B` holds, else of `old`."""
  pick = lambda a, b: jnp.where(choose_B.reshape((-1,) + (1,) * (a.ndim - 1)), a, b)
  return jax.tree.map(pick, new, old)


def _reread(setting: _Setting, params: Params, context: int, full_B: Array, carry: _Carry) -> _Carry:
  """Read the second half of the window as a new prompt, in the rows whose window is full."""
  half = max(context // 2, 1)
  take = jax.vmap(lambda row_L, start: jax.lax.dynamic_slice(row_L, (start,), (half,)))
  tokens_BT = take(carry.history_BL, jnp.maximum(carry.length_B - half, 0))
  half_B = jnp.full_like(carry.used_B, half)
  state, logits_BV = read_prompt(setting.model, setting.cfg, params, tokens_BT, half_B, setting.cache, None)
  state, logits_BV, used_B = _select_rows(
    full_B, (state, logits_BV, half_B), (carry.state, carry.logits_BV, carry.used_B)
  )
  return carry._replace(state=state, logits_BV=logits_BV, used_B=used_B)


def _constrain(setting: _Setting, carry: _Carry) -> Array:
  """Return the logits of the next token under the sampler's constraints, (B, V)."""
  rules, text = setting.sampler, sampling.Text(carry.history_BL, carry.length_B, carry.sampled_B)
  logits_BV = carry.logits_BV.astype(jnp.float32)
  if rules.repetition_penalty != 1:
    logits_BV = sampling.penalise_repetition(logits_BV, text.ids_BL, text.length_B, rules.repetition_penalty)
  logits_BV = sampling.constrain(rules, logits_BV, text, setting.eos_ids)
  if rules.force_end:
    logits_BV = sampling.force(logits_BV, carry.sampled_B + 1 >= setting.steps, setting.eos_ids)
  return logits_BV


def _advance(setting: _Setting, params: Params, carry: _Carry, keys_B: Array | None) -> tuple[_Carry, Array]:
  """Sample one token per row and feed it back.

  Returns the carry and the tokens, (B,) int32: -1 for a row in which all tokens are excluded.
  """
  logits_BV = _constrain(setting, carry)
  step_keys_B = None if keys_B is None else jax.vmap(jax.random.fold_in)(keys_B, carry.sampled_B)
  sample_B = sample(setting.sampler, logits_BV, step_keys_B)
  if setting.sampler.of_text:
    sample_B = jnp.where(jnp.all(logits_BV == -jnp.inf, axis=-1), -1, sample_B)
  live_B = ~carry.done_B
  token_B = jnp.where(live_B, sample_B, setting.eos_ids[0] if setting.eos_ids else 0)
  done_B = carry.done_B
  for end in setting.eos_ids:
    done_B |= sample_B == end
  put = jax.vmap(lambda row_L, token, at: jax.lax.dynamic_update_slice(row_L, token[None], (at,)))
  history_BL = _select_rows(live_B, put(carry.history_BL, token_B, carry.length_B), carry.history_BL)
  batch = {'tokens_BT': token_B[:, None]}
  features, state = setting.model.apply(setting.cfg, params, batch, carry.state)
  logits_BV = setting.model.logits(setting.cfg, params, features)[:, 0]
  more_B = live_B.astype(jnp.int32)
  full_B = live_B if setting.context is None else live_B & (carry.used_B >= setting.context)
  carry = _Carry(
    state,
    logits_BV,
    history_BL,
    carry.length_B + more_B,
    carry.used_B + more_B,
    carry.sampled_B + more_B,
    done_B,
  )
  if setting.context is not None:
    reread = functools.partial(_reread, setting, params, setting.context, full_B)
    carry = jax.lax.cond(jnp.any(full_B), reread, lambda same: same, carry)
  return carry, token_B


_start = devices.jit_for_platform(_read, static_argnames=('setting',))
_step = devices.jit_for_platform(_advance, static_argnames=('setting',), donate_argnames=('carry',))


@functools.partial(devices.jit_for_platform, static_argnames=('setting',))
def _loop(setting: _Setting, params: Params, carry: _Carry, keys_B: Array | None) -> tuple[Array, Array]:
  """Generate until every row has ended or has all its tokens."""
  steps = setting.steps

  def unfinished(loop: Any) -> Any:
    t, carry, _ = loop
    return (t < steps) & ~jnp.all(carry.done_B)

  def body(loop: Any) -> Any:
    t, carry, tokens_BT = loop
    carry, token_B = _advance(setting, params, carry, keys_B)
    return t + 1, carry, jax.lax.dynamic_update_slice(tokens_BT, token_B[:, None], (0, t))

  pad_id = setting.eos_ids[0] if setting.eos_ids else 0
  empty_BT = jnp.full((carry.done_B.shape[0], steps), pad_id, jnp.int32)
  with placement.scope(for_decoding(params)):
    _, carry, tokens_BT = jax.lax.while_loop(unfinished, body, (jnp.int32(0), carry, empty_BT))
  return tokens_BT, carry.sampled_B


def window(cfg: Any) -> int | None:
  """Return the most positions that a model can attend to: its config's field `T`; None without a bound."""
  return cfg.T or None if any(field.name == 'T' for field in dataclasses.fields(cfg)) else None


def source_size(cfg: Any) -> int:
  """Return the source vocabulary's size: `source_V` of the config, or V if that is 0 or absent."""
  return getattr(cfg, 'source_V', 0) or cfg.V


def check_positions(where: str, rows: int, tokens: int) -> None:
  """Raise InputError naming the fields `where` if `rows` texts of `tokens` tokens are too many to generate at once."""
  if rows * tokens > MAX_POSITIONS:
    raise InputError(
      f'{where}: got {rows:,} x {tokens:,} = {rows * tokens:,} tokens; expected at most '
      f'{MAX_POSITIONS:,} together; lower one of the two'
    )


def check(
  model: Model,
  cfg: Any,
  prompt_BT: np.ndarray,
  lengths_B: np.ndarray,
  rules: Constraints,
  source: Batch | None = None,
  eos_ids: Sequence[int] = (),
) -> None:
  """Raise InputError unless the model can continue the prompts under the constraints."""
  name = model.name
  if (source is not None) != (model.READS == 'source'):
    raise InputError(f'model "{name}" ' + ('reads no source' if source is not None else 'needs a source to translate'))
  if source is not None:
    check_source(cfg, source, len(prompt_BT))
  if not model.CAUSAL:
    raise InputError(
      f'model "{name}" reads in both directions (it sees the tokens to the right of the one it predicts), so it '
      'cannot generate text; choose a causal model such as gpt2 or rnn_lm'
    )
  if prompt_BT.ndim != 2 or lengths_B.shape != prompt_BT.shape[:1]:
    raise InputError(f'prompt_BT, lengths_B: got shapes {prompt_BT.shape}, {lengths_B.shape}; expected (B, T), (B,)')
  if not prompt_BT.size or lengths_B.min() < 1 or lengths_B.max() > prompt_BT.shape[1]:
    raise InputError(f'lengths_B: got {lengths_B.tolist()}; expected prompts of 1 to T={prompt_BT.shape[-1]} tokens')
  real_BT = np.arange(prompt_BT.shape[1])[None] < lengths_B[:, None]
  wrong = prompt_BT[real_BT & ((prompt_BT < 0) | (prompt_BT >= cfg.V))]
  if wrong.size:
    raise InputError(f'the prompt has token {int(wrong[0])}, but the vocabulary has ids 0 to {cfg.V - 1}')
  for field, ids in (
    ('eos_ids', eos_ids),
    ('forbidden', rules.forbidden),
    ('forbidden_first', rules.forbidden_first),
    ('bad_words', [i for word in rules.bad_words for i in word]),
  ):
    if beyond := [i for i in ids if not 0 <= i < cfg.V]:
      raise InputError(f'{field}: got the id {beyond[0]}; expected ids of the vocabulary, 0 to {cfg.V - 1}')
  alone = {word[0] for word in rules.bad_words if len(word) == 1} - {*eos_ids}
  if len(alone.union(rules.forbidden, rules.forbidden_first)) >= cfg.V:
    raise InputError(f'forbidden: got all {cfg.V} ids, with forbidden_first and bad_words; leave at least one token')
  if rules.force_end and not eos_ids:
    raise InputError('force_end: got True without an end-of-text token; set eos_ids')


def check_source(cfg: Any, source: Batch, rows: int) -> None:
  """Raise InputError unless `source` has `rows` rows of ids in the vocabulary, no longer than the model's positions."""
  ids_BS, valid_BS = np.asarray(source['source_BS']), np.asarray(source['source_valid_BS'])
  V = source_size(cfg)
  if ids_BS.shape != valid_BS.shape or ids_BS.ndim != 2 or len(ids_BS) != rows:
    raise InputError(f'source_BS, source_valid_BS: got shapes {ids_BS.shape}, {valid_BS.shape}; expected ({rows}, S)')
  wrong = ids_BS[valid_BS & ((ids_BS < 0) | (ids_BS >= V))]
  if wrong.size:
    raise InputError(f'the source has token {int(wrong[0])}, but the vocabulary has ids 0 to {V - 1}')
  limit = window(cfg)
  if limit is not None and ids_BS.shape[1] > limit:
    raise InputError(f'source_BS: got {ids_BS.shape[1]} positions, but the model has only T = {limit}')


def pad_prompts(
  prompt_BT: np.ndarray, lengths_B: np.ndarray, context: int | None, multiple: int = _BUCKET
) -> tuple[np.ndarray, np.ndarray]:
  """Truncate prompts on the left to the window and pad them on the right to a multiple of `multiple`.

  Returns the ids (B, T) and the lengths (B,).
  """
  rows = [row[:n] for row, n in zip(prompt_BT, lengths_B, strict=True)]
  if context is not None and lengths_B.max() > context:
    warnings.warn(
      f'prompt of {lengths_B.max()} tokens is longer than the window of the model; only its last '
      f'{context} tokens are read',
      InputWarning,
      stacklevel=4,
    )
    rows = [row[-context:] for row in rows]
  length = -(-max(map(len, rows)) // multiple) * multiple
  padded_BT = np.zeros((len(rows), length if context is None else min(length, context)), np.int32)
  for row_T, out_T in zip(rows, padded_BT, strict=True):
    out_T[: len(row_T)] = row_T
  return padded_BT, np.array([len(row) for row in rows], np.int32)


def _prepare(
  model: Model,
  cfg: Any,
  params: Params,
  prompt_BT: np.ndarray,
  lengths_B: np.ndarray | None,
  *,
  steps: int,
  key: Array | None,
  sampler: Sampler,
  eos_ids: Sequence[int],
  context: int | None,
  source: Batch | None,
) -> Any:
  """Check the input and read the prompt. Returns (setting, steps)."""
  prompt_BT = np.asarray(prompt_BT)
  lengths_B = np.full(len(prompt_BT), prompt_BT.shape[-1]) if lengths_B is None else np.asarray(lengths_B)
  check(model, cfg, prompt_BT, lengths_B, sampler, source, eos_ids)
  if steps < 1:
    raise InputError(f'steps: got {steps}; expected at least 1 token to generate')
  limit = window(cfg)
  if context is not None and (context < 2 or (limit is not None and context > limit)):
    raise InputError(f"context: got {context}; expected 2 to the model's window of {limit} positions")
  context = limit if context is None else context
  prompt_BT, lengths_B = pad_prompts(prompt_BT, lengths_B, context, _BUCKET if source is None else 1)
  length = prompt_BT.shape[1] + steps
  overflows = context is not None and int(lengths_B.max()) + steps > context
  if overflows and source is not None:
    raise InputError(f'{steps} tokens after {lengths_B.max()} are more than the {context} positions of the model')
  setting = _Setting(
    model,
    cfg,
    sampler,
    tuple(eos_ids),
    context if overflows else None,
    length if context is None else min(length, context),
    steps,
  )
  if key is None and not sampler.is_greedy:
    raise InputError('key: got None; expected a key, because the sampler is not greedy')
  if key is not None and key.ndim and key.shape != lengths_B.shape:
    raise InputError(f'key: got shape {key.shape} for {len(lengths_B)} rows; expected one key, or one per row')
  if sampler.is_greedy:
    key = None  # a program for keys would be compiled for nothing
  inputs = params, prompt_BT, lengths_B, source
  step: Callable[..., tuple[_Carry, Array]]
  if _is_by_layer(setting, params, len(prompt_BT)):
    start = by_layer.prepare(_read, setting, *inputs)
    keys = key if key is None or key.ndim else jax.ShapeDtypeStruct(lengths_B.shape, key.dtype)
    step = by_layer.prepare(_advance, setting, params, start.outputs, keys, donated=1)
    carry = start(*inputs)
  else:
    carry = _start(setting, *inputs)
    step = functools.partial(_step, setting)
  keys_B = key if key is None or key.ndim else _row_keys(key, len(prompt_BT))
  return setting, _Steps(step, params, carry, keys_B)


@functools.partial(jax.jit, static_argnames=('rows',))
def _row_keys(key: Array, rows: int) -> Array:
  return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(rows))


def _is_by_layer(setting: _Setting, params: Params, rows: int) -> bool:
  """Return True if the programs of lmx/engine/by_layer.py generate sooner than one compiled loop.

  They do on one CPU, for few tokens, and where the loop has no faster products (`for_decoding`).
  """
  here = setting.placement
  if here is None or here.platform != 'cpu' or here.devices > 1 or ROWS[0] <= rows <= ROWS[1]:
    return False
  elsewhere = lambda x: isinstance(x, jax.Array) and x.devices() != {jax.devices()[0]}
  return setting.steps <= _MOST_STEPS and not any(map(elsewhere, jax.tree.leaves(params)))


@dataclasses.dataclass
class _Steps:
  """The steps after a prompt, each a call of compiled programs."""

  step: Callable[[Params, _Carry, Array | None], tuple[_Carry, Array]]
  params: Params
  carry: _Carry  # of the step so far, which overwrites it
  keys_B: Array | None  # None of a greedy sampler

  def tokens(self, setting: _Setting) -> Iterator[Array]:
    """Yield the tokens of each step, (B,), until every row has ended."""
    for _ in range(setting.steps):
      self.carry, token_B = self.step(self.params, self.carry, self.keys_B)
      yield token_B
      if setting.eos_ids and np.asarray(self.carry.done_B).all():
        return


def generate(
  model: Model,
  cfg: Any,
  params: Params,
  prompt_BT: np.ndarray,
  lengths_B: np.ndarray | None = None,
  *,
  steps: int,
  key: Array | None,
  sampler: Sampler,
  eos_ids: Sequence[int] = (),
  context: int | None = None,
  source: Batch | None = None,
) -> Generated:
  """Continue each prompt by up to `steps` tokens.

  A row's tokens depend only on its own prompt and key. When the window is full, its last half is read again (see the
  module's docstring).

  Args:
    model: a causal model's module, with its config `cfg` and its parameters `params` (without the objective's).
    prompt_BT: (B, T) ids, padded on the right.
    lengths_B: (B,) tokens in each prompt; None is T for all.
    steps: number of tokens to sample.
    key: one typed key, of which row b uses `fold_in(key, b)`, or (B,) keys; None is for a greedy sampler.
    sampler: options of sampling, and constraints on the tokens.
    eos_ids: a row ends with one of these tokens, and is padded with the first; (): no row ends early.
    context: maximum number of positions to attend to, 2 to the model's window; None is the whole window.
    source: source_BS and source_valid_BS, padded on the right, for an encoder-decoder; its prompts are then the start
      symbol, and prompt and steps must fit its window.

  Raises:
    InputError: the model is not causal, ids are outside the vocabulary, a prompt is empty, or the constraints exclude
      all tokens.
  """
  options: dict[str, Any] = dict(steps=steps, key=key, sampler=sampler, eos_ids=eos_ids, context=context, source=source)
  setting, run = _prepare(model, cfg, params, prompt_BT, lengths_B, **options)
  if not isinstance(run.step, by_layer.Programs):
    tokens_BT, counts_B = _loop(setting, params, run.carry, run.keys_B)
    return Generated(_check_tokens(sampler, np.asarray(tokens_BT)), np.asarray(counts_B))
  tokens_BT = np.full((len(prompt_BT), steps), eos_ids[0] if eos_ids else 0, np.int32)
  sampled = np.stack(list(run.tokens(setting)), axis=1)
  tokens_BT[:, : sampled.shape[1]] = sampled
  return Generated(_check_tokens(sampler, tokens_BT), np.asarray(run.carry.sampled_B))


def _check_tokens(sampler: Sampler, tokens: np.ndarray) -> np.ndarray:
  """Return the tokens; raise InputError if one of them is -1, because all were excluded."""
  if np.any(tokens < 0):
    raise InputError(f'{name_constraints(sampler)}: got values that exclude every token; relax one of them')
  return tokens


def name_constraints(rules: Constraints) -> str:
  """Return the names of the fields that exclude tokens, such as 'no_repeat_ngram, bad_words'."""
  names = ('forbidden', 'forbidden_first', 'bad_words', 'min_tokens', 'no_repeat_ngram')
  return ', '.join(name for name in names if getattr(rules, name))


def stream(
  model: Model,
  cfg: Any,
  params: Params,
  prompt_BT: np.ndarray,
  lengths_B: np.ndarray | None = None,
  *,
  steps: int,
  key: Array | None,
  sampler: Sampler,
  eos_ids: Sequence[int] = (),
  context: int | None = None,
  source: Batch | None = None,
) -> Iterator[np.ndarray]:
  """Iterate over the tokens that `generate` returns, one (B,) array at a time, until every row has ended.

  The call itself checks the arguments and reads the prompt.
  """
  options: dict[str, Any] = dict(steps=steps, key=key, sampler=sampler, eos_ids=eos_ids, context=context, source=source)
  setting, run = _prepare(model, cfg, params, prompt_BT, lengths_B, **options)
  return (_check_tokens(sampler, np.asarray(token_B)) for token_B in run.tokens(setting))


def encode_prompt(tokenizer: Any, text: str) -> np.ndarray:
  """Return the (T,) ids of a prompt. The `<eos>` of a line end at its end is omitted, so that the text continues."""
  ids = np.asarray(tokenizer.encode(text), np.int32) if text else np.zeros(0, np.int32)
  ends = tokenizer.ends_lines and '\n' in text[len(text.rstrip()) :]
  return ids[:-1] if ends and ids.size and ids[-1] == tokenizer.eos_id else ids


def prompt_ids(tokenizer: Any, text: str) -> np.ndarray:
  """Return the ids from which a prompt is continued: `begin_row` of `encode_prompt`."""
  return begin_row(tokenizer, encode_prompt(tokenizer, text))


def begin_row(tokenizer: Any, ids: np.ndarray) -> np.ndarray:
  """Return the ids of a prompt, (T,), or the end-of-text token if there are none.

  An imported tokenizer with its own rows adds their special tokens, as `tokenizer(text)` of transformers does.

  Raises:
    InputError: the prompt is empty, and the tokenizer has no end-of-text token.
  """
  if tokenizer.templates and tokenizer.templates[0].special:
    return tokenizer.templates[0].row(ids)[0]
  if ids.size:
    return ids
  if tokenizer.eos_id is None:
    raise InputError('the prompt is empty, and this tokenizer has no end-of-text token to start from; give a prompt')
  return np.array([tokenizer.eos_id], np.int32)


def forbidden_ids(tokenizer: Any, vocab_size: int, *, allow_unk: bool = False) -> tuple[int, ...]:
  """Return ids that must not be generated: padding, the unknown word unless allowed, and ids beyond the tokenizer's."""
  unwanted = {tokenizer.pad_id} if allow_unk else {tokenizer.pad_id, tokenizer.unk_id}
  beyond = set(range(tokenizer.vocab_size, vocab_size))
  return tuple(sorted((unwanted - {None, tokenizer.eos_id}) | beyond))
