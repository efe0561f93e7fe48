"""Recurrent layers against their equations in NumPy."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.layers import recurrent
from lmx.models import registry
from lmx.ops import rnn
from tests import drawn, placed
from tests.reference import recurrent as reference

T, B, E, D = 9, 4, 5, 7
LENGTHS = (9, 5, 1, 8)

every_cell = pytest.mark.parametrize('cell', sorted(rnn.CELLS))
every_bias = pytest.mark.parametrize('bias', ['single', 'double'])


def case(cell, bias, padded):
  """(params, x_TBE, carry away from zero, valid_TB)."""
  rng = np.random.default_rng(3)
  params = drawn.params(lambda key: recurrent.init(cell, key, E, D, scale=0.6, bias=bias), std=0.4)
  carry = tuple(0.7 * rng.standard_normal((B, D), np.float32) for _ in range(rnn.get(cell).carries))
  valid_TB = np.arange(T)[:, None] < np.array(LENGTHS) if padded else None
  return params, rng.standard_normal((T, B, E), np.float32), carry, valid_TB


@functools.partial(jax.jit, static_argnums=(0, 5))
def run(cell, params, x_TBE, carry, valid_TB, backend):
  with placed.on():
    return recurrent.layer(cell, params, x_TBE, carry, valid_TB, backend=backend)


@every_cell
@pytest.mark.parametrize('bias,backend', [('single', 'scan'), ('double', 'custom')])
def test_equals_the_equations(cell, bias, backend):
  params, x_TBE, carry, valid_TB = case(cell, bias, True)
  h_TBD, after = run(cell, params, x_TBE, carry, valid_TB, backend)
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), (params, x_TBE, carry))
  for b, length in enumerate(LENGTHS):
    h_TD, carry_D = reference.layer(cell, exact[0], exact[1][:, b], tuple(c[b] for c in exact[2]), length)
    np.testing.assert_allclose(h_TBD[:length, b], h_TD, rtol=1e-5, atol=1e-5)
    for got, expected in zip(after, carry_D, strict=True):
      np.testing.assert_allclose(got[b], expected, rtol=1e-5, atol=1e-5)


@every_cell
def test_invalid_steps_keep_the_carry_and_repeat_the_output(cell):
  params, x_TBE, carry, valid_TB = case(cell, 'single', True)
  h_TBD, after = run(cell, params, x_TBE, carry, valid_TB, 'custom')
  changed_TBE = np.where(valid_TB[..., None], x_TBE, np.float32(100))
  again_TBD, _ = run(cell, params, changed_TBE, carry, valid_TB, 'custom')
  np.testing.assert_array_equal(h_TBD, again_TBD)
  for b, length in enumerate(LENGTHS):
    np.testing.assert_array_equal(h_TBD[length:, b], np.broadcast_to(h_TBD[length - 1, b], (T - length, D)))
    np.testing.assert_array_equal(after[0][b], h_TBD[length - 1, b])


@pytest.mark.parametrize(
  'cell',
  [c if c in ('gru', 'lstm') else pytest.param(c, marks=pytest.mark.slow) for c in sorted(rnn.CELLS)],
)
def test_bfloat16_is_close_to_float32_with_float32_carry(cell):
  params, x_TBE, carry, valid_TB = case(cell, 'double', True)

  def loss(params, dtype, backend):
    with placed.on():
      h_TBD, after = recurrent.layer(cell, params, x_TBE, carry, valid_TB, dtype=dtype, backend=backend)
    assert h_TBD.dtype == dtype and {a.dtype for a in after} == {jnp.dtype('float32')}
    return jnp.sum(h_TBD.astype(jnp.float32) ** 2)

  @jax.jit
  def gradients(params):
    of = lambda *options: jax.grad(loss)(params, *options)
    return of('float32', 'scan'), of('bfloat16', 'scan'), of('bfloat16', 'custom')

  high, *every_low = gradients(params)
  for low in every_low:
    for a, b in zip(jax.tree.leaves(low), jax.tree.leaves(high), strict=True):
      assert a.dtype == jnp.float32
      assert np.linalg.norm(a - b) < 0.05 * np.linalg.norm(b)


def test_parameters_are_uniform_and_the_forget_gate_starts_higher():
  init = jax.jit(lambda key: recurrent.init('lstm', key, 40, 50, scale=0.1, forget_bias=1.0))
  params = jax.device_get(init(jax.random.key(0)))
  for name, (low, high) in {'input': (-0.1, 0.1), 'recurrent': (-0.1, 0.1)}.items():
    assert low <= params[name].min() < 0.95 * low and 0.95 * high < params[name].max() <= high
  forget = slice(50, 100)
  assert np.all(params['bias'][forget] >= 0.9)
  assert np.abs(np.delete(params['bias'], np.arange(50, 100))).max() <= 0.1
  assert {k: v.shape for k, v in params.items()} == {'input': (40, 200), 'recurrent': (50, 200), 'bias': (200,)}


def test_unknown_cell_is_rejected_with_the_nearest_name():
  with pytest.raises(InputError, match='did you mean "lstm"'):
    rnn.get('lsmt')


@pytest.mark.parametrize('backend', ['cudnn', 'numba'])
def test_backends_of_the_lstm_reject_other_cells(backend):
  rnn.check_backend(backend, 'lstm')
  for model, cell in (('rnn_lm', 'gru'), ('bahdanau', 'gru'), ('rnn_encdec', 'gru_paper')):
    with pytest.raises(InputError, match='model.backend'):
      registry.config(model, 'tiny', cell=cell, backend=backend)
