"""Choice of the next token: excluded tokens, repetition penalty, temperature, top-k and top-p.

`constrain` applies the options that depend on the text so far, in sampling, greedy decoding and beam search, in the
order of `generate` in transformers. The others follow in the order of OpenAI's GPT-2 sampler: temperature, top-k (Fan
et al. 2018, section 5.4), top-p (Holtzman et al. 2020, arXiv 1904.09751, section 3.1). For top-p the paper and Hugging
Face keep the token that crosses p. OpenAI's released GPT-2 code drops it, but never the most probable one
(`top_p_form='released'`). Deviation from all three: tokens tied with the last one kept are kept too.

Axes: L positions of a text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lmx.decoding import check_constraints, check_temperature
from lmx.errors import InputError
from lmx.types import Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constraints:
  """Options that depend on the text so far: the prompt and its continuation, or a start symbol and the translation.

  Attributes:
    forbidden: ids that are never chosen.
    forbidden_first: ids that a continuation does not begin with.
    bad_words: sequences of ids that are never completed; a sequence of one EOS has no effect, as in transformers.
    min_tokens: minimum number of tokens before EOS.
    no_repeat_ngram: n; no n-gram is completed that the text already has (Paulus et al. 2018, arXiv 1705.04304, section
      2.5, n = 3); 0 for none.
    repetition_penalty: divides the logits of tokens that the text already has (Keskar et al. 2019, arXiv 1909.05858,
      section 4.1); above 1 it penalises them. Deviation, as in transformers: it multiplies negative logits.
    force_end: the last token within the limit is EOS, at probability 1; else any token.

  Raises:
    InputError: a value is outside its range.
  """

  forbidden: tuple[int, ...] = ()
  forbidden_first: tuple[int, ...] = ()
  bad_words: tuple[tuple[int, ...], ...] = ()
  min_tokens: int = 0
  no_repeat_ngram: int = 0
  repetition_penalty: float = 1.0
  force_end: bool = False

  def __post_init__(self) -> None:
    check_constraints('', self.bad_words, self.min_tokens, self.no_repeat_ngram, self.repetition_penalty)

  @property
  def of_text(self) -> bool:
    """Return whether the tokens of the text so far are needed."""
    longer = any(len(word) > 1 for word in self.bad_words)
    return longer or self.no_repeat_ngram > 0 or self.repetition_penalty != 1


@dataclasses.dataclass(frozen=True)
class Sampler(Constraints):
  """Options of sampling, and the constraints on a token.

  Attributes:
    temperature: divides the logits; 0 is greedy.
    top_k: sample from the k most probable tokens; 0 is all.
    top_p: sample from the most probable tokens that together reach this probability; 1 is all.
    top_p_form: 'paper' keeps the token that crosses top_p (Holtzman, Hugging Face), 'released' drops it (OpenAI).
    greedy: take the most probable token; overrides the fields above.

  Raises:
    InputError: a value is outside its range.
  """

  temperature: float = 1.0
  top_k: int = 0
  top_p: float = 1.0
  top_p_form: str = 'paper'
  greedy: bool = False

  def __post_init__(self) -> None:
    super().__post_init__()
    check_temperature('temperature', self.temperature)
    if self.top_k < 0:
      raise InputError(f'top_k: got {self.top_k}; expected 0 (all tokens) or more')
    if not 0 < self.top_p <= 1:
      raise InputError(f'top_p: got {self.top_p}; expected a number above 0 and at most 1')
    if self.top_p_form not in ('paper', 'released'):
      raise InputError(f"top_p_form: got '{self.top_p_form}'; expected 'paper' or 'released'")

  @property
  def is_greedy(self) -> bool:
    """Return whether the most probable token is taken, without a random number."""
    return self.greedy or self.temperature == 0


class Text(NamedTuple):
  """Texts that are being written.

  Attributes:
    ids_BL: ids of the prompt and the continuation, padded on the right.
    length_B: number of ids.
    count_B: number of ids of the continuation.
  """

  ids_BL: Array
  length_B: Array
  count_B: Array


def penalise_repetition(logits_BV: Array, ids_BL: Array, length_B: Array, penalty: float) -> Array:
  """Return the logits with those of tokens in the text divided by `penalty` if positive, else multiplied by it."""
  V = logits_BV.shape[-1]
  ids_BL = jnp.where(jnp.arange(ids_BL.shape[1]) < length_B[:, None], ids_BL, V)
  seen_BV = jnp.zeros(logits_BV.shape, bool).at[jnp.arange(len(ids_BL))[:, None], ids_BL].set(True, mode='drop')
  penalised_BV = jnp.where(logits_BV < 0, logits_BV * penalty, logits_BV / penalty)
  return jnp.where(seen_BV, penalised_BV, logits_BV)


def block_ngrams(logits_BV: Array, ids_BL: Array, length_B: Array, n: int) -> Array:
  """Return the logits with tokens that would complete an n-gram of the text at minus infinity."""
  starts = ids_BL.shape[1] - n + 1
  if starts < 1:
    return logits_BV
  same_BL = jnp.arange(starts) + n <= length_B[:, None]
  for i in range(n - 1):
    own_B = jnp.take_along_axis(ids_BL, jnp.maximum(length_B - n + 1 + i, 0)[:, None], axis=1)
    same_BL &= ids_BL[:, i : i + starts] == own_B
  last_BL = jnp.where(same_BL, ids_BL[:, n - 1 :], logits_BV.shape[-1])
  return logits_BV.at[jnp.arange(len(ids_BL))[:, None], last_BL].set(-jnp.inf, mode='drop')


def block_words(logits_BV: Array, ids_BL: Array, length_B: Array, words: Sequence[Sequence[int]]) -> Array:
  """Return the logits with tokens that would complete one of the sequences `words` at minus infinity."""
  for size in sorted({len(word) for word in words}):
    group = np.asarray([word for word in words if len(word) == size], np.int32)
    at_B1 = (length_B - size + 1)[:, None] + jnp.arange(size - 1)
    tail_BT = jnp.take_along_axis(ids_BL, jnp.maximum(at_B1, 0), axis=1)
    ends_BW = jnp.all(tail_BT[:, None] == group[:, :-1], axis=-1) & (length_B >= size - 1)[:, None]
    logits_BV = logits_BV.at[:, group[:, -1]].min(jnp.where(ends_BW, -jnp.inf, jnp.inf))
  return logits_BV


def constrain(
  rules: Constraints,
  logits_BV: Array,
  text: Text,
  eos_ids: Sequence[int],
  least_B: Array | int | None = None,
  begin: int = 0,
) -> Array:
  """Return the float32 logits of the next token, those of excluded tokens at minus infinity.

  Args:
    rules: the constraints; `repetition_penalty` and `force_end` are applied by `penalise_repetition` and `force`.
    logits_BV: logits or log-probabilities.
    text: the texts so far.
    eos_ids: ids that end a text.
    least_B: minimum number of tokens before EOS; None is `rules.min_tokens`.
    begin: number of tokens before the one that `forbidden_first` restricts.
  """
  logits_BV = logits_BV.astype(jnp.float32)
  if rules.no_repeat_ngram:
    logits_BV = block_ngrams(logits_BV, text.ids_BL, text.length_B, rules.no_repeat_ngram)
  longer = [word for word in rules.bad_words if len(word) > 1]
  logits_BV = block_words(logits_BV, text.ids_BL, text.length_B, longer)
  single = [word[0] for word in rules.bad_words if len(word) == 1 and word[0] not in eos_ids]
  logits_BV = forbid(logits_BV, [*rules.forbidden, *single])
  least_B = rules.min_tokens if least_B is None else least_B
  if not isinstance(least_B, int) or least_B:
    logits_BV = forbid(logits_BV, eos_ids, text.count_B < least_B)
  return forbid(logits_BV, rules.forbidden_first, text.count_B == begin)


def force(logits_BV: Array, now_B: Array, ids: Sequence[int]) -> Array:
  """Return the logits with `ids` at 0 and all others at minus infinity in the rows where `now_B` holds."""
  only_V = jnp.full(logits_BV.shape[-1], -jnp.inf).at[np.asarray(ids, np.int32)].set(0.0)
  return jnp.where(now_B[:, None], only_V, logits_BV)


def forbid(logits_BV: Array, ids: Sequence[int], now_B: Array | None = None) -> Array:
  """Return the logits with `ids` at minus infinity, in all rows or in those where `now_B` holds."""
  if not len(ids):
    return logits_BV
  barred_V = np.zeros(logits_BV.shape[-1], bool)
  barred_V[np.asarray(ids)] = True
  return jnp.where(barred_V if now_B is None else barred_V & now_B[:, None], -jnp.inf, logits_BV)


def top_k(logits_BV: Array, k: int) -> Array:
  """Return the logits with all but the k largest of each row (and ties) at minus infinity; k = 0 changes nothing."""
  if k == 0 or k >= logits_BV.shape[-1]:
    return logits_BV
  least_B = jax.lax.top_k(logits_BV, k)[0][:, -1]
  return jnp.where(logits_BV < least_B[:, None], -jnp.inf, logits_BV)


def top_p(logits_BV: Array, p: float, form: str = 'paper') -> Array:
  """Return the logits with the tokens outside the nucleus of probability p at minus infinity.

  Args:
    logits_BV: logits, some of which may be minus infinity; probabilities are normalised over the rest.
    p: 0 < p <= 1; 1 changes nothing.
    form: 'paper': the smallest set with probability >= p. 'released': the tokens whose cumulative probability is <= p,
      at least one (openai/gpt-2, src/sample.py).
  """
  if p >= 1:
    return logits_BV
  sorted_BV = -jnp.sort(-logits_BV, axis=-1)
  p_BV = jax.nn.softmax(sorted_BV, axis=-1)
  total_BV = jnp.cumsum(p_BV, axis=-1)
  inside_BV = total_BV <= p if form == 'released' else total_BV - p_BV < p
  last_B = jnp.maximum(jnp.sum(inside_BV, axis=-1) - 1, 0)
  least_B1 = jnp.take_along_axis(sorted_BV, last_B[:, None], axis=-1)
  return jnp.where(logits_BV < least_B1, -jnp.inf, logits_BV)


def filter_logits(sampler: Sampler, logits_BV: Array) -> Array:
  """Return the logits from which `sampler` samples; excluded tokens are at minus infinity."""
  logits_BV = forbid(logits_BV.astype(jnp.float32), sampler.forbidden)
  if sampler.greedy or sampler.temperature == 0:
    return top_k(logits_BV, 1)
  logits_BV = top_k(logits_BV / sampler.temperature, sampler.top_k)
  return top_p(logits_BV, sampler.top_p, sampler.top_p_form)


def sample(sampler: Sampler, logits_BV: Array, keys_B: Array | None) -> Array:
  """Sample one token per row, each with its own key, None if `is_greedy`. Returns (B,) int32."""
  if sampler.is_greedy:  # the first of equal ones; to sort the vocabulary for it takes longer
    return jnp.argmax(forbid(logits_BV.astype(jnp.float32), sampler.forbidden), axis=-1).astype(jnp.int32)
  logits_BV = filter_logits(sampler, logits_BV)
  return jax.vmap(jax.random.categorical)(keys_B, logits_BV).astype(jnp.int32)  # type: ignore[arg-type]
