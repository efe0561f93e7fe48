"""Addressing, reading and writing of a memory against the equations of the Neural Turing Machine."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.layers import ntm_memory
from tests.reference import ntm as reference

B, H, S, W = 2, 3, 11, 5


def numbers(seed: int, K: int):
  """Raw numbers of the heads, weightings and a memory, float64."""
  rng = np.random.default_rng(seed)
  raw = [rng.normal(size=(B, H, n)) * 1.5 for n in ntm_memory.sizes(W, K)]
  before = rng.dirichlet(np.ones(S), (B, H))
  return raw, before, rng.normal(size=(B, S, W))


@pytest.mark.parametrize('K', [1, 3, 5])
def test_one_step_of_addressing_is_equations_5_to_9(K):
  raw, before_BHS, memory_BSW = numbers(K, K)
  as_f32 = lambda x: np.asarray(x, np.float32)

  @jax.jit
  def run(raw, *given):
    return ntm_memory.address(ntm_memory.addressing(raw), *given, 1e-6)

  found = run(tuple(map(as_f32, raw)), as_f32(before_BHS), as_f32(memory_BSW))
  np.testing.assert_allclose(np.sum(found, -1), 1.0, atol=1e-6)
  key, beta, g, s, gamma = raw
  for b in range(B):
    for h in range(H):
      expected = reference.address(
        key[b, h],
        reference.softplus(beta[b, h, 0]),
        reference.sigmoid(g[b, h, 0]),
        reference.softmax(s[b, h]),
        1 + reference.softplus(gamma[b, h, 0]),
        before_BHS[b, h],
        memory_BSW[b],
      )
      np.testing.assert_allclose(found[b, h], expected, atol=1e-6)


def test_writing_is_equations_3_and_4_and_reading_is_2():
  rng = np.random.default_rng(0)
  weights, erase, add = rng.dirichlet(np.ones(S), (B, H)), rng.random((B, H, W)), rng.normal(size=(B, H, W))
  memory_BSW = rng.normal(size=(B, S, W))
  as_f32 = (np.asarray(x, np.float32) for x in (weights, erase, add, memory_BSW))
  both = jax.jit(lambda w, e, a, m: (ntm_memory.write(w, e, a, m), ntm_memory.read(w, m)))
  found, read = both(*as_f32)
  for b in range(B):
    np.testing.assert_allclose(found[b], reference.write(weights[b], erase[b], add[b], memory_BSW[b]), atol=1e-6)
    np.testing.assert_allclose(read[b], weights[b] @ memory_BSW[b], atol=1e-6)


def test_shift_weights_rotate_the_focus():
  weights, shift = np.eye(4, dtype=np.float32)[None, 3:], jax.jit(ntm_memory.shift)
  for s, row in (((1, 0, 0), 2), ((0, 1, 0), 3), ((0, 0, 1), 0)):
    moved = np.asarray(shift(weights, np.array([[s]], np.float32)))
    assert moved.argmax() == row and moved.max() == 1.0


def test_equal_rows_and_sharp_weightings_have_finite_gradients():
  """A memory that holds one small number in every place, a weighting that is 0 in all rows but one, and gamma large."""

  def loss(raw, before_BHS, memory_BSW):
    return jnp.sum(ntm_memory.address(ntm_memory.addressing(raw), before_BHS, memory_BSW, 1e-6)[..., 0])

  raw = tuple(np.full((1, 1, n), 8.0, np.float32) for n in ntm_memory.sizes(W, 3))
  before_BHS, gradient = np.eye(S, dtype=np.float32)[None, :1], jax.jit(jax.grad(loss, (0, 1, 2)))
  for value in (0.0, 1e-6):
    gradients = gradient(raw, before_BHS, np.full((1, S, W), value, np.float32))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
