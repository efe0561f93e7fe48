"""Child et al. 2019 (arXiv 1904.10509), sections 4 and 5, restated in NumPy float64 on one row, with lmx's parameters.

A set of positions is a Python set, taken from the section's definition and counted from 0.
"""

from __future__ import annotations

import math

import numpy as np

from tests.reference import transformer as reference


def strided(i, l, released):
  """A1, the positions from i - l on (released: the last l), and A2, every l-th position backwards from i."""
  t = max(0, i - l + 1 if released else i - l)
  return set(range(t, i + 1)), {j for j in range(i + 1) if (i - j) % l == 0}


def fixed(i, l, c, h, released):
  """A1, the block of i, and A2, positions whose place in the block is one of c, the last (released: head h's) ones."""
  t = l - c if not released else l - c * (1 + h % (l // c))
  places = set(range(t, t + c))
  return {j for j in range(i + 1) if j // l == i // l}, {j for j in range(i + 1) if j % l in places}


def chosen(i, h, heads, pattern, sets, l, c, released):
  """S_i of head h."""
  first, second = strided(i, l, released) if pattern == 'strided' else fixed(i, l, c, h, released)
  if sets == 'heads':
    sets = 'first' if h < heads // 2 else 'second'
  return {'first': first, 'second': second, 'merged': first | second}[sets]


def attend(q_THK, k_THK, v_THK, pattern, sets, l, c=1, released=False, documents_T=None):
  """Equations 2 to 4 for every position and head; the mean over an empty set is 0."""
  T, H, K = q_THK.shape
  o_THK = np.zeros((T, H, K))
  for i in range(T):
    for h in range(H):
      found = sorted(chosen(i, h, H, pattern, sets, l, c, released))
      if documents_T is not None:
        found = [j for j in found if documents_T[j] == documents_T[i]]
      if found:
        a = k_THK[found, h] @ q_THK[i, h] / math.sqrt(K)
        e = np.exp(a - a.max())
        o_THK[i, h] = e / e.sum() @ v_THK[found, h]
  return o_THK


def model(params, tokens_T, pattern, merge, l, c, released, eps):
  """Logits (T, V), section 5.2: both parts of a block read a normalised sum and are added to it."""
  p = params['embed']
  place = np.arange(len(tokens_T))
  x_TD = p['tokens'][tokens_T] + p['rows'][place // l] + p['columns'][place % l]
  for n, name in enumerate(sorted(name for name in params if name.startswith('layer_'))):
    layer = params[name]
    sets = ('first', 'second')[n % 2] if merge == 'alternate' else merge
    h_TD = reference.layer_norm(x_TD, layer['norm_1'], eps)
    qkv = np.einsum('TD,DCHK->CTHK', h_TD, layer['attention']['qkv']['kernel'])
    qkv = qkv + layer['attention']['qkv']['bias'][:, None]
    o_THK = attend(*qkv, pattern, sets, l, c, released)
    out = layer['attention']['out']
    x_TD = x_TD + np.einsum('THK,HKD->TD', o_THK, out['kernel']) + out['bias']
    h_TD = reference.layer_norm(x_TD, layer['norm_2'], eps)
    x_TD = x_TD + reference.mlp(h_TD, layer['mlp'], 'sigmoid')
  return reference.layer_norm(x_TD, params['norm'], eps) @ params['output']['table'].T
