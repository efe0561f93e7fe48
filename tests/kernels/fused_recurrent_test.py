"""The recurrent layer's gradient with matrix gradients after the loop, against the gradient of the scan."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core

from lmx.layers import recurrent
from lmx.ops import rnn
from tests import placed
from tests.layers.recurrent_test import B, D, T, case, every_cell


@pytest.mark.parametrize(
  'cell,bias,padded',
  [
    *((cell, 'single', True) for cell in sorted(rnn.CELLS)),
    ('lstm', 'double', False),
    *(pytest.param(cell, 'double', False, marks=pytest.mark.slow) for cell in sorted(rnn.CELLS) if cell != 'lstm'),
  ],
)
def test_custom_derivative_matches_the_scan(cell, bias, padded):
  *inputs, valid_TB = case(cell, bias, padded)
  found, expected = jax.jit(lambda *args: [gradients_of(b, *args, valid_TB, cell) for b in ('custom', 'scan')])(*inputs)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)


def gradients_of(backend, params, x_TBE, carry, valid_TB, cell='lstm'):
  g_TBD = np.random.default_rng(9).standard_normal((T, B, D), np.float32)

  def loss(params, x_TBE, carry):
    with placed.on():
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
    with placed.on():
      return set(loop_carries(jax.make_jaxpr(jax.grad(loss))(params).jaxpr))

  assert params['recurrent'].shape in carried('scan')
  assert params['recurrent'].shape not in carried('custom')
  assert (B, D) in carried('custom')
