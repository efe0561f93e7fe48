"""Loops shared by both word2vec losses: windows, table rows, small products, and the logistic function.

Arrays are matrices. Vectors are copied to be next to each other, in rows that zeros pad to W columns.

Axes: as in lmx/models/word2vec.py; Q vectors that are scored, K rows that score them, W columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from lmx.kernels.native.elementary import FAST, exp
from lmx.kernels.native.frame import prefetch

AHEAD = 8  # number of table rows prefetched ahead


@njit(**FAST)
def slopes(score: Any, weight: Any, positive: Any) -> Any:
  """Replace scores by weight s(score) - positive; return the sum of weight log(1 + e^score) - positive score.

  log(1 + e) is 2 artanh(e / (2 + e)), a series of six terms for e from 0 to 1.
  """
  total = np.float32(0)
  for i in range(score.size):
    x = score[i]
    size = abs(x)
    e = exp(-min(size, np.float32(87)))
    z = e / (np.float32(2) + e)
    q = z * z
    series = np.float32(2 / 9) + q * (np.float32(2 / 11) + q * np.float32(2 / 13))
    series = np.float32(2 / 3) + q * (np.float32(2 / 5) + q * (np.float32(2 / 7) + q * series))
    softplus = np.float32(0.5) * (x + size) + z * (np.float32(2) + q * series)
    total += weight[i] * softplus - positive[i] * x
    share = np.float32(1) / (np.float32(1) + e)
    score[i] = weight[i] * (share if x >= 0 else e * share) - positive[i]
  return total


@njit(**FAST)
def add_product(g_QK: Any, y_KD: Any, dx_QD: Any) -> None:
  """Add g_QK y_KD to dx_QD, four rows of y at a time."""
  Q, D = dx_QD.shape
  K = y_KD.shape[0]
  whole = K - K % 4
  for i in range(Q):
    for k in range(0, whole, 4):
      a, b, c, d = g_QK[i, k], g_QK[i, k + 1], g_QK[i, k + 2], g_QK[i, k + 3]
      for j in range(D):
        dx_QD[i, j] += a * y_KD[k, j] + b * y_KD[k + 1, j] + c * y_KD[k + 2, j] + d * y_KD[k + 3, j]
    for k in range(whole, K):
      a = g_QK[i, k]
      for j in range(D):
        dx_QD[i, j] += a * y_KD[k, j]


@njit(**FAST)
def clear(rows: Any, first: Any, last: Any) -> None:
  """Zero rows `first` to `last` - 1; a slice assignment would take Numba seconds to compile."""
  for i in range(first, last):
    for j in range(rows.shape[1]):
      rows[i, j] = 0


@njit(**FAST)
def take(table_VD: Any, ids: Any, out: Any) -> None:
  """Copy the rows `ids` of a table."""
  for i in range(ids.size):
    if i + AHEAD < ids.size:
      prefetch(table_VD, ids[i + AHEAD], 0, table_VD.shape[1])
    row = ids[i]
    for j in range(table_VD.shape[1]):
      out[i, j] = table_VD[row, j]


@njit(**FAST)
def add_rows(table_VD: Any, ids: Any, scale: Any, rows: Any, thread: Any, count: Any) -> None:
  """Add `scale` times rows to the rows `ids` of a table that this thread owns, one of every `count`."""
  for i in range(ids.size):
    row = ids[i]
    if row % count == thread:
      for j in range(table_VD.shape[1]):
        table_VD[row, j] += scale * rows[i, j]


@njit(**FAST)
def squares(rows: Any) -> Any:
  """Return the sum of the squares."""
  total = 0.0
  for i in range(rows.shape[0]):
    for j in range(rows.shape[1]):
      total += np.float64(rows[i, j]) * np.float64(rows[i, j])
  return total


@njit(**FAST)
def bounds(documents_S: Any, window_T: Any, first_T: Any, last_T: Any) -> None:
  """Set the first and the last slot in each centre's window, as `lmx.models.word2vec.bounds`."""
  window = (documents_S.size - window_T.size) // 2
  for t in range(window_T.size):
    centre = low = high = t + window
    while centre - low < window_T[t] and documents_S[low - 1] == documents_S[centre]:
      low -= 1
    while high - centre < window_T[t] and documents_S[high + 1] == documents_S[centre]:
      high += 1
    first_T[t], last_T[t] = low, high


@njit(**FAST)
def means(x_SD: Any, first_T: Any, last_T: Any, h_TD: Any) -> None:
  """Set each centre's hidden vector of CBOW, the mean of its neighbours; 0 where it has none."""
  window = (x_SD.shape[0] - h_TD.shape[0]) // 2
  clear(h_TD, 0, h_TD.shape[0])
  for t in range(h_TD.shape[0]):
    scale = np.float32(1) / np.float32(max(last_T[t] - first_T[t], 1))
    for s in range(first_T[t], last_T[t] + 1):
      if s != t + window:
        for j in range(h_TD.shape[1]):
          h_TD[t, j] += x_SD[s, j]
    for j in range(h_TD.shape[1]):
      h_TD[t, j] *= scale


@njit(**FAST)
def spread(dh_TD: Any, first_T: Any, last_T: Any, is_mean: Any, dx_SD: Any) -> None:
  """Add each centre's gradient to its neighbours, divided by their number if `is_mean`."""
  window = (dx_SD.shape[0] - dh_TD.shape[0]) // 2
  for t in range(dh_TD.shape[0]):
    scale = np.float32(1) / np.float32(max(last_T[t] - first_T[t], 1)) if is_mean else np.float32(1)
    for s in range(first_T[t], last_T[t] + 1):
      if s != t + window:
        for j in range(dh_TD.shape[1]):
          dx_SD[s, j] += scale * dh_TD[t, j]


@njit(**FAST)
def record(sums_B5: Any, b: Any, loss: Any, uses: Any) -> None:
  """Record row b's loss in this update, and add it and its number of pairs or centres to the totals."""
  sums_B5[b, 0] = loss
  sums_B5[b, 1] += loss
  sums_B5[b, 2] += uses


@njit(**FAST)
def is_finite_update(sums_B5: Any) -> Any:
  """Return True if the sum of the rows' losses in this update is finite."""
  total = np.float32(0)
  for b in range(sums_B5.shape[0]):
    total += sums_B5[b, 0]
  return np.isfinite(total)
