"""ELMo's mix of layers against its equation."""

from __future__ import annotations

import jax
import numpy as np

from lmx.layers import scalar_mix

RNG = np.random.default_rng(0)
LAYERS = RNG.normal(2.0, 3.0, (3, 2, 4, 5)).astype(np.float32)
VALID = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool)
PARAMS = {'weights': np.array([0.3, -1.0, 0.7], np.float32), 'gamma': np.float32(1.7)}
mix = jax.jit(scalar_mix.mix, static_argnames='normalise')


def shares():
  exp = np.exp(PARAMS['weights'].astype(np.float64))
  return exp / exp.sum()


def test_equation_1():
  expected = 1.7 * np.einsum('l,lbtd->btd', shares(), LAYERS)
  np.testing.assert_allclose(mix(PARAMS, list(LAYERS), VALID), expected, rtol=1e-5, atol=1e-5)


def test_initial_mix_weights_are_equal():
  np.testing.assert_allclose(mix(scalar_mix.init(3), list(LAYERS)), LAYERS.mean(0), rtol=1e-5, atol=1e-5)


def test_without_weights_the_last_layer_is_read():
  found = mix({**scalar_mix.init(0), 'gamma': np.float32(1.7)}, list(LAYERS))
  np.testing.assert_allclose(found, 1.7 * LAYERS[-1], rtol=1e-6)


def test_normalisation_counts_valid_positions_of_the_row_only():
  expected = np.zeros(LAYERS.shape[1:])
  for b, n in enumerate((4, 2)):
    for s, layer in zip(shares(), LAYERS[:, b].astype(np.float64), strict=True):
      expected[b] += 1.7 * s * (layer - layer[:n].mean()) / layer[:n].std()
  found = mix(PARAMS, list(LAYERS), VALID, normalise=True)
  np.testing.assert_allclose(np.asarray(found)[VALID], expected[VALID], rtol=1e-5, atol=1e-5)
