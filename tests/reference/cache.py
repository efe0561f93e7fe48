"""Continuous cache (Grave et al. 2017, arXiv 1612.04426, section 3) in NumPy float64: one row, word by word."""

from __future__ import annotations

import numpy as np


def probabilities(h_TD, words_T, p_TV, window, lam, theta):
  """The mixture's distributions (T, V) of a text whose word at t, `words_T[t]`, follows output `h_TD[t]`."""
  found = []
  for t, (h_D, p_V) in enumerate(zip(h_TD, p_TV, strict=True)):
    kept = range(max(0, t - window), t)
    if not kept:
      found.append(p_V)
      continue
    scores = np.array([theta * h_D @ h_TD[i] for i in kept])
    share = np.exp(scores - scores.max())
    share /= share.sum()
    cached_V = np.zeros_like(p_V)
    for i, s in zip(kept, share, strict=True):
      cached_V[words_T[i]] += s
    found.append((1 - lam) * p_V + lam * cached_V)
  return np.stack(found)
