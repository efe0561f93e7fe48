"""Relative effective context length beside the paper's equations written out, and where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from lmx.errors import InputError
from lmx.metrics import context_length
from tests.reference import context as reference

LENGTHS = [32, 64, 96, 128, 160]


@pytest.mark.parametrize('share', [0.1, 0.5, 1.0])
@pytest.mark.parametrize('seed', range(5))
def test_metric_equals_its_equations(share, seed):
  rng = np.random.default_rng(seed)
  fall = np.cumsum(rng.uniform(-0.01, 0.06, (3, len(LENGTHS), 1)), axis=1)
  losses = rng.gamma(2.0, 2.0, 37) + rng.normal(0, 0.1, (3, len(LENGTHS), 37)) - fall
  found = context_length.gains(losses, share)
  expected = np.asarray(
    [[reference.gains(losses, i, c, c + 1, share) for c in range(len(LENGTHS) - 1)] for i in range(3)]
  )
  np.testing.assert_allclose(found.relative_GL, expected[..., 0], rtol=1e-9, atol=1e-12)
  np.testing.assert_allclose(found.perplexity_GL, expected[..., 1], rtol=1e-9, atol=1e-9)
  threshold = float(np.quantile(found.relative_GL, 0.4))  # some models end early, others late
  for i, (length, at_least) in enumerate(context_length.recl(losses, LENGTHS, share, threshold)):
    assert length == reference.recl(losses, i, LENGTHS, share, threshold)
    assert at_least == (length == LENGTHS[-1])


def constant(*rows):
  """Losses of models that are equal at all of 10 tokens."""
  return np.asarray(rows, float)[..., None] * np.ones(10)


def test_gain_counts_only_below_the_best_of_the_group():
  first = [5.0, 4.9, 4.8, 4.8, 4.8]  # gains up to 96
  second = [9.0, 8.0, 7.0, 6.0, 5.0]  # gains more by itself, but never reaches what the first knows already
  losses = constant(first, second)
  assert context_length.recl(losses, LENGTHS, 1.0) == [(96, False), (32, False)]
  np.testing.assert_allclose(
    context_length.gains(losses, 1.0).relative_GL[0], [1 - np.exp(-0.1)] * 2 + [0, 0], atol=1e-12
  )
  np.testing.assert_array_equal(context_length.gains(losses, 1.0).relative_GL[1], 0)
  assert context_length.recl(constant(second), LENGTHS, 1.0) == [
    (160, True)
  ]  # alone in its group it is its own baseline


def test_harmful_longer_context_counts_no_loss():
  """A model whose loss rises is taken at the baseline: its gain is 0 and not negative."""
  gains = context_length.gains(constant([5.0, 6.0], [5.5, 5.2]), 1.0)
  np.testing.assert_array_equal(gains.relative_GL, [[0], [0]])


def test_hard_tokens_may_use_longer_contexts():
  easy, hard = [1.0, 1.0, 1.0, 1.0, 1.0], [8.0, 7.5, 7.0, 6.5, 6.5]
  losses = np.asarray([easy] * 19 + [hard]).T[None]
  assert context_length.recl(losses, LENGTHS, 0.05) == [(128, False)]
  assert context_length.recl(losses, LENGTHS, 1.0, threshold=0.05) == [(32, False)]


def test_threshold_itself_is_a_gain():
  losses = constant([5.0, 4.9, 4.9])
  gain = float(context_length.gains(losses, 1.0).relative_GL[0, 0])
  assert context_length.recl(losses, [1, 2, 3], 1.0, threshold=gain) == [(2, False)]
  assert context_length.recl(losses, [1, 2, 3], 1.0, threshold=np.nextafter(gain, 1)) == [(1, False)]


@pytest.mark.parametrize(
  ('losses', 'lengths', 'share', 'message'),
  [
    (np.zeros((2, 3)), [1, 2, 3], 1.0, r'losses: got shape \(2, 3\)'),
    (np.zeros((2, 1, 5)), [1], 1.0, r'losses: got shape \(2, 1, 5\)'),
    (np.zeros((2, 2, 0)), [1, 2], 1.0, r'losses: got shape \(2, 2, 0\)'),
    (np.full((1, 2, 4), np.nan), [1, 2], 1.0, 'losses: got NaN'),
    (np.zeros((1, 3, 4)), [1, 2, 4], 1.0, 'equal steps'),
    (np.zeros((1, 3, 4)), [3, 2, 1], 1.0, 'equal steps'),
    (np.zeros((1, 3, 4)), [1, 2], 1.0, 'equal steps'),
    (np.zeros((1, 2, 4)), [1, 2], 0.0, 'share of the hardest'),
    (np.zeros((1, 2, 4)), [1, 2], 1.5, 'share of the hardest'),
  ],
)
def test_invalid_input_is_rejected(losses, lengths, share, message):
  with pytest.raises(InputError, match=message):
    context_length.recl(losses, lengths, share)
