"""Tests of intervals and tests against SciPy and sacreBLEU, on fixed inputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from lmx import statistics
from lmx.errors import InputError

RNG = np.random.default_rng(7)
A, B = RNG.normal(0, 1, 40), RNG.normal(0.3, 1, 40)
RESAMPLES = 999


def f1(counts):
  right, predicted, true = counts.sum(axis=0)
  return 2 * right / (predicted + true)


def test_t_interval_is_scipys():
  for values in (A[:2], A[:5], A):
    expected = stats.t.interval(0.95, len(values) - 1, loc=values.mean(), scale=stats.sem(values))
    for found in (
      statistics.t_interval(values),
      statistics.t_interval_of(values.mean(), values.std(ddof=1), len(values)),
    ):
      np.testing.assert_allclose(found[:2], expected, rtol=1e-12)
      assert found[2:] == (len(values), 't')
  assert statistics.t_interval([2.0, 2.0])[:2] == (2.0, 2.0)
  assert all(map(math.isnan, statistics.t_interval([2.0])[:2]))


def test_median_interval_is_of_order_statistics():
  """Of ten values the second and the ninth: a fair coin shows at most one head in 1.07% of ten throws."""
  assert statistics.median_interval(np.sort(A)[:10]) == (*np.sort(A)[[1, 8]], 10, 'sign')
  assert statistics.median_interval(range(6))[:2] == (0.0, 5.0)
  assert all(map(math.isnan, statistics.median_interval(range(5))[:2])), '6.25% of five throws are one side'


def test_bootstrap_is_scipys():
  expected = stats.bootstrap((A,), np.mean, method='percentile', n_resamples=RESAMPLES, rng=np.random.default_rng(3))
  found = statistics.bootstrap(A, seed=3, resamples=RESAMPLES)
  np.testing.assert_allclose(found[:2], expected.confidence_interval, rtol=1e-12)
  assert found[2:] == (40, 'bootstrap')
  paired = stats.bootstrap(
    (A, B),
    lambda a, b: np.mean(b) - np.mean(a),
    paired=True,
    vectorized=False,
    method='percentile',
    n_resamples=RESAMPLES,
    rng=np.random.default_rng(3),
  )
  found = statistics.difference(A, B, seed=3, resamples=RESAMPLES)
  np.testing.assert_allclose(found[:2], paired.confidence_interval, rtol=1e-12)
  assert all(map(math.isnan, statistics.bootstrap([1.0])[:2]))


def test_bootstrap_resamples_whole_rows():
  counts = np.array([[1, 1, 1], [0, 1, 1], [1, 2, 1], [0, 0, 1]] * 5)
  low, high, n, _ = statistics.bootstrap(counts, f1, resamples=RESAMPLES)
  assert 0 < low < f1(counts) < high < 1 and n == 20


def test_approximate_randomization_is_scipys_permutation_test():
  a, b = A[:12], B[:12]
  exact = stats.permutation_test(
    (a, b),
    lambda x, y: abs(np.mean(x) - np.mean(y)),
    permutation_type='samples',
    alternative='greater',
    vectorized=False,
  )
  assert statistics.approximate_randomization(a, b) == pytest.approx(exact.pvalue, abs=0.01)
  assert statistics.approximate_randomization(a, a, resamples=RESAMPLES) == 1
  for pair in ((a, b), (a > 0, b > 0)):  # the same exchanges
    assert statistics.approximate_randomization(*pair) == statistics.approximate_randomization(
      *pair, lambda x: x.mean()
    )


def test_randomization_of_counts_exchanges_whole_rows():
  a, b = np.array([[1, 1, 1]] * 9 + [[0, 1, 1]]), np.array([[0, 1, 1]] * 9 + [[1, 1, 1]])
  index = np.arange(10)
  exact = stats.permutation_test(
    (index, index + 10),
    lambda x, y: abs(f1(np.concatenate([a, b])[x]) - f1(np.concatenate([a, b])[y])),
    permutation_type='samples',
    alternative='greater',
    vectorized=False,
  )
  assert statistics.approximate_randomization(a, b, f1) == pytest.approx(exact.pvalue, abs=0.005)


def test_mcnemar_is_scipys_binomial_test():
  a, b = np.array([1] * 9 + [0] * 3 + [1] * 4), np.array([0] * 9 + [1] * 3 + [1] * 4)
  assert statistics.mcnemar(a, b) == stats.binomtest(9, 12).pvalue
  assert statistics.mcnemar(a, a) == 1


def test_welch_is_scipys():
  interval, p = statistics.welch(A[:3], B[:4])
  expected = stats.ttest_ind(B[:4], A[:3], equal_var=False)
  assert p == expected.pvalue and interval[:2] == tuple(expected.confidence_interval())
  with pytest.raises(InputError, match='1 and 4 seeds'):
    statistics.welch(A[:1], B[:4])
  assert statistics.welch([2, 2], [2, 2]) == ((0, 0, 4, 't'), 1)
  assert statistics.welch([2, 2], [3, 3]) == ((1, 1, 4, 't'), 0)


def test_corrections():
  p = [0.01, 0.04, 0.03, 0.5]
  np.testing.assert_allclose(statistics.holm(p), [0.04, 0.09, 0.09, 0.5])
  np.testing.assert_allclose(statistics.holm([0.6, 0.7]), [1, 1])
  np.testing.assert_allclose(statistics.false_discovery(p), stats.false_discovery_control(p))


@pytest.mark.parametrize('lower_is_better', [True, False])
def test_expected_best_is_the_mean_over_all_draws(lower_is_better):
  """Equals the mean of the best over all 3^k draws with replacement."""
  values = [5.0, 1.0, 3.0]
  best = min if lower_is_better else max
  draws = lambda k: np.stack(np.meshgrid(*[values] * k)).reshape(k, -1).T
  expected = [np.mean([best(draw) for draw in draws(k)]) for k in (1, 2, 3)]
  np.testing.assert_allclose(statistics.expected_best(values, lower_is_better), expected, rtol=1e-12)


def test_pairs_must_have_the_same_rows():
  for test in (statistics.paired_bootstrap, statistics.approximate_randomization, statistics.mcnemar):
    with pytest.raises(InputError, match='40 and 39 rows'):
      test(A, A[1:])
    with pytest.raises(InputError, match='got nan in row 1'):
      test([1, math.nan, 0], [1, 0, 1])


def test_paired_bootstrap_agrees_with_the_paired_t_test():
  assert statistics.paired_bootstrap(A, B) == pytest.approx(stats.ttest_rel(A, B).pvalue, abs=0.02)
  assert statistics.paired_bootstrap(A, A + 3) == 1e-4  # the least p-value of 9999 resamples
  assert statistics.paired_bootstrap(A, A, resamples=RESAMPLES) == 1


def test_approximate_randomization_is_sacrebleus(monkeypatch):
  """Same p-value of BLEU from its sufficient statistics, with sacreBLEU's random numbers."""
  from sacrebleu import significance
  from sacrebleu.metrics import BLEU

  monkeypatch.delenv('SACREBLEU_SEED', raising=False)
  rng = np.random.default_rng(0)
  words = np.array('a b c d e f g'.split())
  references = [' '.join(rng.choice(words, 12)) for _ in range(40)]
  spoil = lambda share: [' '.join(w if rng.random() > share else 'x' for w in text.split()) for text in references]
  systems = [('a', spoil(0.30)), ('b', spoil(0.23))]
  metric = BLEU(references=[references])
  expected = significance.PairedTest(systems, {'BLEU': metric}, None, test_type='ar', n_samples=300)()[1]['BLEU'][1]
  a, b = (np.asarray(metric._extract_corpus_statistics(texts, None)) for _, texts in systems)
  bleu = lambda rows: metric._compute_score_from_stats(rows.sum(axis=0).tolist()).score
  assert 0.005 < expected.p_value < 0.9
  assert statistics.approximate_randomization(a, b, bleu, seed=12345, resamples=300) == pytest.approx(expected.p_value)
