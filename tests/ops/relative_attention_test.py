"""The relative shift, the scores of relative attention term by term, the attention mask, dropout, and the memory."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.layers.relative_attention import update_memory
from lmx.ops import relative_attention
from lmx.ops.visible import Segments

B, H, K = 2, 3, 8


def inputs(T, M, seed=0):  # noqa: N803
  """q, k, values, r, u, v."""
  rng = np.random.default_rng(seed)
  draw = lambda *shape: rng.standard_normal(shape, np.float32)
  return draw(B, T, H, K), draw(B, M + T, H, K), draw(B, M + T, H, K), draw(1, M + T, H, K), draw(H, K), draw(H, K)


@pytest.mark.parametrize('T, R', [(1, 1), (1, 6), (5, 5), (4, 9)])
def test_shift_brings_each_distance_to_its_key(T, R):  # noqa: N803
  x_BHTR = np.random.default_rng(0).standard_normal((2, 3, T, R)).astype(np.float32)
  shifted = np.asarray(jax.jit(relative_attention.shift)(x_BHTR))
  for t in range(T):
    for s in range(R - T + t + 1):  # keys not after the query
      distance = R - T + t - s
      np.testing.assert_array_equal(shifted[:, :, t, s], x_BHTR[:, :, t, R - 1 - distance])


def test_shift_uses_no_gather():
  """Neither is its gradient."""
  loss = lambda x: jnp.sum(jnp.square(relative_attention.shift(x)))
  compiled = jax.jit(jax.grad(loss)).lower(jnp.zeros((2, 3, 4, 9))).compile().as_text()
  assert ' gather(' not in compiled and ' scatter(' not in compiled
  taken = jax.jit(lambda x: jnp.take(x, jnp.array([2, 0]), axis=1)).lower(jnp.zeros((2, 3))).compile().as_text()
  assert ' gather(' in taken  # the name of a gather in compiled text


def test_each_query_attends_by_the_four_terms_of_the_paper():
  """softmax over s of (q k + q r + u k + v r) / sqrt(K), one product at a time (Dai et al. 2019, section 3.3)."""
  T, M = 4, 3
  q, k, value, r, u, v = arrays = inputs(T, M)
  visible = relative_attention.causal(T, M + T)
  output = np.asarray(jax.jit(functools.partial(relative_attention.attend, backend='xla'))(*arrays, visible))
  h = 2
  for t in range(T):
    scores = []
    for s in range(M + t + 1):
      k_s, r_d = k[1, s, h], r[0, M + T - 1 - (M + t - s), h]
      scores.append((q[1, t, h] @ k_s + q[1, t, h] @ r_d + u[h] @ k_s + v[h] @ r_d) / K**0.5)
    p = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(output[1, t, h], p @ value[1, : M + t + 1, h], rtol=1e-5, atol=1e-5)


def test_segment_scores_depend_on_whether_the_segments_differ():
  q, *_, s, _ = inputs(3, 0)
  e_2HK = np.stack([_, -2 * _])
  rng = np.random.default_rng(0)
  query_BT, key_BS = rng.integers(3, size=(B, 3)), rng.integers(3, size=(B, 5))
  segments = Segments(s, e_2HK, query_BT, key_BS)
  scores = np.asarray(jax.jit(relative_attention.segment_scores)(q, segments))
  for b, t, key in np.ndindex(B, 3, 5):
    expected = np.sum((q[b, t] + s) * e_2HK[int(query_BT[b, t] != key_BS[b, key])], axis=-1) / K**0.5
    np.testing.assert_allclose(scores[b, :, t, key], expected, rtol=1e-5, atol=1e-5)


def test_mask_hides_later_keys_far_keys_and_an_empty_memory():
  T, M = 3, 4
  mask = np.asarray(relative_attention.causal(T, M + T, jnp.array([4, 1, 0]), 3).mask())
  for b, filled in enumerate((4, 1, 0)):
    for t in range(T):
      assert mask[b, t].tolist() == [0 <= M + t - s <= 3 and s >= M - filled for s in range(M + T)]
  whole = relative_attention.causal(T, T)
  assert np.asarray(whole.mask())[0].tolist() == np.tri(T, dtype=bool).tolist()


def test_dropout_drops_its_share():
  q, k, value, *rest = inputs(64, 64)
  attend = functools.partial(
    relative_attention.attend,
    q,
    k,
    np.ones_like(value),
    *rest,
    relative_attention.causal(64, 128),
    backend='xla',
    rate=0.25,
  )
  run = jax.jit(lambda key: attend(key=key))
  outputs = np.stack([run(jax.random.key(i)) for i in range(20)])
  assert abs(outputs.mean() - 1) < 0.02 and outputs.std() > 0.05
  np.testing.assert_allclose(run(None), 1, rtol=1e-6)


def test_memory_keeps_the_last_real_positions():
  memory = np.arange(8, dtype=np.float32).reshape(2, 4, 1)
  new = 100 + np.arange(6, dtype=np.float32).reshape(2, 3, 1)
  update = jax.jit(update_memory)
  assert update(memory, new, None)[..., 0].tolist() == [[3, 100, 101, 102], [7, 103, 104, 105]]
  assert update(memory, new, np.array([0, 2]))[..., 0].tolist() == [[0, 1, 2, 3], [6, 7, 103, 104]]


def test_no_gradient_flows_into_the_memory():
  back = jax.grad(lambda m, x: jnp.sum(update_memory(m, x, None)), argnums=(0, 1))
  for gradient in jax.jit(back)(np.ones((1, 4, 2), np.float32), np.ones((1, 3, 2), np.float32)):
    assert not gradient.any()
