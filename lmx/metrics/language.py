"""Scores of a language model from its summed negative log-likelihood, the denominator in each name.

Perplexities of models with different tokens cannot be compared; those per word, and bits per
character or byte, can, because what they divide by belongs to the text (Merity et al. 2018,
arXiv 1803.08240; Radford et al. 2019, section 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

MAX_SHOWN_PERPLEXITY = 1e6  # per word; above, no vocabulary is so large, and bits per character say more


def perplexity(nll: float, count: float) -> float:
  """Return exp(nll / count); infinity beyond the largest float, NaN where nothing was counted."""
  if count <= 0 or math.isnan(nll):
    return math.nan
  mean = nll / count
  return math.exp(mean) if mean < 709.0 else math.inf  # exp(709.78) is the largest float


def bits(nll: float, count: float) -> float:
  """Return nll / count in bits (nll in nats); NaN where nothing was counted."""
  return nll / count / math.log(2.0) if count > 0 else math.nan


def report(nll: float, tokens: float, counts: Mapping[str, float]) -> dict[str, float]:
  """Return every score that the counts allow.

  Args:
    nll: summed negative log-likelihood of the whole text, in nats.
    tokens: how many tokens were predicted.
    counts: how many `words`, `characters` and `bytes` the text has; what is absent or 0 gives no
      score.

  Returns:
    `loss` (nats a token), `perplexity_per_token`, and where known `perplexity_per_word`,
    `bits_per_character` and `bits_per_byte`.
  """
  loss = nll / tokens if tokens > 0 else math.nan
  found = {'loss': loss, 'perplexity_per_token': perplexity(nll, tokens)}
  if counts.get('words'):
    found['perplexity_per_word'] = perplexity(nll, counts['words'])
  if counts.get('characters'):
    found['bits_per_character'] = bits(nll, counts['characters'])
  if counts.get('bytes'):
    found['bits_per_byte'] = bits(nll, counts['bytes'])
  return found
