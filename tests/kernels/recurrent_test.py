"""Fast recurrent loops against the reference loop of lmx/layers/recurrent.py, and their choice."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import rnn
from jax.extend import core

from lmx import placement
from lmx.engine import devices
from lmx.errors import InputError
from lmx.kernels import recurrent as kernels
from lmx.layers import recurrent
from tests import placed
from tests.layers.recurrent_test import LENGTHS, B, D, E, T, case, every_bias, every_cell

S = 4


@pytest.mark.parametrize(
  'cell,bias,padded',
  [
    *((cell, 'single', True) for cell in sorted(recurrent.CELLS)),
    ('lstm', 'double', False),
    *(
      pytest.param(cell, 'double', False, marks=pytest.mark.slow) for cell in sorted(recurrent.CELLS) if cell != 'lstm'
    ),
  ],
)
def test_custom_derivative_equals_that_of_the_scan(cell, bias, padded):
  *inputs, valid_TB = case(cell, bias, padded)
  found, expected = jax.jit(lambda *args: [gradients_of(b, *args, valid_TB, cell) for b in ('custom', 'scan')])(*inputs)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)


def gradients_of(backend, params, x_TBE, carry, valid_TB, cell='lstm'):
  g_TBD = np.random.default_rng(9).standard_normal((T, B, D), np.float32)

  def loss(params, x_TBE, carry):
    h_TBD, after = recurrent.layer(cell, params, x_TBE, carry, valid_TB, backend=backend)
    return jnp.sum(g_TBD * h_TBD) + sum(jnp.sum(a * jnp.cos(a)) for a in after)

  return jax.value_and_grad(loss, (0, 1, 2))(params, x_TBE, carry)


def loop_carries(jaxpr):
  """Shapes of everything that some loop of `jaxpr` carries."""
  for eqn in jaxpr.eqns:
    if eqn.primitive.name == 'scan':
      if 'ft_in' in eqn.params:  # from JAX 0.12 on: trees whose leaves are None
        skip, count = (len(jax.tree.leaves(x, is_leaf=lambda leaf: leaf is None)) for x in eqn.params['ft_in'][:2])
      else:
        skip, count = eqn.params['num_consts'], eqn.params['num_carry']
      yield from (v.aval.shape for v in eqn.invars[skip : skip + count])
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


def cudnn_in_plain_jax(expected, x, h, c, weights, seq_lengths, E, D, layers, dropout, both, precision):
  """What cuDNN documents of its LSTM, by jax's own reference: rows of different lengths one by one, then zeros.

  The outputs are no numbers where the lengths are not the expected ones.
  """
  parts = rnn.unpack_lstm_weights(weights, E, D, layers, both)
  y, h_n, c_n = [], [], []
  for b, n in enumerate(expected):
    row = slice(b, b + 1)
    lengths = jnp.full(1, n, jnp.int32)
    out = rnn.lstm_ref(x[row, :n], h[:, row], c[:, row], *parts, lengths, E, D, layers, dropout, both)
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
  monkeypatch.setattr(rnn, 'lstm', functools.partial(cudnn_in_plain_jax, steps))
  *inputs, _ = case('lstm', bias, False)
  valid_TB = None if lengths is None else np.arange(T)[:, None] < np.array(lengths)
  with placed.on('gpu', 'NVIDIA H100'):
    found, expected = jax.jit(lambda *args: [gradients_of(b, *args, valid_TB) for b in ('cudnn', 'scan')])(*inputs)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)


def test_cudnn_states_the_layout_of_all_that_it_reads_and_writes(monkeypatch):
  """Otherwise XLA transposes an operand by its layout alone, which the custom call does not see."""
  monkeypatch.setattr(rnn, 'lstm', functools.partial(cudnn_in_plain_jax, [T] * B))
  params, x_TBE, carry, _ = case('lstm', 'double', False)
  weights = kernels.Weights(params['input'], params['recurrent'], params['bias'], params['recurrent_bias'])
  run = lambda *inputs: kernels.cudnn('lstm', *inputs, None)
  out, pull = jax.eval_shape(run, weights, x_TBE, carry), lambda *args: jax.vjp(run, *args[:3])[1](args[3])
  cotangents = jax.tree.map(lambda x: jnp.ones(x.shape), out)
  constraints = str(jax.make_jaxpr(pull)(weights, x_TBE, carry, cotangents)).count('layout_constraint')
  assert constraints == 2 * (4 + 3)  # x, h, c, weights; y, h, c; and their gradients


def test_cudnn_has_float32_arrays_in_bfloat16(monkeypatch):
  """JAX's kernel would read others as float32."""
  *inputs, _ = case('lstm', 'single', False)
  weights = kernels.Weights(inputs[0]['input'], inputs[0]['recurrent'], inputs[0]['bias'], None)
  monkeypatch.setattr(rnn, 'lstm', lambda x, h, c, *_: (types.update(a.dtype.name for a in (x, h, c)), (x, h, c))[1])
  types = set()
  jax.eval_shape(lambda x: kernels.cudnn('lstm', weights, x, inputs[2], None), inputs[1].astype(jnp.bfloat16))
  assert types == {'float32'}


