"""Attention one query and one key at a time, float64, from the papers' equations (see lmx/layers/rnn_attention.py)."""

from __future__ import annotations

import numpy as np


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def score(name, p, q, k, s) -> float:
  """How well the key k at position s fits the query q; p holds the score's parameters."""
  if name == 'cosine':  # Graves et al. 2014, equations 5 and 6
    emitted = p['query'].T @ q
    strength = np.log1p(np.exp(p['strength'][:, 0] @ q + p['strength_bias'][0]))
    return strength * (emitted @ k) / (np.linalg.norm(emitted) * np.linalg.norm(k))
  if name == 'cosine_plain':  # equation 6
    return q @ k / (np.linalg.norm(q) * np.linalg.norm(k))
  if name == 'additive':  # Bahdanau et al. 2015, appendix A.1.2
    return p['energy'] @ np.tanh(p['query'].T @ q + p['key'].T @ k + p['bias'])
  if name == 'concat':  # Luong et al. 2015, section 3.1
    return p['energy'] @ np.tanh(p['matrix'].T @ np.concatenate([q, k]))
  if name == 'concat_identity':  # footnote 15
    return p['energy'] @ np.tanh(p['matrix'].T @ q + k)
  if name == 'location':  # equation 8
    return p['query'][:, s] @ q
  if name == 'general':
    return q @ p['matrix'] @ k
  if name == 'dot':
    return q @ k
  return q @ k / np.sqrt(len(q))  # Vaswani et al. 2017, equation 1


def scores(name, p, q_TD, k_SE) -> np.ndarray:
  """(T, S)."""
  return np.array([[score(name, p, q, k, s) for s, k in enumerate(k_SE)] for q in q_TD])


def centre(window, p, q, t, length) -> float:
  """Where a local window stands; past the end of the source local_m stays at its last position."""
  if window == 'local_m':
    return min(t, length - 1)
  return length * sigmoid(p['centre'] @ np.tanh(p['centre_query'].T @ q))  # Luong et al. 2015, equation 9


def weights(window, p, scores_S, q, t, length, reach) -> np.ndarray:
  """Weights of the first `length` positions, zeros after them (equations 7 and 10)."""
  a = np.zeros(len(scores_S))
  middle = 0.0 if window == 'global' else centre(window, p, q, t, length)
  seen = [s for s in range(length) if window == 'global' or abs(s - middle) <= reach]
  if seen:
    e = np.exp(scores_S[seen] - scores_S[seen].max())
    a[seen] = e / e.sum()
  if window == 'local_p':
    sigma = reach / 2
    for s in seen:
      a[s] *= np.exp(-((s - middle) ** 2) / (2 * sigma**2))
  return a
