"""word2vec's updates with shared noise words (the loss is in lmx/objectives/skipgram.py).

Threads claim an update's rows one by one and compute their gradients. After a barrier, each thread adds the gradients
to its own rows of both tables, in batch order. So the result does not depend on the number of threads.

Axes: as in windows.py; P pairs of a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cfunc, njit

from lmx.kernels.native import threads
from lmx.kernels.native.elementary import COMPILED, FAST
from lmx.kernels.native.frame import ARGUMENTS, F32, I32, RESULTS, is_question, matrix
from lmx.kernels.native.threads import claim, enter, meet, share
from lmx.kernels.native.windows import (
  add_product,
  add_rows,
  bounds,
  clear,
  is_finite_update,
  means,
  record,
  slopes,
  spread,
  squares,
  take,
)

SYMBOL = 'lmx_word2vec_negative'
_thread = threads.named(SYMBOL)


@njit(**FAST)
def _list_pairs(first_T: Any, last_T: Any, is_cbow: Any, query_P: Any, centre_P: Any) -> Any:
  """List the pairs of a vector and the centre that it predicts; return their number."""
  T = first_T.size
  w = query_P.size // T // 2
  pairs = 0
  for t in range(T):
    if first_T[t] != last_T[t]:
      low, high = (t, t) if is_cbow else (first_T[t], last_T[t])
      for q in range(low, high + 1):
        if is_cbow or q != t + w:
          query_P[pairs], centre_P[pairs] = q, t
          pairs += 1
  return pairs


@njit(**FAST)
def _weigh(
  centres_T: Any, negatives_M: Any, weights_M: Any, query_P: Any, centre_P: Any, pairs: Any, weight_QM: Any
) -> None:
  """Set the weight of each score with a noise word; a noise word that is the pair's centre does not count."""
  Q, M = weight_QM.shape
  count_Q = np.zeros(Q, np.float32)
  for p in range(pairs):
    count_Q[query_P[p]] += 1
  for q in range(Q):
    for m in range(M):
      weight_QM[q, m] = count_Q[q] * weights_M[m]
  for p in range(pairs):
    centre = centres_T[centre_P[p]]
    for m in range(M):
      if negatives_M[m] == centre:
        weight_QM[query_P[p], m] -= weights_M[m]


@njit(**FAST)
def _differentiate(vectors: Any, ids: Any, spans: Any, gradients: Any, is_cbow: Any, is_mean: Any) -> Any:
  """Set the gradients of one row; return (loss, number of pairs or centres)."""
  x_SW, y_TW, n_MW = vectors
  centres_T, negatives_M, weights_M = ids
  first_T, last_T = spans
  dx_SW, dy_TW, dn_MW = gradients
  (S, W), T, M = x_SW.shape, y_TW.shape[0], n_MW.shape[0]
  clear(dx_SW, 0, S)
  clear(dy_TW, 0, T)
  clear(dn_MW, 0, M)
  h_QW, dh_QW, Q = x_SW, dx_SW, S
  if is_cbow:
    h_QW, dh_QW, Q = np.empty((T, W), np.float32), np.zeros((T, W), np.float32), T
    means(x_SW, first_T, last_T, h_QW)
  P = (S - T) * T
  query_P, centre_P = np.empty(P, np.int32), np.empty(P, np.int32)
  pairs = _list_pairs(first_T, last_T, is_cbow, query_P, centre_P)
  slope_P, one_P = np.empty(pairs, np.float32), np.ones(pairs, np.float32)
  for p in range(pairs):
    q, t = query_P[p], centre_P[p]
    score = np.float32(0)
    for j in range(W):
      score += h_QW[q, j] * y_TW[t, j]
    slope_P[p] = score
  loss = slopes(slope_P, one_P, one_P)
  for p in range(pairs):
    q, t, slope = query_P[p], centre_P[p], slope_P[p]
    for j in range(W):
      dh_QW[q, j] += slope * y_TW[t, j]
      dy_TW[t, j] += slope * h_QW[q, j]
  n_WM, slope_QM, weight_QM = np.empty((W, M), np.float32), np.zeros((Q, M), np.float32), np.empty((Q, M), np.float32)
  for m in range(M):
    for j in range(W):
      n_WM[j, m] = n_MW[m, j]
  add_product(h_QW, n_WM, slope_QM)
  _weigh(centres_T, negatives_M, weights_M, query_P, centre_P, pairs, weight_QM)
  loss += slopes(slope_QM.reshape(Q * M), weight_QM.reshape(Q * M), np.zeros(Q * M, np.float32))
  add_product(slope_QM, n_MW, dh_QW)
  add_product(slope_QM.T, h_QW, dn_MW)
  if is_cbow:
    spread(dh_QW, first_T, last_T, is_mean, dx_SW)
  return loss, pairs


