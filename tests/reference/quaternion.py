"""Quaternions by Hamilton's rules, and what Tay et al. 2019 make of them, one number at a time in float64."""

from __future__ import annotations

import numpy as np

# What the units give times one another (left, above), from i^2 = j^2 = k^2 = ijk = -1: (which unit, sign).
UNITS = '1ijk'
RULES = {
  'ii': ('1', -1),
  'jj': ('1', -1),
  'kk': ('1', -1),
  'ij': ('k', 1),
  'jk': ('i', 1),
  'ki': ('j', 1),
  'ji': ('k', -1),
  'kj': ('i', -1),
  'ik': ('j', -1),
  **{'1' + u: (u, 1) for u in UNITS},
  **{u + '1': (u, 1) for u in UNITS},
}


def product(p, q) -> np.ndarray:
  """The Hamilton product of two quaternions, each (4,)."""
  found = np.zeros(4)
  for a, x in zip(UNITS, p, strict=True):
    for b, y in zip(UNITS, q, strict=True):
      unit, sign = RULES[a + b]
      found[UNITS.index(unit)] += sign * x * y
  return found


def quaternions(x) -> np.ndarray:
  """A vector whose quarters are the components, as (number, 4)."""
  return np.asarray(x, np.float64).reshape(4, -1).T


def linear(w_CXY, x) -> np.ndarray:
  """sum_n W_nm * Q_n for every m: a vector of width 4 Y from one of 4 X."""
  w, q = np.asarray(w_CXY, np.float64), quaternions(x)
  found = [sum(product(w[:, n, m], q[n]) for n in range(len(q))) for m in range(w.shape[2])]
  return np.array(found).T.reshape(-1)


def share(x, H, h, grouping) -> np.ndarray:
  """What head h of H has of a vector, (K,): of each component its part, or a piece of the vector as it stands."""
  x = np.asarray(x)
  if grouping == 'contiguous':
    return x.reshape(H, -1)[h]
  return np.concatenate([part.reshape(H, -1)[h] for part in x.reshape(4, -1)])


def together(heads, grouping) -> np.ndarray:
  """The vector of which `heads` (H, K) are the shares."""
  if grouping == 'contiguous':
    return np.concatenate(list(heads))
  return np.concatenate([np.concatenate([h.reshape(4, -1)[c] for h in heads]) for c in range(4)])


def attention(q_TK, k_SK, v_SK, may_look, scores) -> np.ndarray:
  """One head of section 3.2, (T, K): component c of the sum of q_n k_n weighs component c of the values."""
  T, K = q_TK.shape
  out = np.zeros((T, 4, K // 4))
  for t in range(T):
    seen = [s for s in range(len(k_SK)) if may_look(t, s)]
    if scores == 'whole':
      a_S4 = np.repeat([[q_TK[t] @ k_SK[s]] for s in seen], 4, axis=1)
    else:
      pairs = lambda t, s: zip(quaternions(q_TK[t]), quaternions(k_SK[s]), strict=True)
      a_S4 = np.array([sum(product(q, k) for q, k in pairs(t, s)) for s in seen])
    p_S4 = np.exp((a_S4 - a_S4.max(0)) / np.sqrt(K))
    p_S4 /= p_S4.sum(0)
    out[t] = sum(p[:, None] * v_SK[s].reshape(4, -1) for p, s in zip(p_S4, seen, strict=True))
  return out.reshape(T, K)
