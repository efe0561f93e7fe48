"""Transformer-XL (Dai et al. 2019, section 3.3 and appendix) in plain NumPy, one sentence of the paper after another.

One row at a time, every score by its own loop over query and key, float64.
"""

from __future__ import annotations

import numpy as np


def encoding(distance: float, width: int) -> np.ndarray:
  """R of one distance: sines, then cosines, of Vaswani's frequencies."""
  frequencies = 1 / 10_000 ** (np.arange(0, width, 2) / width)
  return np.concatenate([np.sin(distance * frequencies), np.cos(distance * frequencies)])


def softmax(x: np.ndarray) -> np.ndarray:
  e = np.exp(x - x.max())
  return e / e.sum()


def norm(x: np.ndarray, p: dict) -> np.ndarray:
  centred = x - x.mean(-1, keepdims=True)
  return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p['scale'] + p['bias']


def attention(p: dict, x_TD: np.ndarray, memory_MD: np.ndarray, u_HK, v_HK, clamp: int, farthest: float) -> np.ndarray:
  """Section 3.3: A = q k + q r + u k + v r, each over sqrt(K), then softmax over the keys not after the query."""
  T, M, (H, K) = len(x_TD), len(memory_MD), u_HK.shape
  h_SD, out_TD = np.concatenate([memory_MD, x_TD]), np.zeros_like(x_TD)
  for t in range(T):
    for h in range(H):
      q = x_TD[t] @ p['qkv'][:, 0, h]
      keys = [s for s in range(M + t + 1) if M + t - s <= farthest]
      a = np.array([_score(p, q, h_SD[s], M + t - s, h, u_HK, v_HK, clamp) for s in keys]) / np.sqrt(K)
      o = softmax(a) @ np.stack([h_SD[s] @ p['qkv'][:, 2, h] for s in keys])
      out_TD[t] += o @ p['out']['kernel'][h]
  return out_TD


def _score(p, q, key_D, distance, h, u_HK, v_HK, clamp):
  k = key_D @ p['qkv'][:, 1, h]
  if 'distances' in p:  # Shaw et al.: a vector and a bias for each distance
    row = min(distance, clamp)
    return q @ k + u_HK[h] @ k + q @ p['distances'][row, h] + p['distance_bias'][row, h]
  r = encoding(min(distance, clamp or distance), len(key_D)) @ p['r']['kernel'][:, h]
  return q @ k + q @ r + u_HK[h] @ k + v_HK[h] @ r


def layer(p: dict, x_TD: np.ndarray, memory_MD: np.ndarray, u_HK, v_HK, clamp: int = 0, farthest: float = np.inf):
  """h_n from h_{n-1} of the segment and of the memory."""
  y_TD = norm(x_TD + attention(p['attention'], x_TD, memory_MD, u_HK, v_HK, clamp, farthest), p['norm_1'])
  hidden = np.maximum(y_TD @ p['mlp']['in']['kernel'] + p['mlp']['in']['bias'], 0)
  return norm(y_TD + hidden @ p['mlp']['out']['kernel'] + p['mlp']['out']['bias'], p['norm_2'])


def segments(params: dict, x_LD: np.ndarray, T: int, M: int, u_v, **options) -> np.ndarray:
  """The last layer over a text of embeddings, read in segments of T with a memory of M, empty at first.

  `u_v(i)` gives both biases of layer i.
  """
  names = sorted(name for name in params if name.startswith('layer_'))
  memory = [np.zeros((0, x_LD.shape[1])) for _ in names]
  out = []
  for start in range(0, len(x_LD), T):
    x_TD = x_LD[start : start + T]
    for i, name in enumerate(names):
      before, memory[i] = memory[i], np.concatenate([memory[i], x_TD])[-M:] if M else memory[i]
      x_TD = layer(params[name], x_TD, before, *u_v(i), **options)
    out.append(x_TD)
  return np.concatenate(out)


def word_nll(given: dict, output: dict, cutoffs, V: int, x_D: np.ndarray, word: int) -> float:
  """-log p(word): of the head, and for a word of a cluster the head's probability of it times that within it."""
  edges, narrow = [0, *cutoffs, V], 'tokens_0' in given

  def scores(i: int) -> np.ndarray:
    ending = f'_{i}' if narrow else ''
    rows, bias = given[f'tokens{ending}'], output[f'bias{ending}']
    if not narrow:
      rows, bias = rows[edges[i] : edges[i + 1]], bias[edges[i] : edges[i + 1]]
    if i == 0 and cutoffs:
      rows = np.concatenate([rows, output['clusters']['kernel']])
      bias = np.concatenate([bias, output['clusters']['bias']])
    shared = output.get(f'projection{ending}', given.get(f'projection{ending}'))
    projection = output.get(f'projection_{i}', shared)
    y = x_D if projection is None else projection @ x_D
    return rows @ y + bias

  cluster = sum(word >= edge for edge in cutoffs)
  if cluster == 0:
    return -np.log(softmax(scores(0))[word])
  door = softmax(scores(0))[edges[1] + cluster - 1]
  return -np.log(door) - np.log(softmax(scores(cluster))[word - edges[cluster]])