@cfunc('int64(int64)', **COMPILED)
def _work(block: Any) -> Any:
  """Run one thread's share of `operation`."""
  thread, count, frame = enter(block)
  embed_VD, output_VD = matrix(frame, RESULTS, 0, F32), matrix(frame, RESULTS, 1, F32)
  tokens, documents = matrix(frame, ARGUMENTS, 2, I32), matrix(frame, ARGUMENTS, 3, I32)
  window, negatives = matrix(frame, ARGUMENTS, 4, I32), matrix(frame, ARGUMENTS, 5, I32)
  weights, flags = matrix(frame, ARGUMENTS, 6, F32), matrix(frame, ARGUMENTS, 7, I32)
  rate, sums_B5 = matrix(frame, ARGUMENTS, 8, F32)[0, 0], matrix(frame, RESULTS, 2, F32)
  dx, dy, dn = matrix(frame, RESULTS, 3, F32), matrix(frame, RESULTS, 4, F32), matrix(frame, RESULTS, 5, F32)
  S, T, M, W, B = tokens.shape[1], window.shape[1], negatives.shape[1], dx.shape[1], sums_B5.shape[0]
  J, w = tokens.shape[0] // B, (S - T) // 2
  x_SW, y_TW, n_MW = np.zeros((S, W), np.float32), np.zeros((T, W), np.float32), np.zeros((M, W), np.float32)
  first_T, last_T = np.empty(T, np.int32), np.empty(T, np.int32)
  is_finite = True
  for j in range(J):
    b = claim(block, j)
    while b < B:
      r = b * J + j
      centres_T = tokens[r, w : w + T]
      take(embed_VD, tokens[r], x_SW)
      take(output_VD, centres_T, y_TW)
      take(output_VD, negatives[r], n_MW)
      bounds(documents[r], window[r], first_T, last_T)
      loss, pairs = _differentiate(
        (x_SW, y_TW, n_MW),
        (centres_T, negatives[r], weights[r]),
        (first_T, last_T),
        (dx[b * S : (b + 1) * S], dy[b * T : (b + 1) * T], dn[b * M : (b + 1) * M]),
        flags[0, 0] != 0,
        flags[0, 1] != 0,
      )
      record(sums_B5, b, loss, pairs)
      b = claim(block, j)
    meet(block, count, 2 * j)
    is_finite &= is_finite_update(sums_B5)
    if j == 0 and thread == 0 and is_finite:
      sums_B5[0, 3] = squares(dx) + squares(dy) + squares(dn)
    if is_finite:
      for b in range(B):
        r = b * J + j
        add_rows(embed_VD, tokens[r], -rate, dx[b * S : (b + 1) * S], thread, count)
        add_rows(output_VD, tokens[r, w : w + T], -rate, dy[b * T : (b + 1) * T], thread, count)
        add_rows(output_VD, negatives[r], -rate, dn[b * M : (b + 1) * M], thread, count)
    meet(block, count, 2 * j + 1)
  if thread == 0:
    sums_B5[0, 4] = is_finite
  return 0


threads.define(SYMBOL, _work)


@cfunc('int64(int64)', **COMPILED)
def operation(frame: Any) -> Any:
  """Apply the J updates of a batch in place.

  Arguments: both tables, tokens_BJS, documents_BJS, window_BJT, negatives_BJM, weights_BJM, (is CBOW, mean gradient,
  threads), the rate. Results: both tables; sums (B, 5): the loss of the last update, and in all the loss, the pairs,
  squares of the first update's gradients, and 1 if all was finite; and memory for the gradients of an update.
  """
  if not is_question(frame):
    sums_B5, tokens = matrix(frame, RESULTS, 2, F32), matrix(frame, ARGUMENTS, 2, I32)
    clear(sums_B5, 0, sums_B5.shape[0])
    loops, count = tokens.shape[0] // sums_B5.shape[0], matrix(frame, ARGUMENTS, 7, I32)[0, 2]
    share(frame, _thread(), count, loops)
  return 0
