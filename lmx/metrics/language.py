"""Metrics of a language model from its summed negative log-likelihood, with the denominator in each name.

Perplexities of models with different tokens are not comparable. Those per word, and bits per
character or byte, are, because their denominators are properties of the text (Merity et al. 2018,
arXiv 1803.08240; Radford et al. 2019, section 3.1).

A model with a closed vocabulary predicts `<unk>` for an unknown word, which is not yet the text. The metrics
`..._with_spelling` also charge the bytes of such words, uniformly over `ALPHABET` byte values and an end mark, so that
they too are comparable. An unknown word of b bytes costs (b + 1) log(ALPHABET + 1) nats more than `<unk>`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from lmx.metrics.metric import Metric

PERPLEXITY_PER_TOKEN = Metric('perplexity_per_token', False)
METRICS = (
  Metric('perplexity_per_word', False, shown=False),
  PERPLEXITY_PER_TOKEN,
  Metric('bits_per_character', False, headline=',.3f'),
  Metric('bits_per_byte', False),
  Metric('perplexity_per_word_with_spelling', False, ',.2f'),
  Metric('bits_per_character_with_spelling', False),
  Metric('bits_per_byte_with_spelling', False),
  Metric('unknown_words', None, ',.0f', shown=False),
)
_OF_TEXT = ('perplexity_per_word', 'bits_per_character', 'bits_per_byte')  # each also has a form `..._with_spelling`
ALPHABET = 256  # values of a byte
MAX_SHOWN_PERPLEXITY = 1e6  # word perplexity limit: beyond it, bits per character are more informative


class Unknown(NamedTuple):
  """Unknown words of a text.

  Attributes:
    words: their number.
    bytes: their UTF-8 bytes.
  """

  words: int
  bytes: int

  @property
  def nats(self) -> float:
    """Cost of spelling them."""
    return (self.bytes + self.words) * math.log(ALPHABET + 1)


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
      metric. `unknown_words` and `unknown_bytes`: see `Unknown`.

  Returns:
    `loss` (nats a token), `perplexity_per_token`, and where known `perplexity_per_word`,
    `bits_per_character` and `bits_per_byte`; with unknown words also `unknown_words` and these
    metrics as `..._with_spelling`.
  """
  loss = nll / tokens if tokens > 0 else math.nan
  metrics = {'loss': loss, 'perplexity_per_token': perplexity(nll, tokens), **_of_text(nll, counts)}
  if counts.get('unknown_words'):
    spelled = nll + Unknown(int(counts['unknown_words']), int(counts['unknown_bytes'])).nats
    metrics['unknown_words'] = counts['unknown_words']
    metrics |= {f'{name}_with_spelling': value for name, value in _of_text(spelled, counts).items()}
  return metrics


def _of_text(nll: float, counts: Mapping[str, float]) -> dict[str, float]:
  """Return the metrics whose denominators are properties of the text, where the text has any of them."""
  units = zip(_OF_TEXT, ('words', 'characters', 'bytes'), (perplexity, bits, bits), strict=True)
  return {name: rate(nll, counts[unit]) for name, unit, rate in units if counts.get(unit)}


def describe_uncharged(metrics: Mapping[str, Any], name: str) -> str:
  """Return a remark if the metric `name` of an evaluation does not charge the spelling of unknown words, else ''."""
  if name in _OF_TEXT and metrics.get('unknown_words'):
    return f'{metrics["unknown_words"]:,} unknown words not charged'
  return '<unk> not charged' if name in _OF_TEXT and metrics.get('unknown_charged') is False else ''


def is_astronomical(metrics: Mapping[str, float]) -> bool:
  """Return True if the perplexity per word is too large to be readable, and there are bits per character."""
  return 'bits_per_character' in metrics and metrics.get('perplexity_per_word', 0) > MAX_SHOWN_PERPLEXITY


def headline(metrics: Mapping[str, float]) -> str:
  """Return the metric that is comparable between tokenizers: if the word perplexity is too large, bits per
  character, and without a count of characters the perplexity per token."""
  if 'perplexity_per_word' in metrics and not is_astronomical(metrics):
    return 'perplexity_per_word'
  return 'bits_per_character' if 'bits_per_character' in metrics else 'perplexity_per_token'
