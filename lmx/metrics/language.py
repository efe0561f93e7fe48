"""Metrics of a language model from its summed negative log-likelihood, with the denominator in each name.

Perplexities of models with different tokens are not comparable. Those per word, and bits per
character or byte, are, because their denominators are properties of the text (Merity et al. 2018,
arXiv 1803.08240; Radford et al. 2019, section 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from lmx.metrics.metric import Metric

PERPLEXITY_PER_TOKEN = Metric('perplexity_per_token', False)
METRICS = (
  Metric('perplexity_per_word', False, shown=False),
  PERPLEXITY_PER_TOKEN,
  Metric('bits_per_character', False, headline=',.3f'),
  Metric('bits_per_byte', False),
)
MAX_SHOWN_PERPLEXITY = 1e6  # word perplexity limit: beyond it, bits per character are more informative


def perplexity(nll: float, count: float) -> float:
  """Return exp(nll / count); infinity beyond the largest float, NaN if the count is 0."""
  if count <= 0 or math.isnan(nll):
    return math.nan
  mean = nll / count
  return math.exp(mean) if mean < 709.0 else math.inf  # exp(709.78) is the largest float


def bits(nll: float, count: float) -> float:
  """Return nll / count in bits (nll in nats); NaN if the count is 0."""
  return nll / count / math.log(2.0) if count > 0 else math.nan


def report(nll: float, tokens: float, counts: Mapping[str, float]) -> dict[str, float]:
  """Return every metric that the counts allow.

  Args:
    nll: summed negative log-likelihood of the whole text, in nats.
    tokens: number of predicted tokens.
    counts: number of `words`, `characters` and `bytes` of the text; what is absent or 0 gives no
      metric.

  Returns:
    `loss` (nats a token), `perplexity_per_token`, and where known `perplexity_per_word`,
    `bits_per_character` and `bits_per_byte`.
  """
  loss = nll / tokens if tokens > 0 else math.nan
  metrics = {'loss': loss, 'perplexity_per_token': perplexity(nll, tokens)}
  if counts.get('words'):
    metrics['perplexity_per_word'] = perplexity(nll, counts['words'])
  if counts.get('characters'):
    metrics['bits_per_character'] = bits(nll, counts['characters'])
  if counts.get('bytes'):
    metrics['bits_per_byte'] = bits(nll, counts['bytes'])
  return metrics


def is_astronomical(metrics: Mapping[str, float]) -> bool:
  """Return True if the perplexity per word is too large to be readable, and there are bits per character."""
  return 'bits_per_character' in metrics and metrics.get('perplexity_per_word', 0) > MAX_SHOWN_PERPLEXITY


def headline(metrics: Mapping[str, float]) -> str:
  """Return the metric that is comparable between tokenizers: if the word perplexity is too large, bits per
  character, and without a count of characters the perplexity per token."""
  if 'perplexity_per_word' in metrics and not is_astronomical(metrics):
    return 'perplexity_per_word'
  return 'bits_per_character' if 'bits_per_character' in metrics else 'perplexity_per_token'
