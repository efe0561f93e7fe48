"""The quasi-recurrent layer against its equations, step by step."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.models import awd_lstm
from tests.reference import qrnn as reference

T, B, E, D = 9, 4, 5, 7
LENGTHS = (9, 5, 1, 8)
every_window = pytest.mark.parametrize('window', [1, 2])


def case(window):
  """(params, x_TBE, carry away from zero, valid_TB)."""
  keys = jax.random.split(jax.random.key(3), 4)
  params = jax.tree.map(lambda x: 2 * x, awd_lstm.init_qrnn(keys[0], E, D, window))
  carry = tuple(
    c + 0.7 * jax.random.normal(k, c.shape)
    for c, k in zip(awd_lstm.init_qrnn_carry(B, E, D, window), keys[2:], strict=False)
  )
  return params, jax.random.normal(keys[1], (T, B, E)), carry, jnp.arange(T)[:, None] < jnp.array(LENGTHS)


@every_window
def test_equals_the_equations(window):
  params, x_TBE, carry, valid_TB = case(window)
  h_TBD, after = jax.jit(functools.partial(awd_lstm.qrnn, window=window))(params, x_TBE, carry, valid_TB)
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), (params, x_TBE, carry))
  for b, length in enumerate(LENGTHS):
    h_TD, carry_D = reference.layer(exact[0], exact[1][:, b], tuple(c[b] for c in exact[2]), length, window)
    np.testing.assert_allclose(h_TBD[:length, b], h_TD, rtol=1e-5, atol=1e-5)
    for got, expected in zip(after, carry_D, strict=True):
      np.testing.assert_allclose(got[b], expected, rtol=1e-5, atol=1e-5)


@every_window
def test_two_halves_are_one_pass(window):
  params, x_TBE, carry, _ = case(window)
  whole, end = awd_lstm.qrnn(params, x_TBE, carry, window=window)
  first, middle = awd_lstm.qrnn(params, x_TBE[:4], carry, window=window)
  second, last = awd_lstm.qrnn(params, x_TBE[4:], middle, window=window)
  np.testing.assert_allclose(jnp.concatenate([first, second]), whole, rtol=1e-5, atol=1e-6)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), last, end)


def test_forget_mult_has_the_gradient_of_the_loop():
  keys = jax.random.split(jax.random.key(0), 4)
  f, z, g = (jax.random.uniform(k, (T, B, D)) for k in keys[:3])
  c = jax.random.normal(keys[3], (B, D))

  def loop(f, z, c):
    def step(c, fz):
      c = fz[0] * fz[1] + (1 - fz[0]) * c
      return c, c

    return jax.lax.scan(step, c, (f, z))[1]

  for fn in (loop, awd_lstm.forget_mult):
    assert fn(f, z, c).shape == (T, B, D)
  gradients = [
    jax.grad(lambda f, z, c, fn=fn: jnp.sum(g * fn(f, z, c)), (0, 1, 2))(f, z, c) for fn in (loop, awd_lstm.forget_mult)
  ]
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *gradients)


def test_parameters_and_carry():
  params = awd_lstm.init_qrnn(jax.random.key(0), 50, 60, 2)
  assert {k: v.shape for k, v in params.items()} == {'input': (100, 180), 'bias': (180,)}
  assert 0.95 * 0.1 < np.abs(params['input']).max() <= 0.1  # 1 / sqrt(2 * 50)
  assert [c.shape for c in awd_lstm.init_qrnn_carry(3, 50, 60, 2)] == [(3, 60), (3, 50)]
  assert [c.shape for c in awd_lstm.init_qrnn_carry(3, 50, 60, 1)] == [(3, 60)]
