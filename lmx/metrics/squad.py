"""Exact match and F1 of answers as SQuAD's evaluation counts them (Rajpurkar et al. 2016, section 6.1; 2018).

Text is lowered and loses punctuation, the articles a, an and the, and white space beyond single spaces. An answer's
figure is the best over the answers that are right; a question without an answer has '' as its only one. With scores of
there being no answer, the threshold above which '' is said is the one that is best on the questions themselves, as in
the official script. A right answer of nothing but articles and punctuation counts as none, as in version 2.0 of the
scripts; version 1.1 gives it an F1 of 0 whatever is said.
"""

from __future__ import annotations

import collections
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

_ARTICLES = re.compile(r'\b(a|an|the)\b', re.UNICODE)
_PUNCTUATION = str.maketrans('', '', string.punctuation)


def normal(text: str) -> str:
  """The form in which answers are compared."""
  return ' '.join(_ARTICLES.sub(' ', text.lower().translate(_PUNCTUATION)).split())


def exact(said: str, truth: str) -> float:
  """1 if the two are the same, else 0."""
  return float(normal(said) == normal(truth))


def f1(said: str, truth: str) -> float:
  """F1 of the words that the two have in common; of '' 1 if both are empty."""
  words, wanted = normal(said).split(), normal(truth).split()
  if not words or not wanted:
    return float(words == wanted)
  same = sum((collections.Counter(words) & collections.Counter(wanted)).values())
  return 2 * same / (len(words) + len(wanted)) if same else 0.0


def _best(said: str, truths: Sequence[str], measure: Any) -> float:
  real = [truth for truth in truths if normal(truth)] or ['']
  return max(measure(said, truth) for truth in real)


def figures(said: Mapping[str, str], truths: Mapping[str, Sequence[str]]) -> dict[str, float]:
  """Figures over all questions, in percent.

  Args:
    said: answer of each question, '' for none.
    truths: right answers of each question, () for none.

  Returns:
    {'exact_match', 'f1', 'questions'}; where some questions have no answer also those of the answered and of the
    unanswered ones.
  """
  scores = {'exact_match': _scores(said, truths, exact), 'f1': _scores(said, truths, f1)}
  kinds = {'': list(truths)}
  if not all(truths.values()):
    kinds |= {'answered_': [q for q in truths if truths[q]], 'unanswered_': [q for q in truths if not truths[q]]}
  found: dict[str, float] = {}
  for kind, some in kinds.items():
    if some:
      found |= {f'{kind}{name}': 100 * sum(of[q] for q in some) / len(some) for name, of in scores.items()}
      found[f'{kind}questions'] = len(some)
  return found


def _scores(said: Mapping[str, str], truths: Mapping[str, Sequence[str]], measure: Any) -> dict[str, float]:
  return {q: _best(said[q], truths[q], measure) for q in truths}


def thresholds(
  said: Mapping[str, str], truths: Mapping[str, Sequence[str]], null_odds: Mapping[str, float]
) -> dict[str, float]:
  """The best figures that a threshold can give, as evaluate-v2.0.py finds them.

  Args:
    said: the best answer of each question that is one.
    truths: right answers of each question, () for none.
    null_odds: score of there being no answer over that of the best; above the threshold '' is said.

  Returns:
    {'best_exact_match', 'best_exact_threshold', 'best_f1', 'best_f1_threshold'}.
  """
  found: dict[str, float] = {}
  for name, key, measure in (('best_exact_match', 'best_exact_threshold', exact), ('best_f1', 'best_f1_threshold', f1)):
    scores = _scores(said, truths, measure)
    current = best = float(sum(not truths[q] for q in truths))  # '' is said of all
    threshold = 0.0
    for q in sorted(truths, key=lambda q: null_odds[q]):
      current += scores[q] if truths[q] else -1.0 if said[q] else 0.0
      if current > best:
        best, threshold = current, null_odds[q]
    found |= {name: 100 * best / len(truths), key: threshold}
  return found
