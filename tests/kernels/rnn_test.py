"""cuDNN's recurrent layer against the reference loop of lmx/ops/rnn.py, and the choice of a loop."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import rnn as jax_rnn

from lmx import placement
from lmx.engine import devices
from lmx.errors import InputError
from lmx.kernels import fused_recurrent
from lmx.kernels import rnn as kernels
from lmx.layers import recurrent
from lmx.ops import rnn
from lmx.ops.rnn import Weights
from tests import placed
from tests.layers.recurrent_test import LENGTHS, B, D, E, T, case, every_bias


def gradients_of(backend, params, x_TBE, carry, valid_TB, cell='lstm'):
  g_TBD = np.random.default_rng(9).standard_normal((T, B, D), np.float32)

  def loss(params, x_TBE, carry):
    h_TBD, after = recurrent.layer(cell, params, x_TBE, carry, valid_TB, backend=backend)
    return jnp.sum(g_TBD * h_TBD) + sum(jnp.sum(a * jnp.cos(a)) for a in after)

  return jax.value_and_grad(loss, (0, 1, 2))(params, x_TBE, carry)


def cudnn_in_plain_jax(expected, x, h, c, weights, seq_lengths, E, D, layers, dropout, both, precision):
  """What cuDNN documents of its LSTM, by jax's own reference: rows of different lengths one by one, then zeros.

  The outputs are no numbers where the lengths are not the expected ones.
  """
  parts = jax_rnn.unpack_lstm_weights(weights, E, D, layers, both)
  y, h_n, c_n = [], [], []
  for b, n in enumerate(expected):
    row = slice(b, b + 1)
    lengths = jnp.full(1, n, jnp.int32)
    out = jax_rnn.lstm_ref(x[row, :n], h[:, row], c[:, row], *parts, lengths, E, D, layers, dropout, both)
    y.append(jnp.pad(out[0], ((0, 0), (0, x.shape[1] - n), (0, 0))))
    h_n.append(out[1])
    c_n.append(out[2])
  is_right = jnp.where(jnp.all(seq_lengths == jnp.array(expected)), 1.0, jnp.nan)
  return is_right * jnp.concatenate(y), jnp.concatenate(h_n, 1), jnp.concatenate(c_n, 1)


@pytest.mark.parametrize(
  'bias,lengths', [pytest.param('single', None, marks=pytest.mark.slow), ('double', LENGTHS), ('single', (0, 9, 3, 1))]
)
def test_cudnn_is_called_with_its_layout_of_weights_rows_and_lengths(monkeypatch, bias, lengths):
  steps = [T] * B if lengths is None else [max(n, 1) for n in lengths]
  monkeypatch.setattr(jax_rnn, 'lstm', functools.partial(cudnn_in_plain_jax, steps))
  *inputs, _ = case('lstm', bias, False)
  valid_TB = None if lengths is None else np.arange(T)[:, None] < np.array(lengths)
  with placed.on('gpu', 'NVIDIA H100'):
    found, expected = jax.jit(lambda *args: [gradients_of(b, *args, valid_TB) for b in ('cudnn', 'scan')])(*inputs)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)


def test_cudnn_states_the_layout_of_all_that_it_reads_and_writes(monkeypatch):
  """Otherwise XLA transposes an operand by its layout alone, which the custom call does not see."""
  monkeypatch.setattr(jax_rnn, 'lstm', functools.partial(cudnn_in_plain_jax, [T] * B))
  params, x_TBE, carry, _ = case('lstm', 'double', False)
  weights = Weights(params['input'], params['recurrent'], params['bias'], params['recurrent_bias'])
  run = lambda *inputs: kernels.cudnn('lstm', *inputs, None)
  out, pull = jax.eval_shape(run, weights, x_TBE, carry), lambda *args: jax.vjp(run, *args[:3])[1](args[3])
  cotangents = jax.tree.map(lambda x: jnp.ones(x.shape), out)
  constraints = str(jax.make_jaxpr(pull)(weights, x_TBE, carry, cotangents)).count('layout_constraint')
  assert constraints == 2 * (4 + 3)  # x, h, c, weights; y, h, c; and their gradients


def test_cudnn_has_float32_arrays_in_bfloat16(monkeypatch):
  """JAX's kernel would read others as float32."""
  *inputs, _ = case('lstm', 'single', False)
  weights = Weights(inputs[0]['input'], inputs[0]['recurrent'], inputs[0]['bias'], None)
  monkeypatch.setattr(
    jax_rnn, 'lstm', lambda x, h, c, *_: (types.update(a.dtype.name for a in (x, h, c)), (x, h, c))[1]
  )
  types = set()
  jax.eval_shape(lambda x: kernels.cudnn('lstm', weights, x, inputs[2], None), inputs[1].astype(jnp.bfloat16))
  assert types == {'float32'}


def test_cudnn_weights_in_plain_numpy():
  params, *_ = case('lstm', 'double', False)
  weights = Weights(params['input'], params['recurrent'], params['bias'], params['recurrent_bias'])
  packed = np.asarray(jax.jit(kernels.cudnn_weights)(weights))
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
  with placement.scope(devices.of_process()), jax.default_matmul_precision('float32'):
    both = jax.jit(lambda *inputs: [gradients_of(backend, *inputs, valid_TB) for backend in ('cudnn', 'scan')])
    found, expected = both(params, x_TBE, carry)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)


def test_auto_selects_cudnn_only_where_supported():
  with placed.on('gpu', 'NVIDIA H100'):
    assert kernels.choose('auto', 'lstm', 'float32') is kernels.choose('cudnn', 'lstm', 'bfloat16') is kernels.cudnn
    custom = ('auto', 'gru', 'float32'), ('auto', 'lstm', 'bfloat16'), ('custom', 'lstm', 'float32')
    for backend, cell, dtype in custom:
      assert kernels.choose(backend, cell, dtype) is fused_recurrent.loop
    assert kernels.choose('scan', 'lstm', 'float32') is rnn.loop.equation
  several, amd = placed.on('gpu', 'NVIDIA H100', devices=8), placed.on('gpu', 'AMD Instinct')
  for scope in (several, amd, placed.on(), placement.scope(None)):
    with scope:
      assert kernels.choose('auto', 'lstm', 'float32') is fused_recurrent.loop
  with pytest.raises(InputError, match='expected an NVIDIA GPU'):
    kernels.choose('cudnn', 'lstm', 'float32')
