"""Losses chunk by chunk against the loss of all tokens at once."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx import placement
from lmx.kernels import softmax_loss
from lmx.layers import softmax
from lmx.ops import softmax_loss as equations
from tests import placed

B, T, V, D = 2, 7, 23, 5


def draw():
  rng = np.random.default_rng(0)
  x_BTD, table_VD, bias_V = (rng.standard_normal(shape, np.float32) for shape in ((B, T, D), (V, D), (V,)))
  return x_BTD, table_VD, bias_V, rng.integers(0, V, (B, T)), rng.standard_normal((B, T), np.float32)


close = functools.partial(jax.tree.map, functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5))


def test_loss_and_gradients_match_unchunked():
  x_BTD, table_VD, bias_V, targets_BT, weights_BT = draw()
  nll = lambda x, targets, table_VD: softmax.cross_entropy(softmax.tied_logits(x, table_VD, bias_V), targets)

  def loss(x_BTD, table_VD, chunk):
    score = lambda x, targets: nll(x, targets, table_VD)
    nll_BT = softmax_loss.token_losses(score, x_BTD, targets_BT, chunk) if chunk else score(x_BTD, targets_BT)
    return jnp.sum(weights_BT * nll_BT), nll_BT

  run = jax.grad(loss, argnums=(0, 1), has_aux=True)
  plain, *chunked = jax.jit(lambda *args: [run(*args, chunk) for chunk in (None, 1, 3 * B, 7 * B)])(x_BTD, table_VD)
  for found in chunked:
    close(found, plain)


def test_chunks_keep_no_scores_for_the_backward_pass():
  """The largest array that the backward pass is handed has fewer entries than the scores."""
  x_BTD, table_VD, _, targets_BT, _ = draw()

  def largest(chunk):
    score = lambda x, targets: softmax.cross_entropy(softmax.tied_logits(x, table_VD), targets)
    nll = lambda x: softmax_loss.token_losses(score, x, targets_BT, chunk)
    return max(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(lambda: jax.vjp(nll, x_BTD)[1])))

  assert largest(None) >= B * T * V
  assert largest(B) < B * T * V


@pytest.mark.parametrize('chunk', [None, 1, 3 * B, 7 * B])
def test_sum_formed_with_its_gradient_equals_the_sum_of_chunks(chunk):
  x_BTD, table_VD, bias_V, targets_BT, weights_BT = draw()

  def of_chunk(table_VD, bias_V, x_BMD, targets_BM):
    logits_BMV = softmax.tied_logits(x_BMD, table_VD, bias_V)
    nll_BM = softmax.cross_entropy(logits_BMV, targets_BM)
    cost_BM = nll_BM + 0.1 * jnp.mean(logits_BMV, axis=-1)
    return cost_BM, (nll_BM, softmax_loss.is_best(logits_BMV, targets_BM))

  def formed(x_BTD, table_VD, bias_V):
    score = functools.partial(of_chunk, table_VD, bias_V)
    total, measured = softmax_loss.weighted_sum(score, x_BTD, targets_BT, weights_BT, chunk)
    return 3 * total + jnp.sum(measured[0]), (total, measured)  # no gradient comes from what is measured

  def plain(x_BTD, table_VD, bias_V):
    cost_BT, measured = of_chunk(table_VD, bias_V, x_BTD, targets_BT)
    total = jnp.sum(cost_BT * weights_BT)
    return 3 * total, (total, measured)

  @jax.jit
  def run(*args):
    of = lambda f: jax.value_and_grad(f, argnums=(0, 1, 2), has_aux=True)(*args)
    return of(formed), of(plain), formed(*args)[1]  # where no gradient is asked for none is formed

  ((_, values), grads), ((_, expected), expected_grads), without = run(x_BTD, table_VD, bias_V)
  close(grads, expected_grads)
  close(values, expected)
  jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), without, values)


def test_sum_stores_only_the_gradient_for_the_backward_pass():
  x_BTD, table_VD, _, targets_BT, weights_BT = draw()

  def total(x_BTD, table_VD):
    score = lambda x, targets: (softmax.cross_entropy(softmax.tied_logits(x, table_VD), targets), ())
    return softmax_loss.weighted_sum(score, x_BTD, targets_BT, weights_BT, B)[0]

  kept = [leaf.size for leaf in jax.tree.leaves(jax.eval_shape(lambda: jax.vjp(total, x_BTD, table_VD)[1]))]
  assert sorted(size for size in kept if size > 1) == sorted([x_BTD.size, table_VD.size])


def test_is_best_equals_argmax_also_of_equal_scores():
  rng = np.random.default_rng(0)
  scores, targets = rng.integers(0, 4, (50, 9, 7)).astype(np.float32), rng.integers(0, 7, (50, 9))  # many are equal
  expected = np.argmax(scores, -1) == targets
  assert 0 < expected.mean() < 1
  found = jax.jit(softmax_loss.is_best)(scores, targets)
  np.testing.assert_array_equal(found, expected)
  assert found.dtype == jnp.float32


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_normalizer_in_one_pass_equals_the_equation(dtype):
  rng = np.random.default_rng(0)
  logits_BTV, bar_BT = 30 * rng.standard_normal((B, T, V)), rng.standard_normal((B, T))
  logits_BTV[0, 0], logits_BTV[0, 1], logits_BTV[..., ::11] = 1e4, -1e4, -np.inf
  logits_BTV, bar_BT = jnp.asarray(logits_BTV, dtype), jnp.asarray(bar_BT, jnp.float32)

  def run(normalize):
    norm_BT, pull = jax.vjp(normalize, logits_BTV)
    return norm_BT, pull(bar_BT.astype(norm_BT.dtype))[0].astype(jnp.float32)

  with placed.on('gpu'):
    found = jax.jit(lambda: run(softmax_loss.log_normalizer))()
  tolerance = 1e-5 if dtype == 'float32' else 1e-2
  for a, b in zip(found, run(equations.log_normalizer.equation), strict=True):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize('logits, chunks', [('float32', 4), ('bfloat16', 2)])
def test_chunks_have_as_many_bytes_of_logits_in_either_type(logits, chunks):
  with placement.scope(dataclasses.replace(placed.at('gpu'), logits=logits)):
    (x_NBM,) = softmax_loss._split(None, jnp.zeros((16, 4 * softmax_loss.CHUNK // 16)))
  assert x_NBM.shape[0] == chunks
