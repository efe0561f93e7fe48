"""Totals over scored texts, with each metric's denominator, and notes on what is comparable."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from lmx.metrics import language, writing_systems
from lmx.scoring.scorer import Scorer
from lmx.scoring.sentences import Score

_PSEUDO = ('pll', 'pll_word_l2r', 'permutation_pll')
_COUNTS = ('texts', 'tokens', 'predicted', 'words', 'characters', 'bytes', 'unknown_words', 'unknown_bytes')
_SAMPLE = 1000  # texts by which the writing system is recognised


@dataclasses.dataclass
class Total:
  """Sums over texts.

  Attributes:
    counts: number of texts, tokens, predicted tokens, words, characters, bytes, unknown words and their bytes.
    nll: minus the sum of the log-probabilities, in nats.
    changed: number of texts that the tokenizer changes.
  """

  counts: dict[str, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(_COUNTS, 0))
  nll: float = 0.0
  changed: int = 0
  sample: list[str] = dataclasses.field(default_factory=list)

  def add(self, score: Score) -> None:
    """Add a text that was scored with `detail`."""
    assert score.unknown is not None
    text = score.text
    each = (1, len(score.tokens), score.predicted, len(text.split()), len(text), len(text.encode()), *score.unknown)
    for name, count in zip(_COUNTS, each, strict=True):
      self.counts[name] += count
    self.nll -= score.sum
    self.changed += score.is_changed
    if len(self.sample) < _SAMPLE:
      self.sample.append(text)

  def report(self, scorer: Scorer) -> dict[str, Any]:
    """Return the sums, the metrics that they allow, and `notes`."""
    counts, predicted = dict(self.counts), self.counts['predicted']
    found: dict[str, Any] = {'model': scorer.name, 'method': scorer.method, 'protocol': scorer.protocol, **counts}
    found |= {'sum': 0 - self.nll, 'sum_per_token': (0 - self.nll) / max(1, predicted)}
    if not scorer.is_probability:
      if scorer.method in _PSEUDO:
        found['pseudo_perplexity_per_token'] = language.perplexity(self.nll, predicted)
      return found | {'notes': ['no bits per byte, because exp of the sum is no probability']}
    whole = predicted == counts['tokens']
    if writing_systems.is_unspaced(self.sample):
      del counts['words']
    metrics = language.report(self.nll, predicted, counts if whole else {})
    if whole:
      metrics['nats_per_byte'] = self.nll / counts['bytes']
      if spelled := metrics.get('bits_per_byte_with_spelling'):
        metrics['nats_per_byte_with_spelling'] = spelled * math.log(2.0)
    return found | metrics | {'notes': list(self._notes(scorer, metrics))}

  def _notes(self, scorer: Scorer, metrics: Mapping[str, float]) -> Iterable[str]:
    if 'bits_per_byte' not in metrics:
      yield 'no perplexity per word and no bits per byte, because the first token of each text is not predicted'
    if self.counts['unknown_words']:
      yield (
        f'{self.counts["unknown_words"]:,} unknown words: metrics with_spelling charge their bytes, uniformly over '
        f'{language.ALPHABET} values and an end mark; the others are not comparable with other vocabularies'
      )
    if self.changed:
      yield (
        f'the tokenizer changes {self.changed:,} texts, such as by lower-casing, so bits per byte are not comparable '
        'with models of the unchanged text'
      )
    if 'perplexity_per_word' in metrics and scorer.tokenizer.kind == 'words':
      yield (
        f'perplexity per word counts {self.counts["words"]:,} words between white space; lmx evaluate and lmx ngrams '
        'count the tokens of a word vocabulary'
      )


def line(report: dict[str, Any]) -> str:
  """Return a report's line for the user."""
  parts = [f'{report["texts"]:,} texts, {report["predicted"]:,} tokens: sum {report["sum"]:,.2f} nats']
  spelled = '_with_spelling' if 'bits_per_byte_with_spelling' in report else ''
  for name, caption, form in (
    ('pseudo_perplexity_per_token', 'pseudo-perplexity per token', ',.2f'),
    ('perplexity_per_token', 'perplexity per token', ',.2f'),
    (f'perplexity_per_word{spelled}', 'perplexity per word', ',.2f'),
    (f'bits_per_byte{spelled}', 'bits per byte', '.4f'),
  ):
    if name in report:
      parts.append(f'{caption} {report[name]:{form}}')
  return ', '.join(parts)
