"""The continuous cache against its definition, whatever parts the text comes in."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from lmx.config import schema
from lmx.errors import InputError
from lmx.metrics import continuous_cache
from tests.reference import cache as reference

B, T, D, V = 2, 40, 6, 9


def case():
  rng = np.random.default_rng(0)
  p_BTV = rng.dirichlet(np.ones(V), (B, T))
  return rng.standard_normal((B, T, D)), rng.integers(0, V, (B, T)), p_BTV


def mixed(cfg, parts):
  """Negative log-likelihoods of the case, taken in by parts of these lengths."""
  h_BTD, words_BT, p_BTV = case()
  nll_BT = -np.log(np.take_along_axis(p_BTV, words_BT[..., None], -1)[..., 0])
  state, found = continuous_cache.init(cfg, B, D), []
  mix = jax.jit(functools.partial(continuous_cache.mix, cfg))
  for low, high in zip(np.cumsum([0, *parts[:-1]]), np.cumsum(parts), strict=True):
    at = (slice(None), slice(low, high))
    got, state = mix(state, h_BTD[at].astype(np.float32), words_BT[at], nll_BT[at].astype(np.float32))
    found.append(got)
  return np.concatenate(found, 1)


@pytest.mark.parametrize('window', [1, 7, 100])
@pytest.mark.parametrize('parts', [(40,), (1,) * 40, (13, 2, 25)])
def test_equals_the_definition(window, parts):
  cfg = continuous_cache.Config(window, 0.3, 0.7)
  h_BTD, words_BT, p_BTV = case()
  found = mixed(cfg, parts)
  for b in range(B):
    mixture = reference.probabilities(h_BTD[b], words_BT[b], p_BTV[b], window, 0.3, 0.7)
    np.testing.assert_allclose(mixture.sum(-1), 1, rtol=1e-12)
    np.testing.assert_allclose(found[b], -np.log(mixture[np.arange(T), words_BT[b]]), rtol=2e-5, atol=1e-5)


def test_without_weight_nothing_changes_and_with_theta_0_words_are_counted():
  _, words_BT, p_BTV = case()
  plain = -np.log(np.take_along_axis(p_BTV, words_BT[..., None], -1)[..., 0])
  np.testing.assert_allclose(mixed(continuous_cache.Config(5, 0.0, 1.0), (20, 20)), plain, rtol=1e-5)
  found = mixed(continuous_cache.Config(1000, 0.5, 0.0), (20, 20))
  counts = (words_BT[:, :-1] == words_BT[:, -1:]).mean(1)  # share of the last word among those before it
  np.testing.assert_allclose(np.exp(-found[:, -1]), 0.5 * np.exp(-plain[:, -1]) + 0.5 * counts, rtol=1e-5)


def test_rows_of_a_batch_do_not_attend_to_each_other():
  cfg = continuous_cache.Config(5, 0.3, 1.0)
  h_BTD, words_BT, p_BTV = case()
  nll_BT = np.ones((B, T), np.float32)
  mix = jax.jit(lambda rows: continuous_cache.mix(cfg, continuous_cache.init(cfg, len(rows[0]), D), *rows)[0])
  both = mix((h_BTD, words_BT, nll_BT))
  alone = mix((h_BTD[:1], words_BT[:1], nll_BT[:1]))
  np.testing.assert_allclose(both[:1], alone, rtol=1e-6)


@pytest.mark.parametrize(
  'values, message',
  [
    ((500, 0.1), r'evaluation.cache: got \(500, 0.1\)'),
    ((2.5, 0.1, 1.0), r'evaluation.cache: got \(2.5, 0.1, 1.0\)'),
    ((0, 0.1, 1.0), 'at least 1'),
    ((5, 1.0, 1.0), 'below 1'),
  ],
)
def test_invalid_settings_are_rejected(values, message):
  with pytest.raises(InputError, match=message):
    schema.Evaluation(cache=values)
  assert continuous_cache.config(()) is None and continuous_cache.config((5.0, 0.1, 1.0)) == (5, 0.1, 1.0)
