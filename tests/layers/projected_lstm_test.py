"""The projected LSTM against a plain step."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from lmx.layers import projected_lstm
from tests import drawn, placed
from tests.reference import elmo as reference

T, B, E, H, P = 6, 3, 5, 7, 4


def setting(seed=0):
  rng = np.random.default_rng(seed)
  draw = lambda std, *shape: std * rng.standard_normal(shape, np.float32)
  params = drawn.params(lambda key: projected_lstm.init(key, E, H, P), std=0.5, seed=seed)
  return params, draw(3, T, B, E), (draw(0.3, B, P), draw(0.5, B, H))


def layer(params, x_TBE, carry, *more, **options):
  with placed.on():
    return jax.jit(functools.partial(projected_lstm.layer, **options))(params, x_TBE, carry, *more)


@pytest.mark.parametrize('backend', ['scan', 'custom'])
def test_matches_reference_with_both_clips(backend):
  params, x_TBE, carry = setting()
  h_TBP, (h_BP, c_BH) = layer(params, x_TBE, carry, cell_clip=0.8, proj_clip=0.5, backend=backend)
  weights = {'x/W_0': params['kernel'], 'x/B': params['bias'], 'x/W_P_0': params['projection']}
  weights = {k: np.asarray(v, np.float64) for k, v in weights.items()}
  for b in range(B):
    state = tuple(np.asarray(s[b], np.float64) for s in (carry[1], carry[0]))
    outputs, (c, m) = reference.lstm(weights, 'x', np.asarray(x_TBE[:, b], np.float64), 0.8, 0.5, state)
    np.testing.assert_allclose(h_TBP[:, b], outputs, atol=1e-5)
    np.testing.assert_allclose(c_BH[b], c, atol=1e-5)
    np.testing.assert_allclose(h_BP[b], m, atol=1e-5)
  assert (np.abs(c_BH) == np.float32(0.8)).any() and (np.abs(h_TBP) == 0.5).any()


def test_invalid_steps_leave_the_carry():
  params, x_TBE, carry = setting(2)
  valid_TB = np.arange(T)[:, None] < np.array([T, 3, 0])
  _, (h_BP, c_BH) = layer(params, x_TBE, carry, valid_TB)
  _, (short_h, short_c) = layer(params, x_TBE[:3], carry)
  np.testing.assert_allclose(h_BP[1], short_h[1], atol=1e-6)
  np.testing.assert_allclose(c_BH[1], short_c[1], atol=1e-6)
  np.testing.assert_array_equal(h_BP[2], carry[0][2])
  np.testing.assert_array_equal(c_BH[2], carry[1][2])
