"""The LSTM's loop by Numba against its definition, the scan of lmx/ops/rnn.py."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx import placement
from lmx.engine import devices
from lmx.errors import InputError
from lmx.kernels import fused_recurrent, lstm_loop, native
from lmx.kernels import rnn as kernels
from lmx.layers import recurrent
from lmx.models import registry
from tests import placed

needs_numba = pytest.mark.skipif(not native.has_products(), reason='needs Numba and the instructions of its products')
# Widths below, at and above those of a panel (8 to 32 units), rows of one and of several blocks (4 to 12 rows).
SIZES = [(4, 3, 2, 5), (3, 13, 6, 32), (5, 30, 4, 45)]


def case(T, B, E, D, *, padded=False, bias='single'):
  keys = jax.random.split(jax.random.key(T * B), 4)
  params = recurrent.init('lstm', keys[0], E, D, scale=0.5, bias=bias)
  carry = tuple(jax.random.normal(key, (B, D)) for key in keys[1:3])
  valid_TB = np.random.default_rng(0).random((T, B)) < 0.7 if padded else None
  return params, jax.random.normal(keys[3], (T, B, E)), carry, valid_TB


def gradients_of(backend, params, x_TBE, carry, valid_TB, layer=recurrent.layer):
  """(outputs, carry, gradients of the parameters, of x and of the carry)."""
  weight_TBD = np.random.default_rng(9).standard_normal((*x_TBE.shape[:2], carry[0].shape[-1]), np.float32)

  def loss(params, x_TBE, carry):
    h_TBD, after = layer('lstm', params, x_TBE, carry, valid_TB, backend=backend)
    return jnp.sum(weight_TBD * h_TBD) + sum(jnp.sum(a * jnp.cos(a)) for a in after), (h_TBD, after)

  with placement.scope(devices.of_process()):
    return jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))(params, x_TBE, carry)


@needs_numba
@pytest.mark.parametrize(('padded', 'bias'), [(False, 'single'), (True, 'double')])
@pytest.mark.parametrize('sizes', SIZES)
def test_outputs_and_gradients_match_the_scan(sizes, padded, bias):
  inputs = case(*sizes, padded=padded, bias=bias)
  found, expected = (gradients_of(backend, *inputs) for backend in ('numba', 'scan'))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)
  assert min(np.abs(x).max() for x in jax.tree.leaves(found)) > 1e-3


@needs_numba
def test_any_number_of_threads_computes_the_same_bits(monkeypatch):
  inputs, found = case(6, 30, 4, 45, padded=True), []
  for threads in (1, 2, 3, 6):
    monkeypatch.setattr(native, 'count_threads', lambda parts, threads=threads: min(parts, threads))
    found.append(gradients_of('numba', *inputs))
  for other in found[1:]:
    jax.tree.map(np.testing.assert_array_equal, found[0], other)


@needs_numba
def test_rematerialised_layers_have_the_same_gradient():
  inputs = case(4, 5, 3, 8)
  again = lambda cell, params, x_TBE, carry, valid_TB, backend: jax.checkpoint(  # noqa: E731
    lambda *args: recurrent.layer(cell, *args, valid_TB, backend=backend)
  )(params, x_TBE, carry)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6),
    gradients_of('numba', *inputs, layer=again),
    gradients_of('numba', *inputs),
  )


@needs_numba
@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
def test_non_finite_values_propagate(value):
  params, x_TBE, carry, _ = case(3, 4, 2, 7)
  inputs = params, x_TBE.at[1, 2].set(value), carry, None
  (found, (h_TBD, _)), gradients = gradients_of('numba', *inputs)
  (expected, (definition_TBD, _)), slopes = gradients_of('scan', *inputs)
  np.testing.assert_allclose(h_TBD, definition_TBD, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(found, expected, rtol=1e-5)
  same = lambda a, b: np.testing.assert_array_equal(np.isfinite(a), np.isfinite(b))  # noqa: E731
  jax.tree.map(same, gradients, slopes)
  assert not np.isfinite(h_TBD[:, 2]).all() or np.isinf(value)


@needs_numba
def test_masked_steps_pass_no_gradient():
  params, x_TBE, carry, _ = case(4, 3, 2, 6)
  valid_TB = np.ones((4, 3), bool)
  valid_TB[1, 2] = valid_TB[3, 0] = False
  spoilt = x_TBE.at[1, 2].set(np.nan).at[3, 0].set(np.inf)
  one, other = (gradients_of('numba', params, x, carry, valid_TB) for x in (x_TBE, spoilt))
  np.testing.assert_array_equal(one[0][0], other[0][0])
  np.testing.assert_array_equal(one[1][0]['recurrent'], other[1][0]['recurrent'])
  jax.tree.map(np.testing.assert_array_equal, one[1][2], other[1][2])


@needs_numba
def test_mask_of_numbers_and_weights_of_another_type_are_read_as_by_the_scan():
  params, x_TBE, carry, _ = case(3, 4, 2, 7)
  valid_T1 = np.array([[1.0], [0.0], [0.3]], np.float32)
  params = {**params, 'recurrent': params['recurrent'].astype(jnp.bfloat16)}
  with placement.scope(devices.of_process()):
    run = lambda backend: jax.vjp(  # noqa: E731
      lambda x_TBE: recurrent.layer('lstm', params, x_TBE, carry, valid_T1, backend=backend)[0], x_TBE
    )
    np.testing.assert_allclose(run('numba')[0], run('scan')[0], rtol=1e-5, atol=1e-6)


@needs_numba
def test_functions_of_the_gates_are_exact_to_rounding():
  from numba import njit

  from lmx.kernels.native import elementary

  @njit(error_model='numpy')
  def apply(x, s, t):
    for i in range(x.size):
      s[i], t[i] = elementary.sigmoid(x[i]), elementary.tanh(x[i])

  near = np.logspace(-30, 2.5, 4000)
  x = np.concatenate([-near, near, [0.0, 0.625, -0.625, np.inf, -np.inf]]).astype(np.float32)
  s, t = np.empty_like(x), np.empty_like(x)
  apply(np.append(x, np.float32('nan')), nan_s := np.empty(x.size + 1, np.float32), nan_t := np.empty_like(nan_s))
  assert np.isnan(nan_s[-1]) and np.isnan(nan_t[-1])
  apply(x, s, t)
  exact = x.astype(np.float64)
  with np.errstate(over='ignore'):
    np.testing.assert_allclose(s, 1 / (1 + np.exp(-exact)), rtol=3e-7, atol=2e-38)
  assert not s[x < -88].any() and (t[x > 88] == 1).all()
  np.testing.assert_allclose(t, np.tanh(exact), rtol=3e-7)


def test_without_a_gradient_the_loop_is_the_definition_and_needs_no_numba(monkeypatch):
  monkeypatch.setattr(native, 'has_products', lambda: False)
  params, x_TBE, carry, _ = case(3, 2, 2, 5)
  with placement.scope(devices.of_process()):
    one, other = (recurrent.layer('lstm', params, x_TBE, carry, backend=name) for name in ('numba', 'scan'))
  jax.tree.map(np.testing.assert_array_equal, one, other)


def test_training_without_numba_warns(monkeypatch):

  native.load.cache_clear()
  monkeypatch.setattr(native, 'has_products', lambda: False)
  with pytest.raises(InputError, match=r'model.backend: got "numba"'):
    gradients_of('numba', *case(3, 2, 2, 5))


def test_numba_is_for_a_float32_lstm_on_one_cpu():
  with placed.on('cpu', 'cpu'):
    assert kernels.choose('numba', 'lstm', 'float32') is lstm_loop.loop
    for backend, dtype in (('numba', 'bfloat16'), ('auto', 'float32'), ('xla', 'float32')):
      assert kernels.choose(backend, 'lstm', dtype) is fused_recurrent.loop
  with placed.on('cpu', 'cpu', devices=8):
    assert kernels.choose('numba', 'lstm', 'float32') is fused_recurrent.loop
  with placed.on('gpu', 'NVIDIA H100'):
    assert kernels.choose('numba', 'lstm', 'float32') is kernels.choose('xla', 'lstm', 'float32') is kernels.cudnn


@pytest.mark.parametrize('name', ['rnn_lm', 'awd_lstm'])
def test_run_records_its_lstm_kernel(monkeypatch, name):
  model = registry.get(name)
  for found, backend in ((True, 'numba'), (False, 'xla')):
    monkeypatch.setattr(native, 'has_products', lambda found=found: found)
    assert model.settle(model.Config()).backend == backend
    assert model.settle(model.Config(dtype='bfloat16')).backend == 'xla'
    assert model.settle(model.Config(backend='custom')).backend == 'custom'
  other = model.Config(cell='qrnn' if name == 'awd_lstm' else 'gru')
  assert model.settle(other) == other
