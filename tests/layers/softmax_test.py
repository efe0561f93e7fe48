"""The tied output layer: restatement, blocks, gradients, types."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.layers import softmax

B, T, V, D = 2, 7, 23, 5


def draw():
  keys = jax.random.split(jax.random.key(0), 5)
  x_BTD = jax.random.normal(keys[0], (B, T, D))
  table_VD = jax.random.normal(keys[1], (V, D))
  bias_V = jax.random.normal(keys[2], (V,))
  targets_BT = jax.random.randint(keys[3], (B, T), 0, V)
  return x_BTD, table_VD, bias_V, targets_BT, jax.random.normal(keys[4], (B, T))


@pytest.mark.parametrize('block', [None, 1, 2 * B, 3 * B, 7 * B])
@pytest.mark.parametrize('with_bias', [True, False])
def test_equals_restatement_with_gradients_in_any_blocks(block, with_bias):
  x_BTD, table_VD, bias_V, targets_BT, weight_BT = draw()
  x, e, b = (np.asarray(a, np.float64) for a in (x_BTD, table_VD, bias_V * with_bias))
  scores = x @ e.T + b
  p = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
  hit = np.asarray(targets_BT)[..., None] == np.arange(V)
  expected = -np.log(p[hit]).reshape(B, T)
  d = (p - hit) * np.asarray(weight_BT)[..., None]

  def loss(x_BTD, table_VD, bias_V):
    bias_V = bias_V if with_bias else None
    nll_BT = softmax.tied_nll(x_BTD, table_VD, targets_BT, bias_V, block=block)
    return jnp.sum(weight_BT * nll_BT), nll_BT

  (_, nll_BT), grads = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))(x_BTD, table_VD, bias_V)
  close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
  close(nll_BT, expected)
  close(grads[0], d @ e)
  close(grads[1], np.einsum('BTV,BTD->VD', d, x))
  close(grads[2], d.sum((0, 1)) * with_bias)


def test_blocks_keep_no_scores_for_the_backward_pass():
  """The largest array that the backward pass is handed has fewer entries than the scores."""
  x_BTD, table_VD, _, targets_BT, _ = draw()
  largest = lambda block: max(
    leaf.size
    for leaf in jax.tree.leaves(jax.vjp(lambda x: softmax.tied_nll(x, table_VD, targets_BT, block=block), x_BTD)[1])
  )
  assert largest(None) >= B * T * V
  assert largest(B) < B * T * V


@pytest.mark.parametrize('block', [None, 1, 2 * B, 3 * B, 7 * B])
def test_sum_formed_with_its_gradient_equals_the_sum_of_blocks(block):
  x_BTD, table_VD, bias_V, targets_BT, weights_BT = draw()

  def of_block(table_VD, bias_V, x_BMD, targets_BM):
    logits_BMV = softmax.tied_logits(x_BMD, table_VD, bias_V)
    cost_BM, nll_BM = softmax.smoothed(logits_BMV, targets_BM, 0.1)
    return cost_BM, (nll_BM, softmax.best(logits_BMV, targets_BM))

  def formed(x_BTD, table_VD, bias_V):
    score = functools.partial(of_block, table_VD, bias_V)
    total, measured = softmax.summed(score, x_BTD, targets_BT, weights_BT, block)
    return 3 * total + jnp.sum(measured[0]), (total, measured)  # no gradient comes from what is measured

  def plain(x_BTD, table_VD, bias_V):
    cost_BT, measured = of_block(table_VD, bias_V, x_BTD, targets_BT)
    total = jnp.sum(cost_BT * weights_BT)
    return 3 * total, (total, measured)

  run = lambda of: jax.jit(jax.value_and_grad(of, argnums=(0, 1, 2), has_aux=True))(x_BTD, table_VD, bias_V)
  ((_, values), grads), ((_, expected), expected_grads) = run(formed), run(plain)
  jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), grads, expected_grads)
  jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), values, expected)
  without = jax.jit(formed)(x_BTD, table_VD, bias_V)[1]  # where no gradient is asked for none is formed
  jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), without, values)


def test_sum_keeps_the_gradient_alone_for_the_backward_pass():
  x_BTD, table_VD, _, targets_BT, weights_BT = draw()

  def total(x_BTD, table_VD):
    score = lambda x, targets: (softmax.cross_entropy(softmax.tied_logits(x, table_VD), targets), ())
    return softmax.summed(score, x_BTD, targets_BT, weights_BT, B)[0]

  kept = [leaf.size for leaf in jax.tree.leaves(jax.vjp(total, x_BTD, table_VD)[1])]
  assert sorted(size for size in kept if size > 1) == sorted([x_BTD.size, table_VD.size])


def test_best_is_argmax_also_of_equal_scores():
  scores = jax.random.randint(jax.random.key(0), (50, 9, 7), 0, 4).astype(jnp.float32)  # many are equal
  targets = jax.random.randint(jax.random.key(1), (50, 9), 0, 7)
  expected = jnp.argmax(scores, -1) == targets
  assert 0 < expected.mean() < 1
  np.testing.assert_array_equal(softmax.best(scores, targets), expected)
  assert softmax.best(scores, targets).dtype == jnp.float32


def test_scores_are_float32_whatever_goes_in():
  x_BTD, table_VD, *_ = draw()
  scores = softmax.tied_logits(x_BTD.astype(jnp.bfloat16), table_VD)
  assert scores.dtype == jnp.float32
  np.testing.assert_allclose(scores, softmax.tied_logits(x_BTD, table_VD), atol=0.1)
