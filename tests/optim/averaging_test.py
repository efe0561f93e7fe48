"""The average of the parameters against its definition."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from lmx.optim import averaging

VALUES = [4.0, 1.0, -2.0, 7.0]


@pytest.mark.parametrize('debias', [True, False])
def test_average_is_the_weighted_mean(debias):
  average = averaging.init({'w': jnp.full(2, 3.0)}, 0.9, debias=debias)
  for v in VALUES:
    average = averaging.update(average, {'w': jnp.full(2, v)}, 0.9)
  weights = np.array([0.1 * 0.9 ** (len(VALUES) - 1 - i) for i in range(len(VALUES))])
  wanted = np.sum(weights * VALUES)
  wanted = wanted / np.sum(weights) if debias else wanted + 0.9 ** len(VALUES) * 3.0
  found = averaging.value(average, {'w': jnp.zeros(2)})
  np.testing.assert_allclose(found['w'], wanted, rtol=1e-6)


def test_parameters_stand_in_until_something_is_averaged():
  params = {'w': jnp.arange(3.0)}
  for decay in (0.0, 0.9):
    average = averaging.init(params, decay)
    np.testing.assert_array_equal(averaging.value(average, params)['w'], params['w'])
  assert averaging.init(params, 0.0) is None
  assert averaging.update(None, params, 0.9) is None
