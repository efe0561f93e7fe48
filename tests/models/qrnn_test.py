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
  rng = np.random.default_rng(3)
  normal = lambda x: rng.standard_normal(x.shape, np.float32)
  shapes = jax.eval_shape(lambda: awd_lstm.init_qrnn(jax.random.key(0), E, D, window))
  params = jax.tree.map(lambda x: 0.4 * normal(x), shapes)
  carry = jax.tree.map(lambda x: 0.7 * normal(x), jax.eval_shape(lambda: awd_lstm.init_qrnn_carry(B, E, D, window)))
  return params, rng.standard_normal((T, B, E), np.float32), carry, np.arange(T)[:, None] < np.array(LENGTHS)


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
  run = functools.partial(awd_lstm.qrnn, window=window)

  @jax.jit
  def both(params, x_TBE, carry):
    first, middle = run(params, x_TBE[:4], carry)
    second, last = run(params, x_TBE[4:], middle)
    return (jnp.concatenate([first, second]), last), run(params, x_TBE, carry)

  halves, whole = both(params, x_TBE, carry)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), halves, whole)


def test_forget_mult_has_the_gradient_of_the_loop():
  rng = np.random.default_rng(0)
  f, z, g = rng.random((3, T, B, D), np.float32)
  c = rng.standard_normal((B, D), np.float32)

  def loop(f, z, c):
    def step(c, fz):
      c = fz[0] * fz[1] + (1 - fz[0]) * c
      return c, c

    return jax.lax.scan(step, c, (f, z))[1]

  @jax.jit
  def gradients(*inputs):
    total = lambda fn: lambda *inputs: jnp.sum(g * fn(*inputs))
    return [jax.grad(total(fn), (0, 1, 2))(*inputs) for fn in (loop, awd_lstm.forget_mult)]

  assert jax.eval_shape(awd_lstm.forget_mult, f, z, c).shape == (T, B, D)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *gradients(f, z, c))


def test_parameters_and_carry():
  params = jax.jit(lambda key: awd_lstm.init_qrnn(key, 50, 60, 2))(jax.random.key(0))
  assert {k: v.shape for k, v in params.items()} == {'input': (100, 180), 'bias': (180,)}
  assert 0.95 * 0.1 < np.abs(params['input']).max() <= 0.1  # 1 / sqrt(2 * 50)
  assert [c.shape for c in awd_lstm.init_qrnn_carry(3, 50, 60, 2)] == [(3, 60), (3, 50)]
  assert [c.shape for c in awd_lstm.init_qrnn_carry(3, 50, 60, 1)] == [(3, 60)]
