"""The attention equation against the plain restatement."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from lmx.ops import attention, masks
from tests.reference import attention as reference

DOCUMENTS_BT = np.array([[0] * 3 + [1] * 5 + [2] * 3, [0] * 11])
VALID_BT = np.arange(11) < np.array([[11], [6]])
MASKS = {
  'all': ({}, lambda b, t, s: True),
  'valid': ({'valid_BT': VALID_BT}, lambda b, t, s: VALID_BT[b, s]),
  'documents': ({'documents_BT': DOCUMENTS_BT}, lambda b, t, s: DOCUMENTS_BT[b, t] == DOCUMENTS_BT[b, s]),
  'both': (
    {'valid_BT': VALID_BT, 'documents_BT': DOCUMENTS_BT},
    lambda b, t, s: VALID_BT[b, s] and DOCUMENTS_BT[b, t] == DOCUMENTS_BT[b, s],
  ),
}


def draw(B=2, T=11, H=2, K=8, S=None):
  rng = np.random.default_rng(0)
  return [rng.standard_normal((B, n, H, K), np.float32) for n in (T, S or T, S or T)]


@pytest.mark.parametrize('causal', [True, False])
@pytest.mark.parametrize('mask', MASKS)
def test_matches_reference(causal, mask):
  q, k, v = draw()
  batch, allowed = MASKS[mask]
  both = lambda b, t, s: allowed(b, t, s) and (not causal or s <= t)
  run = jax.jit(functools.partial(attention.attend.equation, causal=causal))
  found = run(q, k, v, masks.from_batch(batch))
  expected = reference.attention(*(np.asarray(x) for x in (q, k, v)), both)
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_queries_attend_at_their_own_positions():
  """As with a cache: row b's queries are at 3 + t and 5 + t, and the keys after them are hidden."""
  q, k, v = draw(T=3, S=9)
  start_B = np.array([3, 5])
  mask = masks.AttentionMask(query_position_BT=start_B[:, None] + np.arange(3))
  found = jax.jit(functools.partial(attention.attend.equation, causal=True))(q, k, v, mask)
  expected = reference.attention(*map(np.asarray, (q, k, v)), lambda b, t, s: s <= start_B[b] + t)
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_attention_dropout_preserves_the_mean():
  """Values of one: without dropout every output is 1; with it they scatter around 1."""
  q, k, _ = draw(B=4, T=32, H=4)
  mask = masks.AttentionMask()
  attend = functools.partial(
    attention.attend.equation, q * 0.1, k * 0.1, np.ones_like(k), mask, causal=False, rate=0.25
  )
  run = jax.jit(lambda key: attend(key=key))
  np.testing.assert_allclose(run(None), 1.0, rtol=1e-5)
  dropped = np.asarray(run(jax.random.key(3)))[..., 0]
  # 512 outputs of 32 keys each: the deviation of an output is sqrt(0.25 / 0.75 / 32) = 0.10.
  assert abs(dropped.mean() - 1) < 0.02
  assert 0.08 < dropped.std() < 0.13
  assert not np.allclose(dropped, np.asarray(run(jax.random.key(4)))[..., 0])
