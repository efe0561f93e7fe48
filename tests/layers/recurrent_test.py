"""Recurrent layers: against NumPy, and the custom derivative against that of the scan."""

from __future__ import annotations

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import rnn
from jax.extend import core

from lmx.errors import InputError
from lmx.layers import recurrent
from tests.reference import recurrent as reference

T, B, E, D = 9, 4, 5, 7
LENGTHS = (9, 5, 1, 8)

every_cell = pytest.mark.parametrize('cell', sorted(recurrent.CELLS))
every_bias = pytest.mark.parametrize('bias', ['single', 'double'])


def case(cell, bias, padded):
  """(params, x_TBE, carry away from zero, valid_TB)."""
  keys = jax.random.split(jax.random.key(3), 5)
  params = recurrent.init(cell, keys[0], E, D, scale=0.6, bias=bias)
  carry = recurrent.init_carry(cell, B, D)
  carry = tuple(c + 0.7 * jax.random.normal(k, c.shape) for c, k in zip(carry, keys[3:], strict=False))
  valid_TB = jnp.arange(T)[:, None] < jnp.array(LENGTHS) if padded else None
  return params, jax.random.normal(keys[1], (T, B, E)), carry, valid_TB


@functools.partial(jax.jit, static_argnums=(0, 5))
def run(cell, params, x_TBE, carry, valid_TB, backend):
  return recurrent.layer(cell, params, x_TBE, carry, valid_TB, backend=backend)


@every_cell
@every_bias
@pytest.mark.parametrize('backend', ['scan', 'custom'])
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
@every_bias
@pytest.mark.parametrize('padded', [False, True])
def test_custom_derivative_equals_that_of_the_scan(cell, bias, padded):
  *inputs, valid_TB = case(cell, bias, padded)
  g_TBD = jax.random.normal(jax.random.key(9), (T, B, D))

  @functools.partial(jax.jit, static_argnums=0)
  def gradients(backend, params, x_TBE, carry):
    def loss(params, x_TBE, carry):
      h_TBD, after = recurrent.layer(cell, params, x_TBE, carry, valid_TB, backend=backend)
      return jnp.sum(g_TBD * h_TBD) + sum(jnp.sum(a * jnp.cos(a)) for a in after)

    return jax.value_and_grad(loss, (0, 1, 2))(params, x_TBE, carry)

  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5),
    gradients('custom', *inputs),
    gradients('scan', *inputs),
  )


def loop_carries(jaxpr):
  """Shapes of everything that some loop of `jaxpr` carries."""
  for eqn in jaxpr.eqns:
    if eqn.primitive.name == 'scan':
      skip = eqn.params['num_consts']
      yield from (v.aval.shape for v in eqn.invars[skip : skip + eqn.params['num_carry']])
    elif eqn.primitive.name == 'while':
      yield from (v.aval.shape for v in eqn.invars[eqn.params['cond_nconsts'] + eqn.params['body_nconsts'] :])
    for sub in core.jaxprs_in_params(eqn.params):
      yield from loop_carries(sub)


@every_cell
def test_custom_derivative_does_not_carry_the_gradient_of_the_weights(cell):
  params, x_TBE, carry, _ = case(cell, 'single', False)

  def carried(backend):
    loss = lambda p: jnp.sum(recurrent.layer(cell, p, x_TBE, carry, backend=backend)[0])  # noqa: E731
    return set(loop_carries(jax.make_jaxpr(jax.grad(loss))(params).jaxpr))

  assert params['recurrent'].shape in carried('scan')
  assert params['recurrent'].shape not in carried('custom')
  assert (B, D) in carried('custom')


@every_cell
def test_invalid_steps_keep_the_carry_and_repeat_the_output(cell):
  params, x_TBE, carry, valid_TB = case(cell, 'single', True)
  h_TBD, after = run(cell, params, x_TBE, carry, valid_TB, 'custom')
  changed_TBE = jnp.where(valid_TB[..., None], x_TBE, 100.0)
  again_TBD, _ = run(cell, params, changed_TBE, carry, valid_TB, 'custom')
  np.testing.assert_array_equal(h_TBD, again_TBD)
  for b, length in enumerate(LENGTHS):
    np.testing.assert_array_equal(h_TBD[length:, b], np.broadcast_to(h_TBD[length - 1, b], (T - length, D)))
    np.testing.assert_array_equal(after[0][b], h_TBD[length - 1, b])


@every_cell
@pytest.mark.parametrize('backend', ['scan', 'custom'])
def test_bfloat16_is_near_float32_and_keeps_a_float32_carry(cell, backend):
  params, x_TBE, carry, valid_TB = case(cell, 'double', True)

  def loss(params, dtype):
    h_TBD, after = recurrent.layer(cell, params, x_TBE, carry, valid_TB, dtype=dtype, backend=backend)
    return jnp.sum(h_TBD.astype(jnp.float32) ** 2), (h_TBD.dtype, [a.dtype for a in after])

  grad = jax.jit(jax.grad(lambda p, dtype: loss(p, dtype)[0]), static_argnums=1)
  low, high = grad(params, 'bfloat16'), grad(params, 'float32')
  for a, b in zip(jax.tree.leaves(low), jax.tree.leaves(high), strict=True):
    assert a.dtype == jnp.float32
    assert np.linalg.norm(a - b) < 0.05 * np.linalg.norm(b)
  h_dtype, after_dtypes = loss(params, 'bfloat16')[1]
  assert h_dtype == jnp.bfloat16 and set(after_dtypes) == {jnp.dtype('float32')}


