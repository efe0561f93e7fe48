"""Exact match and F1 of answers as in SQuAD's evaluation (Rajpurkar et al. 2016, section 6.1; 2018).

Normalisation lowers the case and removes punctuation, the articles a, an and the, and extra white space. An answer's
score is the maximum over the reference answers; an unanswerable question has '' as its only one. With no-answer
scores, the threshold above which '' is predicted is the one that is best on the questions themselves, as in
the official script. A reference answer that normalises to '' counts as none, as in version 2.0 of the
scripts; version 1.1 gives it an F1 of 0 for any prediction. Where the reference answers are written without spaces
between words, F1 counts characters, as MLQA's evaluation does (lmx/metrics/writing_systems.py).
"""

from __future__ import annotations

import collections
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from lmx.metrics import writing_systems
from lmx.metrics.metric import Metric

METRICS = (  # in percent
  *(Metric(name, True, ',.2f') for name in ('f1', 'exact_match', 'best_f1')),
  Metric('best_f1_threshold', None, ',.2f'),
  *(Metric(name, True, ',.2f') for name in ('answered_f1', 'unanswered_f1')),
  *(Metric(f'{kind}_exact_match', True, ',.2f', shown=False) for kind in ('answered', 'unanswered', 'best')),
  Metric('best_exact_threshold', None, shown=False),
)

_ARTICLES = re.compile(r'\b(a|an|the)\b', re.UNICODE)
_PUNCTUATION = str.maketrans('', '', string.punctuation)


def normalise(text: str) -> str:
  """Return the normalised form in which answers are compared."""
  return ' '.join(_ARTICLES.sub(' ', text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, truth: str) -> float:
  """Return 1 if the two normalise to the same text, else 0."""
  return float(normalise(prediction) == normalise(truth))


def f1(prediction: str, truth: str) -> float:
  """Return the F1 of the two answers' words; if one is '', 1 if both are."""
  words, truth_words = normalise(prediction).split(), normalise(truth).split()
  if not words or not truth_words:
    return float(words == truth_words)
  same = sum((collections.Counter(words) & collections.Counter(truth_words)).values())
  return 2 * same / (len(words) + len(truth_words)) if same else 0.0


def _best(prediction: str, truths: Sequence[str], measure: Any) -> float:
  references = [truth for truth in truths if normalise(truth)] or ['']
  return max(measure(prediction, truth) for truth in references)


def compute_metrics(predictions: Mapping[str, str], truths: Mapping[str, Sequence[str]]) -> dict[str, float]:
  """Return the metrics over all questions, in percent.

  Args:
    predictions: predicted answer of each question, '' for none.
    truths: reference answers of each question, () for none.

  Returns:
    {'exact_match', 'f1', 'questions'}; if some questions are unanswerable, also for answerable and unanswerable
      questions separately.
  """
  scores = {'exact_match': score_each(predictions, truths, exact_match), 'f1': score_each(predictions, truths, f1)}
  kinds = {'': list(truths)}
  if not all(truths.values()):
    kinds |= {'answered_': [q for q in truths if truths[q]], 'unanswered_': [q for q in truths if not truths[q]]}
  metrics: dict[str, float] = {}
  for kind, some in kinds.items():
    if some:
      metrics |= {f'{kind}{name}': 100 * sum(score[q] for q in some) / len(some) for name, score in scores.items()}
      metrics[f'{kind}questions'] = len(some)
  return metrics


def counts_characters(truths: Mapping[str, Sequence[str]]) -> bool:
  """Return True if F1 counts characters instead of words."""
  answers = [answer for some in truths.values() for answer in some]
  found = writing_systems.separate(' '.join(answers)).split()  # short answers have few spaces in every language
  return bool(answers) and 2 * sum(map(writing_systems.is_character, found)) > len(found)


def score_each(predictions: Mapping[str, str], truths: Mapping[str, Sequence[str]], measure: Any) -> dict[str, float]:
  """Return the best score of each prediction over its reference answers."""
  if counts_characters(truths):
    predictions = {q: writing_systems.separate(text) for q, text in predictions.items()}
    truths = {q: [writing_systems.separate(text) for text in some] for q, some in truths.items()}
  return {q: _best(predictions[q], truths[q], measure) for q in truths}


def compute_thresholds(
  predictions: Mapping[str, str], truths: Mapping[str, Sequence[str]], null_odds: Mapping[str, float]
) -> dict[str, float]:
  """Return the best metrics that a threshold can give, as in evaluate-v2.0.py.

  Args:
    predictions: the best non-empty answer of each question.
    truths: reference answers of each question, () for none.
    null_odds: no-answer score relative to that of the best; above the threshold '' is predicted.

  Returns:
    {'best_exact_match', 'best_exact_threshold', 'best_f1', 'best_f1_threshold'}.
  """
  metrics: dict[str, float] = {}
  for name, key, measure in (
    ('best_exact_match', 'best_exact_threshold', exact_match),
    ('best_f1', 'best_f1_threshold', f1),
  ):
    scores = score_each(predictions, truths, measure)
    current = best = float(sum(not truths[q] for q in truths))  # '' is predicted for all
    threshold = 0.0
    for q in sorted(truths, key=lambda q: null_odds[q]):
      current += scores[q] if truths[q] else -1.0 if predictions[q] else 0.0
      if current > best:
        best, threshold = current, null_odds[q]
    metrics |= {name: 100 * best / len(truths), key: threshold}
  return metrics
