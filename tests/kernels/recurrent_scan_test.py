"""The scan with matrix gradients after the loop, against its equation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lmx.ops import recurrent_scan, rnn
from tests import placed

T, B, D, S = 9, 4, 7, 4
LENGTHS = (9, 5, 1, 8)


def body(dot, shared, constant, carry, x_BD, now):
  """Uses every kind of input: a matrix, one for each row, small parameters, a mask and a constant."""
  h_BD = jnp.tanh(dot('w', carry['h']) + x_BD + shared['b'][None])
  a_BS = jax.nn.softmax(dot('look', h_BD) + constant)
  read_BD = dot('values', a_BS)
  new = rnn.where_valid(now, {'h': h_BD + 0.5 * read_BD}, carry)
  return new, (new['h'], a_BS)


def inputs():
  rng = np.random.default_rng(0)
  draw = lambda *shape: rng.standard_normal(shape, np.float32)
  matrices = {'w': draw(D, D), 'look': draw(D, S), 'values': draw(B, S, D)}
  return matrices, {'b': draw(D)}, {'h': draw(B, D)}, draw(T, B, D)


CONSTANT = np.array([[0.0, 1.0, -1.0, 0.5]], np.float32)
VALID_TB = np.arange(T)[:, None] < np.array(LENGTHS)


def test_outputs_and_gradients_match_the_equation():
  def loss(*args):
    carry, (h_TBD, a_TBS) = recurrent_scan.scan(body, *args, fixed=(CONSTANT, VALID_TB))
    return jnp.sum(jnp.sin(h_TBD)) + jnp.sum(a_TBS**2) + jnp.sum(jnp.cos(carry['h']))

  def both(*args):
    expected = jax.value_and_grad(loss, (0, 1, 2, 3))(*args)
    with placed.on():
      return expected, jax.value_and_grad(loss, (0, 1, 2, 3))(*args)

  (expected, slopes), (found, gradients) = jax.jit(both)(*inputs())
  np.testing.assert_allclose(found, expected, rtol=1e-6)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), gradients, slopes)
  assert all(np.abs(g).max() > 1e-3 for g in jax.tree.leaves(gradients))
