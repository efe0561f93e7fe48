"""The tied output layer: restatement, gradients, types."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.layers import softmax
from tests import placed

B, T, V, D = 2, 7, 23, 5


def draw():
  rng = np.random.default_rng(0)
  x_BTD, table_VD, bias_V = (rng.standard_normal(shape, np.float32) for shape in ((B, T, D), (V, D), (V,)))
  return x_BTD, table_VD, bias_V, rng.integers(0, V, (B, T)), rng.standard_normal((B, T), np.float32)


@pytest.mark.parametrize(('with_bias', 'platform'), [(True, 'cpu'), (False, 'cpu'), (True, 'gpu')])
def test_matches_reference_with_gradients(with_bias, platform):
  x_BTD, table_VD, bias_V, targets_BT, weight_BT = draw()
  x, e, b = (np.asarray(a, np.float64) for a in (x_BTD, table_VD, bias_V * with_bias))
  scores = x @ e.T + b
  p = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
  hit = np.asarray(targets_BT)[..., None] == np.arange(V)
  expected = -np.log(p[hit]).reshape(B, T)
  d = (p - hit) * np.asarray(weight_BT)[..., None]

  def loss(x_BTD, table_VD, bias_V):
    bias_V = bias_V if with_bias else None
    nll_BT = softmax.tied_nll(x_BTD, table_VD, targets_BT, bias_V)
    return jnp.sum(weight_BT * nll_BT), nll_BT

  run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))
  with placed.on(platform):
    (_, nll_BT), grads = run(x_BTD, table_VD, bias_V)
    assert ('scatter' in str(run.trace(x_BTD, table_VD, bias_V).jaxpr)) == (platform == 'cpu')
  close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
  close(nll_BT, expected)
  close(grads[0], d @ e)
  close(grads[1], np.einsum('BTV,BTD->VD', d, x))
  close(grads[2], d.sum((0, 1)) * with_bias)


def test_logits_are_float32_for_any_input_type():
  x_BTD, table_VD, *_ = draw()
  scores = jax.jit(softmax.tied_logits)(x_BTD.astype(jnp.bfloat16), table_VD)
  assert scores.dtype == jnp.float32
  np.testing.assert_allclose(scores, x_BTD @ table_VD.T, atol=0.1)
