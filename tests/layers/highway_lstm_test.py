"""The highway LSTM against the equations in NumPy, with rows of several lengths, dropout, and its initial values."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lmx.layers import highway_lstm
from tests import drawn
from tests.reference import highway_lstm as reference

E, D, LENGTHS = 5, 4, (6, 1, 4)
VALID_BT = np.arange(6) < np.asarray(LENGTHS)[:, None]
X_BTE = np.random.default_rng(3).standard_normal((3, 6, E)).astype(np.float32)
PARAMS = drawn.params(lambda key: highway_lstm.init(key, E, D), std=0.7)


def run(rate=0.0, key=None, dtype='float32'):
  layer = jax.jit(highway_lstm.layer, static_argnums=3, static_argnames='dtype')
  h_TBD = layer(PARAMS, X_BTE.swapaxes(0, 1), VALID_BT.T, rate, key, dtype=dtype)
  return np.asarray(h_TBD.astype('float32').swapaxes(0, 1))


def test_equations():
  h_BTD = run()
  for b, length in enumerate(LENGTHS):
    np.testing.assert_allclose(h_BTD[b, :length], reference.layer(PARAMS, X_BTE[b, :length]), atol=1e-5)
    np.testing.assert_array_equal(h_BTD[b, length:], np.repeat(h_BTD[b, length - 1 : length], 6 - length, axis=0))
  assert np.abs(h_BTD).max() > 0.5 and run(dtype='bfloat16') == pytest.approx(h_BTD, abs=0.05)


def test_one_dropout_mask_covers_output_and_recurrence():
  h_BTD = run(0.5, jax.random.key(1))
  mask_BD = np.where(np.all(h_BTD[:, :4] == 0, axis=1), 0.0, 2.0)  # a dropped cell is 0 in all steps
  assert 0 < (mask_BD == 0).sum() < mask_BD.size and (mask_BD[0] != mask_BD[2]).any()
  for b, length in enumerate(LENGTHS):
    np.testing.assert_allclose(h_BTD[b, :length], reference.layer(PARAMS, X_BTE[b, :length], mask_BD[b]), atol=1e-5)
  np.testing.assert_array_equal(run(0.5), run())  # no key: evaluation
  np.testing.assert_array_equal(run(0.0, jax.random.key(1)), run())


def test_initial_values():
  params = highway_lstm.init(jax.random.key(0), 6, D)
  for name, blocks in (('input', 6), ('recurrent', 5)):
    for block in np.split(np.asarray(params[name]), blocks, axis=1):
      np.testing.assert_allclose(block.T @ block, np.eye(D), atol=1e-5)
  assert np.asarray(params['bias']).reshape(6, D).tolist() == [[float(i == 1)] * D for i in range(6)]
