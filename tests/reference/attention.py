"""Attention one query at a time, float64."""

from __future__ import annotations

import numpy as np


def attention(q_BTHK, k_BSHK, v_BSHK, may_look) -> np.ndarray:
  """softmax(q k / sqrt(K)) v over the keys s with may_look(b, t, s), (B, T, H, K)."""
  B, T, H, K = q_BTHK.shape
  out = np.zeros((B, T, H, K))
  for b in range(B):
    for t in range(T):
      seen = [s for s in range(k_BSHK.shape[1]) if may_look(b, t, s)]
      for h in range(H):
        scores = np.array([np.dot(q_BTHK[b, t, h], k_BSHK[b, s, h]) for s in seen], np.float64) / np.sqrt(K)
        p = np.exp(scores - scores.max())
        p /= p.sum()
        out[b, t, h] = sum(p[i] * v_BSHK[b, s, h].astype(np.float64) for i, s in enumerate(seen))
  return out
