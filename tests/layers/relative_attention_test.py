"""Attention by distance: the shift, which keys are seen, and two backends with one result."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx import host
from lmx.layers import relative_attention

B, H, K = 2, 3, 8


@pytest.mark.parametrize('T, R', [(1, 1), (1, 6), (5, 5), (4, 9)])
def test_shift_brings_each_distance_to_its_key(T, R):  # noqa: N803
  x_BHTR = np.random.default_rng(0).standard_normal((2, 3, T, R)).astype(np.float32)
  found = np.asarray(relative_attention.shift(jnp.asarray(x_BHTR)))
  for t in range(T):
    for s in range(R - T + t + 1):  # keys not after the query
      distance = R - T + t - s
      np.testing.assert_array_equal(found[:, :, t, s], x_BHTR[:, :, t, R - 1 - distance])


def test_shift_is_no_gather():
  """Neither is its gradient."""
  loss = lambda x: jnp.sum(jnp.square(relative_attention.shift(x)))
  compiled = jax.jit(jax.grad(loss)).lower(jnp.zeros((2, 3, 4, 9))).compile().as_text()
  assert ' gather(' not in compiled and ' scatter(' not in compiled
  taken = jax.jit(lambda x: jnp.take(x, jnp.array([2, 0]), axis=1)).lower(jnp.zeros((2, 3))).compile().as_text()
  assert ' gather(' in taken  # that is what a gather looks like


def test_a_query_sees_what_is_not_after_it_not_too_far_and_there():
  T, M = 3, 4
  found = np.asarray(relative_attention.allowed(relative_attention.Mask(jnp.array([4, 1, 0]), 3), M, (0, T), M + T))
  for b, filled in enumerate((4, 1, 0)):
    for t in range(T):
      expected = [0 <= M + t - s <= 3 and s >= M - filled for s in range(M + T)]
      assert found[b, t].tolist() == expected
  every = relative_attention.allowed(relative_attention.Mask(), 0, (0, T), T)
  assert np.asarray(every)[0].tolist() == np.tri(T, dtype=bool).tolist()


def inputs(T, M, seed=0):  # noqa: N803
  rng = np.random.default_rng(seed)
  draw = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)
  return draw(B, T, H, K), draw(B, T, H, K), draw(B, M + T, H, K), draw(B, M + T, H, K), draw(M + T, H, K)


@pytest.mark.parametrize(
  'T, M, filled, farthest, rate',
  [
    (5, 0, None, None, 0.0),
    (70, 9, (9, 4), None, 0.0),
    (150, 40, None, 30, 0.0),
    (130, 20, (0, 20), 25, 0.3),
    (1, 7, (7, 2), None, 0.0),
    (64, 64, None, None, 0.5),
  ],
)
def test_the_blocked_backend_is_the_plain_one(T, M, filled, farthest, rate):  # noqa: N803
  """Values and all five gradients, with the same masks of dropout."""
  given, key = inputs(T, M), jax.random.key(3) if rate else None
  mask = relative_attention.Mask(None if filled is None else jnp.array(filled), farthest)
  weights = np.random.default_rng(1).standard_normal((B, T, H, K)).astype(np.float32)

  def run(backend):
    def total(*given):
      out = relative_attention.attend(*given, None, mask, backend=backend, rate=rate, key=key)
      return jnp.sum(out * weights), out

    return jax.jit(jax.value_and_grad(total, argnums=range(5), has_aux=True))(*given)

  ((_, plain), expected), ((_, blocked), found) = run('xla'), run('blocked')
  np.testing.assert_allclose(blocked, plain, rtol=1e-5, atol=1e-5)
  for name, a, b in zip(('a', 'b', 'k', 'v', 'r'), found, expected, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5, err_msg=name)


def test_each_score_is_that_of_the_equation():
  """softmax over s of (a_t k_s + b_t r(t - s)) / sqrt(K), one by one."""
  T, M = 4, 3
  a, b, k, v, r = inputs(T, M)
  found = relative_attention.attend(a, b, k, v, r, None, relative_attention.Mask(), backend='xla')
  for t in range(T):
    seen = range(M + t + 1)
    scores = [(a[1, t, 2] @ k[1, s, 2] + b[1, t, 2] @ r[M + T - 1 - (M + t - s), 2]) / K**0.5 for s in seen]
    p = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(found[1, t, 2], p @ v[1, : M + t + 1, 2], rtol=1e-5, atol=1e-5)


def test_auto_is_blocked_only_where_it_serves(monkeypatch):
  """On one CPU device, with several cores for long rows alone, and not with a bias for each distance."""
  used = []
  plain = relative_attention._by_heads
  monkeypatch.setattr(relative_attention, '_by_heads', lambda *args: used.append(1) or plain(*args))
  run = functools.partial(relative_attention.attend, *inputs(200, 200))
  run(None, relative_attention.Mask())
  assert not used  # there are eight devices here
  monkeypatch.setattr(jax, 'device_count', lambda: 1)
  monkeypatch.setattr(host, 'cores', lambda: 2)
  run(None, relative_attention.Mask())
  assert not used
  monkeypatch.setattr(relative_attention, 'BLOCKED_FROM_CORES', 200 * 400)
  run(None, relative_attention.Mask())
  assert used.pop() == 1
  monkeypatch.setattr(relative_attention, 'BLOCKED_FROM_CORES', 200 * 400 + 1)
  monkeypatch.setattr(host, 'cores', lambda: 1)
  run(None, relative_attention.Mask())
  assert used == [1]
  run(jnp.zeros((H, 400)), relative_attention.Mask())
  assert used == [1]


def test_dropout_drops_its_share():
  given = inputs(64, 64)
  ones = given[:3] + (jnp.ones_like(given[3]), given[4])
  run = lambda key: relative_attention.attend(*ones, None, relative_attention.Mask(), backend='xla', rate=0.25, key=key)
  found = np.stack([run(jax.random.key(i)) for i in range(20)])
  assert abs(found.mean() - 1) < 0.02 and found.std() > 0.05
  np.testing.assert_allclose(run(None), 1, rtol=1e-6)
