"""Sampling of the next token: temperature, top-k and top-p.

Filters are applied in the order of OpenAI's GPT-2 sampler: temperature, top-k (Fan et al. 2018, section 5.4), top-p
(Holtzman et al. 2020, arXiv 1904.09751, section 3.1). For top-p the paper and Hugging Face keep the token that crosses
p. OpenAI's released GPT-2 code drops it, but never the most probable one (`top_p_form='released'`). Deviation from all
three: tokens tied with the last one kept are kept too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from lmx.errors import InputError
from lmx.types import Array

_COLDEST = 1e-6


@dataclasses.dataclass(frozen=True)
class Sampler:
  """Options of sampling.

  Attributes:
    temperature: divides the logits; 0 is greedy.
    top_k: sample from the k most probable tokens; 0 is all.
    top_p: sample from the most probable tokens that together reach this probability; 1 is all.
    top_p_form: 'paper' keeps the token that crosses top_p (Holtzman, Hugging Face), 'released' drops it (OpenAI).
    greedy: take the most probable token; overrides the fields above.
    forbidden: ids that are never sampled.

  Raises:
    InputError: a value is outside its range.
  """

  temperature: float = 1.0
  top_k: int = 0
  top_p: float = 1.0
  top_p_form: str = 'paper'
  greedy: bool = False
  forbidden: tuple[int, ...] = ()

  def __post_init__(self) -> None:
    check_temperature('temperature', self.temperature)
    if self.top_k < 0:
      raise InputError(f'top_k: got {self.top_k}; expected 0 (all tokens) or more')
    if not 0 < self.top_p <= 1:
      raise InputError(f'top_p: got {self.top_p}; expected a number above 0 and at most 1')
    if self.top_p_form not in ('paper', 'released'):
      raise InputError(f"top_p_form: got '{self.top_p_form}'; expected 'paper' or 'released'")


def check_temperature(where: str, value: float) -> None:
  """Raise InputError naming `where` unless a temperature is 0 or a valid divisor of float32 logits."""
  if value and not _COLDEST <= value <= 1 / _COLDEST:
    raise InputError(f'{where}: got {value:g}; expected 0 (greedy) or {_COLDEST:g} to {1 / _COLDEST:g}')


def forbid(logits_BV: Array, ids: Sequence[int]) -> Array:
  """Return the logits with `ids` at minus infinity."""
  return logits_BV.at[:, np.asarray(ids, np.int32)].set(-jnp.inf) if len(ids) else logits_BV


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


def sample(sampler: Sampler, logits_BV: Array, keys_B: Array) -> Array:
  """Sample one token per row, each with its own key. Returns (B,) int32."""
  if sampler.greedy or sampler.temperature == 0:  # the first of equal ones; to sort the vocabulary for it takes longer
    return jnp.argmax(forbid(logits_BV.astype(jnp.float32), sampler.forbidden), axis=-1).astype(jnp.int32)
  logits_BV = filter_logits(sampler, logits_BV)
  return jax.vmap(jax.random.categorical)(keys_B, logits_BV).astype(jnp.int32)
