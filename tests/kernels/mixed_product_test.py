"""Products with gradients in the operands' type: values, gradients, and the types that are multiplied."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.kernels import mixed_product

CASES = {
  'BTHK,BSHK->BHTS': ((2, 3, 4, 5), (2, 6, 4, 5)),
  'BTHK,RHK->BHTR': ((2, 3, 4, 5), (6, 4, 5)),
  '...D,VD->...V': ((2, 3, 5), (7, 5)),
}


def gradients(multiply, axes, x, y):
  shape = jax.eval_shape(functools.partial(multiply, axes), x, y).shape
  weights = np.random.default_rng(1).standard_normal(shape, np.float32)
  loss = lambda x, y: jnp.sum(multiply(axes, x, y) * weights)
  return jax.jit(jax.value_and_grad(loss, argnums=(0, 1))), (x, y)


def draw(axes, dtype):
  rng = np.random.default_rng(0)
  return [jnp.asarray(rng.standard_normal(shape), dtype) for shape in CASES[axes]]


def plain(axes, x, y):
  return jnp.einsum(axes, x, y, preferred_element_type=jnp.float32)


@pytest.mark.parametrize('axes', CASES)
def test_float32_is_the_einsum_to_the_bit(axes):
  (fast, args), (slow, _) = (gradients(f, axes, *draw(axes, 'float32')) for f in (mixed_product.einsum, plain))
  jax.tree.map(np.testing.assert_array_equal, fast(*args), slow(*args))


@pytest.mark.parametrize('axes', CASES)
def test_bfloat16_multiplies_only_bfloat16_and_adds_in_float32(axes):
  (fast, args), (slow, _) = (gradients(f, axes, *draw(axes, 'bfloat16')) for f in (mixed_product.einsum, plain))
  found, expected = fast(*args), slow(*args)
  np.testing.assert_array_equal(found[0], expected[0])  # the forward product is the same
  for a, b in zip(found[1], expected[1], strict=True):
    assert a.dtype == jnp.bfloat16
    np.testing.assert_allclose(a.astype(jnp.float32), b.astype(jnp.float32), rtol=0.02, atol=0.05)
  products = [line for line in fast.lower(*args).as_text().splitlines() if 'dot_general' in line]
  assert len(products) == 3 and not any('f32' in line.partition(' -> ')[0].rpartition(' : ')[2] for line in products)
  assert all(line.rstrip().endswith('xf32>') for line in products)
