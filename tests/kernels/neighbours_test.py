"""Sums over neighbours against the products of matrices that they are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx import placement
from lmx.engine import devices
from lmx.ops import neighbours

T, W, D = 7, 6, 3


def arrays():
  """(near_BWT, the same weights as pairs_BST, x_BSD, y_BTD)."""
  rng = np.random.default_rng(0)
  near = rng.random((2, W, T)).astype(np.float32)
  pairs = np.zeros((2, T + W, T), np.float32)
  for w, slot in neighbours.offsets(W):
    for t in range(T):
      pairs[:, t + slot, t] = near[:, w, t]
  return near, pairs, *(rng.normal(size=(2, n, D)).astype(np.float32) for n in (T + W, T))


def cotangent_of(x):
  return np.random.default_rng(1).normal(size=x.shape).astype(np.float32)


@pytest.mark.parametrize('where', [None, devices.of_process()], ids=['plain', 'alone'])
def test_sums_and_gradients_are_products_of_matrices(where):
  near, pairs, x, y = arrays()
  assert not np.any([pairs[:, t + W // 2, t] for t in range(T)])  # no centre is its own neighbour
  for of, given, form in ((neighbours.gather, x, 'bst,bsd->btd'), (neighbours.spread, y, 'bst,btd->bsd')):
    with placement.scope(where):
      found, pull = jax.vjp(lambda given, of=of: of(near, given), given)
      gradient = pull(cotangent_of(found))[0]
    expected, pull_expected = jax.vjp(lambda given, form=form: jnp.einsum(form, pairs, given), given)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradient, pull_expected(cotangent_of(found))[0], rtol=1e-5, atol=1e-5)
