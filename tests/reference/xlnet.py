"""XLNet's two streams (Yang et al. 2019, appendix A.2 and section 2.5) in plain NumPy, one row, one score at a time."""

from __future__ import annotations

import math

import numpy as np

from tests.reference.transformer_xl import encoding, softmax

_erf = np.vectorize(math.erf)


def norm(x: np.ndarray, p: dict) -> np.ndarray:
  centred = x - x.mean(-1, keepdims=True)
  return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * p['scale'] + p['bias']


def row(params: dict, given: dict, memory: list, M: int, direction: int) -> tuple[np.ndarray, np.ndarray, list]:
  """(content stream, query stream, the memory after it) of one row without dropout.

  `memory` holds what each layer remembers, at most M positions; `direction` is -1 for a row that is read from its end.
  """
  order, at, types = given['order_BT'], given['positions_BP'], given['types_BT']
  h = params['embed']['tokens'][given['tokens_BT']].astype(np.float64)
  g = np.tile(params['embed']['mask'], (len(at), 1)).astype(np.float64)
  after = []
  for i, kept in enumerate(memory):
    p = params[f'layer_{i:02d}']
    after.append(np.concatenate([kept, h])[-M:])
    content = [[s for s in range(len(h)) if order[s] <= order[t]] for t in range(len(h))]
    query = [[s for s in range(len(h)) if order[s] < order[t]] for t in at]
    new_h = _layer(p, h, range(len(h)), content, h, kept, types, direction)
    g = _layer(p, g, at, query, h, kept, types, direction)
    h = new_h
  return h, g, after


def _layer(p, x, places, seen, h, memory, types, direction):
  rows = zip(x, places, seen, strict=True)
  out = np.stack([_attend(p['attention'], q, t, s, h, memory, types, direction) for q, t, s in rows])
  y = norm(x + out, p['norm_1'])
  hidden = y @ p['mlp']['in']['kernel'] + p['mlp']['in']['bias']
  hidden = hidden * 0.5 * (1 + _erf(hidden / np.sqrt(2)))
  return norm(y + hidden @ p['mlp']['out']['kernel'] + p['mlp']['out']['bias'], p['norm_2'])


def _attend(p, x, t, seen, h, memory, types, direction):
  """Attention of a query at position t to the memory, all of it, and to the positions `seen` of the row."""
  M, (_, _, H, K) = len(memory), p['qkv'].shape
  keys = [(memory[m], M - m + t, 0) for m in range(M)] + [(h[s], t - s, types[s]) for s in seen]
  out = np.zeros_like(x)
  for n in range(H if keys else 0):
    q = x @ p['qkv'][:, 0, n]
    a = []
    for key, distance, kind in keys:
      sines = encoding(abs(distance), len(x))
      sign = np.where(np.arange(len(x)) < len(x) // 2, np.sign(distance * direction), 1)
      r = (sines * sign) @ p['r']['kernel'][:, n]
      e = p['types'][int(kind != types[t]), n]
      a.append((q + p['u'][n]) @ (key @ p['qkv'][:, 1, n]) + (q + p['v'][n]) @ r + (q + p['s'][n]) @ e)
    o = softmax(np.array(a) / np.sqrt(K)) @ np.stack([key @ p['qkv'][:, 2, n] for key, _, _ in keys])
    out += o @ p['out']['kernel'][n]
  return out