def test_parameters_are_uniform_and_the_forget_gate_starts_higher():
  params = recurrent.init('lstm', jax.random.key(0), 40, 50, scale=0.1, forget_bias=1.0)
  for name, (low, high) in {'input': (-0.1, 0.1), 'recurrent': (-0.1, 0.1)}.items():
    assert low <= params[name].min() < 0.95 * low and 0.95 * high < params[name].max() <= high
  forget = slice(50, 100)
  assert np.all(params['bias'][forget] >= 0.9)
  assert np.abs(np.delete(params['bias'], np.arange(50, 100))).max() <= 0.1
  assert {k: v.shape for k, v in params.items()} == {'input': (40, 200), 'recurrent': (50, 200), 'bias': (200,)}


def test_an_unknown_cell_is_refused_with_the_nearest_name():
  with pytest.raises(InputError, match='did you mean "lstm"'):
    recurrent.get('lsmt')


def cudnn_in_plain_jax(x, h, c, weights, seq_lengths, E, D, layers, dropout, both, precision):
  """What cuDNN documents of its LSTM, by jax's own reference: rows of different lengths one by one, then zeros."""
  parts = rnn.unpack_lstm_weights(weights, E, D, layers, both)
  y, h_n, c_n = [], [], []
  for b, n in enumerate(np.asarray(seq_lengths)):
    row = slice(b, b + 1)
    lengths = jnp.full(1, n, jnp.int32)
    out = rnn.lstm_ref(x[row, :n], h[:, row], c[:, row], *parts, lengths, E, D, layers, dropout, both)
    y.append(jnp.pad(out[0], ((0, 0), (0, x.shape[1] - n), (0, 0))))
    h_n.append(out[1])
    c_n.append(out[2])
  return jnp.concatenate(y), jnp.concatenate(h_n, 1), jnp.concatenate(c_n, 1)


def gradients_of(backend, params, x_TBE, carry, valid_TB):
  g_TBD = jax.random.normal(jax.random.key(9), (T, B, D))

  def loss(params, x_TBE, carry):
    h_TBD, after = recurrent.layer('lstm', params, x_TBE, carry, valid_TB, backend=backend)
    return jnp.sum(g_TBD * h_TBD) + sum(jnp.sum(a * jnp.cos(a)) for a in after)

  return jax.value_and_grad(loss, (0, 1, 2))(params, x_TBE, carry)


@every_bias
@pytest.mark.parametrize('lengths', [None, LENGTHS, (0, 9, 3, 1)])
def test_cudnn_is_called_with_its_layout_of_weights_rows_and_lengths(monkeypatch, bias, lengths):
  monkeypatch.setattr(rnn, 'lstm', cudnn_in_plain_jax)
  monkeypatch.setattr(recurrent, 'is_nvidia', lambda: True)
  params, x_TBE, carry, _ = case('lstm', bias, False)
  valid_TB = None if lengths is None else jnp.arange(T)[:, None] < jnp.array(lengths)
  found = gradients_of('cudnn', params, x_TBE, carry, valid_TB)
  expected = gradients_of('scan', params, x_TBE, carry, valid_TB)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)


def test_cudnn_weights_in_plain_numpy():
  params, *_ = case('lstm', 'double', False)
  weights = recurrent._Weights(params['input'], params['recurrent'], params['bias'], params['recurrent_bias'])
  packed = np.asarray(recurrent.cudnn_weights(weights))
  at = 0
  for name, width in (('input', E), ('recurrent', D)):
    for unit in range(4 * D):  # one output after another, its weights side by side
      np.testing.assert_array_equal(packed[at : at + width], params[name][:, unit])
      at += width
  np.testing.assert_array_equal(packed[at:], np.concatenate([params['bias'], params['recurrent_bias']]))


@pytest.mark.skipif(jax.default_backend() != 'gpu', reason='needs an NVIDIA GPU')
@every_bias
@pytest.mark.parametrize('lengths', [None, LENGTHS, (0, 9, 3, 1)])
def test_cudnn_equals_the_scan(bias, lengths):
  params, x_TBE, carry, _ = case('lstm', bias, False)
  valid_TB = None if lengths is None else jnp.arange(T)[:, None] < jnp.array(lengths)
  with jax.default_matmul_precision('highest'):
    found = gradients_of('cudnn', params, x_TBE, carry, valid_TB)
    expected = gradients_of('scan', params, x_TBE, carry, valid_TB)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)


def test_auto_takes_cudnn_only_where_it_can(monkeypatch):
  assert recurrent.choose('auto', 'lstm', 'float32') == 'custom'  # no GPU here, or many devices
  gpu = types.SimpleNamespace(device_kind='NVIDIA H100')
  for name, value in (('default_backend', 'gpu'), ('devices', [gpu]), ('device_count', 1)):
    monkeypatch.setattr(recurrent.jax, name, lambda value=value: value)
  assert recurrent.choose('auto', 'lstm', 'float32') == 'cudnn'
  assert recurrent.choose('auto', 'gru', 'float32') == recurrent.choose('auto', 'lstm', 'bfloat16') == 'custom'
  assert recurrent.choose('scan', 'lstm', 'float32') == 'scan'
  gpu.device_kind = 'AMD Instinct'
  assert recurrent.choose('auto', 'lstm', 'float32') == 'custom'
  for cell, dtype in (('gru', 'float32'), ('lstm', 'bfloat16')):
    with pytest.raises(InputError, match='float32 LSTMs'):
      recurrent.choose('cudnn', cell, dtype)
  with pytest.raises(InputError, match='expected an NVIDIA GPU; set model.backend=auto'):
    recurrent.choose('cudnn', 'lstm', 'float32')
