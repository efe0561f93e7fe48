"""Counts of arguments against the rules of srl-eval.pl on random labels, and examples worked by hand."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.metrics import roles
from tests.reference import srl_eval

ROLES = ('A0', 'A1', 'C-A0', 'C-A1', 'C-V', 'R-A0', 'V')
NAMES = ['O', *(f'{side}-{role}' for role in ROLES for side in 'BI')]


@jax.jit
def counts(predicted_BT, labels_BT, valid_BT):
  return roles.count_arguments(roles.scheme(NAMES), predicted_BT, labels_BT, valid_BT)


def by_type(pairs, T=12):
  table = lambda i: np.array([[NAMES.index(x) for x in p[i]] + [3] * (T - len(p[i])) for p in pairs], np.int32)
  valid = np.arange(T) < np.array([len(found) for found, _ in pairs])[:, None]
  return counts(table(0), table(1), valid)


def count(pairs):
  return tuple(int(x) for x in by_type(pairs).sum(axis=1))


def labels(text):
  """'A0 A0+ V -' are B-A0, I-A0, B-V, O."""
  return ['O' if x == '-' else f'I-{x[:-1]}' if x.endswith('+') else f'B-{x}' for x in text.split()]


@pytest.mark.parametrize(
  ('predicted', 'true', 'expected'),
  [
    ('A0 A0+ V A1', 'A0 A0+ V A1', (2, 2, 2)),  # V does not count
    ('A0 - V A1', 'A0 A0+ V A1', (1, 2, 2)),  # another end
    ('A1 A1+ V A1', 'A0 A0+ V A1', (1, 2, 2)),  # another role
    ('A1 V C-A1', 'A1 V C-A1', (1, 1, 1)),  # two spans of one argument
    ('A1 V A1', 'A1 V C-A1', (0, 2, 1)),  # all of its spans, and as one argument
    ('A1 V -', 'A1 V C-A1', (0, 1, 1)),
    ('A1 V C-A1', 'A1 V -', (0, 1, 1)),
    ('- V C-A1', '- V A1', (1, 1, 1)),  # nothing to continue: an argument of its own
    ('A0 V C-A1', 'A0 V A1', (2, 2, 2)),
    ('A1 A1 V C-A1', 'A1 A1 V C-A1', (2, 2, 2)),  # the last one is continued
    ('A1 A1 V C-A1', 'A1 - V C-A1', (0, 2, 1)),
    ('A1 V C-A1 C-A1', 'A1 V C-A1 C-A1+', (0, 1, 1)),  # other spans of the same words
    ('A1 C-A1 A1 V', 'A1 - C-A1 V', (0, 2, 1)),  # as many spans, and others
    ('V - C-V A1', 'V A1 C-V -', (0, 1, 1)),  # nor does C-V
    ('R-A0 A0 V -', 'A0 R-A0 V -', (0, 2, 2)),  # a role of its own
    ('- - - -', '- - V -', (0, 0, 0)),
  ],
)
def test_span_f1_of_known_examples(predicted, true, expected):
  pair = labels(predicted), labels(true)
  assert count([pair]) == expected
  assert srl_eval.counts([tuple(map(srl_eval.brackets, pair))]) == expected


def test_random_labels_are_counted_as_srl_eval_counts_them():
  rng = np.random.default_rng(0)
  pairs = []
  for _ in range(400):
    n = int(rng.integers(1, 13))
    gold = [str(rng.choice(NAMES)) for _ in range(n)]
    for t in range(1, n):
      if gold[t][0] == 'I' or rng.random() < 0.3:  # mostly spans of several words
        gold[t] = 'O' if gold[t - 1] == 'O' else f'I-{gold[t - 1][2:]}'
    pairs.append(([g if rng.random() < 0.85 else str(rng.choice(NAMES)) for g in gold], gold))
  found = count(pairs)
  assert found == srl_eval.counts([tuple(map(srl_eval.brackets, pair)) for pair in pairs]) and min(found) > 200
  for kind, numbers in zip(roles.scheme(NAMES).names, np.asarray(by_type(pairs)).T, strict=True):
    if kind:
      assert tuple(numbers) == srl_eval.counts([tuple(map(srl_eval.brackets, pair)) for pair in pairs], kind)


def test_non_role_labels_are_rejected():
  with pytest.raises(InputError, match='expected O, B-type and I-type'):
    roles.scheme(['NOUN', 'VERB'])
