"""The GRU of the paper as a step and a layer, and the encoder of both directions."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.layers import rnn_cell, rnn_encoder
from lmx.layers.reversal import reversal
from tests.reference import rnn_translation as reference

T, B, D = 7, 3, 5
LENGTHS = (7, 2, 5)


VALID_TB = np.arange(T)[:, None] < np.array(LENGTHS)


def case(cell):
  """(parameters, inputs, carry)."""
  rng, gates = np.random.default_rng(1), D * rnn_cell.gates(cell)
  draw = lambda *shape: rng.standard_normal(shape, np.float32)
  params = {'input': 0.6 * draw(6, gates), 'recurrent': 0.6 * draw(D, gates), 'bias': 0.6 * draw(gates)}
  return params, draw(T, B, 6), (draw(B, D),)


def test_papers_gru_equals_its_equations():
  params, x_TBE, carry = case('gru_paper')
  run = jax.jit(functools.partial(rnn_cell.layer, 'gru_paper'))
  h_TBD, (last_BD,) = run(params, x_TBE, carry, VALID_TB)
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), (params, x_TBE, carry))
  for b, length in enumerate(LENGTHS):
    state = (exact[2][0][b],)
    for t in range(length):
      state = reference.step('gru_paper', exact[0], exact[1][t, b], state)
      np.testing.assert_allclose(h_TBD[t, b], state[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(last_BD[b], state[0], rtol=1e-5, atol=1e-5)


def test_two_grus_differ_in_where_the_reset_gate_is():
  params, x_TBE, carry = case('gru')
  run = jax.jit(rnn_cell.layer, static_argnums=0)
  assert not np.allclose(run('gru', params, x_TBE, carry)[0], run('gru_paper', params, x_TBE, carry)[0], atol=1e-3)
  # With a reset gate that is open always there is no difference.
  params = {**params, 'bias': params['bias'] + 100 * (np.arange(3 * D) < D).astype(np.float32)}
  np.testing.assert_allclose(
    run('gru', params, x_TBE, carry)[0], run('gru_paper', params, x_TBE, carry)[0], rtol=1e-5, atol=1e-5
  )


def test_reversal_is_its_own_inverse_and_derivative():
  x_TBD = np.random.default_rng(0).standard_normal((T, B, D), np.float32)

  @jax.jit
  def run(x_TBD):
    index_TB = reversal(VALID_TB.T).T
    turn = lambda x: rnn_encoder.reorder(x, index_TB)
    gather = lambda x: jnp.take_along_axis(x, index_TB[..., None], axis=0)
    turned, ours = jax.vjp(turn, x_TBD)
    return turned, turn(turned), ours(turned)[0], jax.vjp(gather, x_TBD)[1](turned)[0]

  turned, again, ours, pulled = run(x_TBD)
  for b, n in enumerate(LENGTHS):
    np.testing.assert_array_equal(turned[:n, b], x_TBD[:n, b][::-1])
    np.testing.assert_array_equal(turned[n:, b], x_TBD[n:, b])
  np.testing.assert_array_equal(again, x_TBD)
  np.testing.assert_array_equal(ours, pulled)


def test_unknown_cell_names_the_nearest():
  with pytest.raises(InputError, match='did you mean "gru_paper"'):
    rnn_cell.gates('gru_papers')
