"""Sampled softmax: what is drawn, how often, and that it agrees with the full softmax in expectation."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.layers import softmax
from lmx.models import elmo

V, S, D, DRAWS = 40, 12, 6, 4000


def keys():
  return jax.random.split(jax.random.key(0), DRAWS)


def setting():
  normal = np.random.default_rng(1).standard_normal
  x_BTD = 0.7 * normal((2, 5, D), np.float32)
  return x_BTD, normal((V, D), np.float32), normal(V, dtype=np.float32), np.arange(10).reshape(2, 5) ** 2 % V


@functools.cache
def draws() -> np.ndarray:
  return np.asarray(jax.jit(lambda: jax.vmap(lambda k: elmo.draw(k, V, S))(keys()))())


def within(values, expected, errors=5.0):
  """Is the mean over the first axis the expected one, within so many standard errors?"""
  error = values.std(0) / np.sqrt(len(values))
  np.testing.assert_array_less(np.abs(values.mean(0) - expected), errors * error + 1e-6)


def test_classes_are_distinct_with_expected_frequency():
  """Against the procedure of TensorFlow itself: draw from the log-uniform distribution until S are found."""
  found = draws()
  assert all(len(set(row)) == S for row in found[:200])
  rng = np.random.default_rng(0)
  p_V = np.log1p(1 / (np.arange(V) + 1)) / np.log(V + 1)
  assert abs(p_V.sum() - 1) < 1e-12
  seen = np.zeros((1500, V))
  for row, classes in zip(seen, rng.choice(V, (1500, 400), p=p_V), strict=True):
    row[list(dict.fromkeys(classes))[:S]] = 1
  assert (seen.sum(1) == S).all()
  ours = np.zeros((DRAWS, V))
  np.put_along_axis(ours, found, 1, axis=1)
  error = np.sqrt(seen.var(0) / len(seen) + ours.var(0) / len(ours))
  np.testing.assert_array_less(np.abs(seen.mean(0) - ours.mean(0)), 5 * error + 1e-6)


def test_expected_counts_are_the_frequencies():
  ours = np.zeros((DRAWS, V))
  np.put_along_axis(ours, draws(), 1, axis=1)
  expected = np.exp(np.asarray(jax.jit(elmo.log_expected, static_argnums=(1, 2))(np.arange(V), V, S), np.float64))
  assert abs(expected.sum() - S) < 1e-3
  np.testing.assert_allclose(ours.mean(0), expected, atol=0.025)  # 1 - (1 - p)^n is an approximation of its own


def test_without_the_targets_correction_the_losses_agree_in_expectation():
  """exp(sampled loss) has the expectation exp(full loss): the partition function is estimated without bias."""
  x, table, bias, targets = setting()

  @jax.jit
  def run(x, table, bias):
    loss = functools.partial(elmo.sampled_loss, x, table, bias, targets, size=V, correct_target=False)
    sampled = [jax.vmap(lambda k, samples=samples: loss(key=k, samples=samples))(keys()) for samples in (S, 3 * S)]
    return softmax.tied_nll(x, table, targets, bias), sampled

  full, sampled = jax.tree.map(lambda x: np.exp(np.asarray(x, np.float64)), run(x, 0.3 * table, bias))
  gaps = []
  for found, tolerance in zip(sampled, (0.04, 0.02), strict=True):
    np.testing.assert_allclose(found.mean(0), full, rtol=tolerance)
    gaps.append(np.log(full) - np.log(found).mean(0))
  # The losses themselves are low by what Jensen's inequality says, the less the more classes are drawn.
  assert (gaps[0] > 0).all() and (gaps[1] > 0).all() and (gaps[1] < 0.2 * gaps[0]).all() and gaps[1].max() < 0.05


def test_at_the_true_distribution_the_expected_gradient_vanishes():
  """The criterion of sampled softmax: log-probabilities as scores are where its expectation has a stationary point."""
  scores_V = np.random.default_rng(3).standard_normal(V) - 0.05 * np.arange(V)
  log_p_V = np.float32(scores_V - np.log(np.exp(scores_V).sum()))

  def gradient(key, correct):
    target_key, draw_key = jax.random.split(key)
    target = jax.random.categorical(target_key, jnp.asarray(log_p_V))[None, None]
    loss = lambda bias: elmo.sampled_loss(
      jnp.zeros((1, 1, 1)), jnp.zeros((V, 1)), bias, target, draw_key, S, size=V, correct_target=correct
    )[0, 0]
    return jax.grad(loss)(log_p_V)

  each = jax.vmap(lambda k: gradient(k, True))
  right = np.asarray(jax.jit(lambda key: each(jax.random.split(key, 20_000)))(jax.random.key(4)))
  assert np.abs(right.mean(0)).max() < 0.012
  within(right[:, :4], 0.0, errors=6)


def test_sampled_target_counts_once():
  x, table, bias, _ = setting()

  @jax.jit
  def run(x, table, bias, key):
    ids = elmo.draw(key, V, S)
    loss = elmo.sampled_loss(x, table, bias, jnp.broadcast_to(ids[0], (2, 5)), key, S, size=V)
    return ids, elmo.log_expected(ids, V, S), loss

  ids, log_expected, found = jax.device_get(run(x, table, bias, jax.random.key(5)))
  scores = np.einsum('btd,sd->bts', x, table[ids]) + bias[ids] - log_expected
  expected = np.log(np.exp(scores).sum(-1)) - scores[..., 0]
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(('V', 'samples'), [(793_471, 8192), (20_000, 8192), (100, 99)])
def test_splits_of_real_sizes_are_found(V, samples):
  n = elmo.expected_draws(V, samples)
  p_V = np.log1p(1 / (np.arange(V) + 1)) / np.log(V + 1)
  assert n >= samples and abs(-np.expm1(n * np.log1p(-p_V)).sum() - samples) < 1e-3
