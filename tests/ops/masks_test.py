"""Masks against their definition, whole and block by block."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from lmx.ops import masks

B, T = 2, 6
VALID_BT = np.arange(T) < np.array([[6], [4]])
DOCUMENTS_BT = np.array([[0, 0, 1, 1, 1, 2], [3, 3, 3, 4, 4, 4]])


def definition(causal, valid, documents):
  out = np.ones((B, T, T), bool)
  for b in range(B):
    for t in range(T):
      for s in range(T):
        if causal and s > t or valid and not VALID_BT[b, s]:
          out[b, t, s] = False
        if documents and DOCUMENTS_BT[b, t] != DOCUMENTS_BT[b, s]:
          out[b, t, s] = False
  return out


@pytest.mark.parametrize('causal', [True, False])
@pytest.mark.parametrize('valid', [True, False])
@pytest.mark.parametrize('documents', [True, False])
def test_equals_definition_whole_and_in_blocks(causal, valid, documents):
  batch = {}
  if valid:
    batch['valid_BT'] = jnp.asarray(VALID_BT)
  if documents:
    batch['documents_BT'] = jnp.asarray(DOCUMENTS_BT)
  mask = masks.from_batch(batch)
  expected = definition(causal, valid, documents)
  whole = mask.allowed(causal, (0, T), (0, T))
  if not (causal or valid or documents):
    assert whole is None
    return
  np.testing.assert_array_equal(np.broadcast_to(whole, (B, T, T)), expected)
  block = mask.allowed(causal, (2, 5), (1, 4))
  np.testing.assert_array_equal(np.broadcast_to(block, (B, 3, 3)), expected[:, 2:5, 1:4])


def test_query_at_its_own_position_sees_the_keys_up_to_there():
  mask = masks.AttentionMask(query_position_BT=jnp.array([[1, 2], [4, 5]]))
  found = mask.allowed(True, (0, 2), (0, 5))
  np.testing.assert_array_equal(found, [[[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]], [[1, 1, 1, 1, 1], [1, 1, 1, 1, 1]]])