def test_cudnn_weights_in_plain_numpy():
  params, *_ = case('lstm', 'double', False)
  weights = kernels.Weights(params['input'], params['recurrent'], params['bias'], params['recurrent_bias'])
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


def test_auto_takes_cudnn_only_where_it_can():
  with placed.on('gpu', 'NVIDIA H100'):
    assert kernels.choose('auto', 'lstm', 'float32') == 'cudnn' == kernels.choose('cudnn', 'lstm', 'bfloat16')
    assert kernels.choose('auto', 'gru', 'float32') == kernels.choose('auto', 'lstm', 'bfloat16') == 'custom'
    assert kernels.choose('scan', 'lstm', 'float32') == 'scan'
  several, amd = placed.on('gpu', 'NVIDIA H100', devices=8), placed.on('gpu', 'AMD Instinct')
  for scope in (several, amd, placed.on(), placement.scope(None)):
    with scope:
      assert kernels.choose('auto', 'lstm', 'float32') == 'custom'
  with pytest.raises(InputError, match='got "cudnn" for "gru"'):
    kernels.choose('cudnn', 'gru', 'float32')
  with pytest.raises(InputError, match='expected an NVIDIA GPU'):
    kernels.choose('cudnn', 'lstm', 'float32')


def body(dot, shared, constant, carry, x_BD, now):
  """Uses every kind of input: a matrix, one for each row, small parameters, a mask and a constant."""
  h_BD = jnp.tanh(dot('w', carry['h']) + x_BD + shared['b'][None])
  a_BS = jax.nn.softmax(dot('look', h_BD) + constant)
  read_BD = dot('values', a_BS)
  new = kernels.where_valid(now, {'h': h_BD + 0.5 * read_BD}, carry)
  return new, (new['h'], a_BS)


def inputs():
  rng = np.random.default_rng(0)
  draw = lambda *shape: rng.standard_normal(shape, np.float32)
  matrices = {'w': draw(D, D), 'look': draw(D, S), 'values': draw(B, S, D)}
  return matrices, {'b': draw(D)}, {'h': draw(B, D)}, draw(T, B, D)


CONSTANT = np.array([[0.0, 1.0, -1.0, 0.5]], np.float32)
VALID_TB = np.arange(T)[:, None] < np.array(LENGTHS)


def plain(matrices, shared, carry, xs):
  """The same with what JAX makes of it."""

  def step(carry, inputs):
    x, now = inputs
    dot = lambda name, v: jnp.einsum('BX,BXY->BY' if matrices[name].ndim == 3 else 'BX,XY->BY', v, matrices[name])
    return body(dot, shared, CONSTANT, carry, x, now)

  return jax.lax.scan(step, carry, (xs, VALID_TB))


def ours(matrices, shared, carry, xs):
  return kernels.scan(body, matrices, shared, carry, xs, fixed=(CONSTANT, VALID_TB))


def test_outputs_and_gradients_are_those_of_the_scan():
  def loss(run, *args):
    carry, (h_TBD, a_TBS) = run(*args)
    return jnp.sum(jnp.sin(h_TBD)) + jnp.sum(a_TBS**2) + jnp.sum(jnp.cos(carry['h']))

  both = lambda *args: [jax.value_and_grad(functools.partial(loss, run), (0, 1, 2, 3))(*args) for run in (plain, ours)]
  (expected, slopes), (found, gradients) = jax.jit(both)(*inputs())
  np.testing.assert_allclose(found, expected, rtol=1e-6)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), gradients, slopes)
  assert all(np.abs(g).max() > 1e-3 for g in jax.tree.leaves(gradients))
