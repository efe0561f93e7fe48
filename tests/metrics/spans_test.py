"""Span counts against conlleval's rules on random labels, and examples worked by hand."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.metrics import spans
from tests.reference import conlleval

NAMES = ['B-loc', 'B-per', 'I-loc', 'I-per', 'O']


@jax.jit
def counts(predicted_BT, labels_BT, valid_BT):
  return spans.count_spans(spans.scheme(NAMES), predicted_BT, labels_BT, valid_BT)


def by_type(pairs):
  T = 8
  table = lambda i: np.array([[NAMES.index(x) for x in p[i]] + [1] * (T - len(p[i])) for p in pairs], np.int32)
  valid = np.arange(T) < np.array([len(found) for found, _ in pairs])[:, None]
  return counts(table(0), table(1), valid)


def count(pairs):
  return tuple(int(x) for x in by_type(pairs).sum(axis=1))


def test_span_f1_of_known_examples():
  O, B, I, L = 'O', 'B-per', 'I-per', 'I-loc'
  assert count([([B, I, O, B], [B, I, O, B])]) == (2, 2, 2)
  assert count([([B, I, I], [B, I, O])]) == (0, 1, 1)  # another end
  assert count([([B, B], [B, I])]) == (0, 2, 1)  # a B begins anew
  assert count([([O, I, I], [O, B, I])]) == (1, 1, 1)  # an I after O begins a span
  assert count([([B, L], [B, I])]) == (0, 2, 1)  # another type begins a span
  assert count([([O, O], [B, I])]) == (0, 0, 1)


def test_random_labels_are_counted_as_conlleval_counts_them():
  rng = np.random.default_rng(0)
  pairs = []
  for _ in range(300):
    n = int(rng.integers(1, 9))
    gold = list(rng.choice(NAMES, n))
    pairs.append(([g if rng.random() < 0.7 else str(rng.choice(NAMES)) for g in gold], gold))
  found = count(pairs)
  assert found == conlleval.counts(pairs) and min(found) > 100
  for kind, numbers in zip(spans.scheme(NAMES).names, np.asarray(by_type(pairs)).T, strict=True):
    if kind:
      assert tuple(numbers) == conlleval.counts(pairs, kind)


def test_scores_in_percent():
  assert spans.compute_scores(2, 4, 8) == {
    'span_precision': 50.0,
    'span_recall': 25.0,
    'span_f1': pytest.approx(100 / 3),
  }
  assert spans.compute_scores(0, 0, 5)['span_f1'] == 0.0


def test_i_labels_follow_only_their_own_type():
  moves, starts = spans.allowed_transitions(NAMES)
  at = NAMES.index
  assert moves[at('B-loc'), at('I-loc')] and moves[at('I-loc'), at('I-loc')] and moves[at('O'), at('B-per')]
  assert not moves[at('B-loc'), at('I-per')] and not moves[at('O'), at('I-loc')]
  assert list(starts) == [True, True, False, False, True]


def test_non_span_labels_are_rejected():
  assert not spans.is_scheme(['NOUN', 'O']) and not spans.is_scheme(['B-x', 'I-x'])
  with pytest.raises(InputError, match='NOUN'):
    spans.scheme(['NOUN', 'O'])
