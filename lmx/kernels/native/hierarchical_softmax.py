"""word2vec's updates with hierarchical softmax (the loss is in lmx/objectives/skipgram.py).

The threads divide an update as in negative_sampling.py. The scores of a row are, centre after centre and vector
after vector, those of the nodes on the centre's path. The gradient of a node is made as it is added to the table.

Axes: as in windows.py; L nodes of a row's paths, one after the other; P scores of a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cfunc, njit

from lmx.kernels.native import threads
from lmx.kernels.native.elementary import COMPILED, FAST
from lmx.kernels.native.frame import ARGUMENTS, F32, I8, I32, RESULTS, is_question, matrix, prefetch
from lmx.kernels.native.threads import claim, enter, meet, share
from lmx.kernels.native.windows import (
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

SYMBOL = 'lmx_word2vec_tree'
_thread = threads.named(SYMBOL)


@njit(**FAST)
def _list_nodes(top_TR: Any, path_M: Any, owner_M: Any, sign_M: Any, node_L: Any, left_L: Any, count_T: Any) -> None:
  """List the nodes of each centre's path, and 1 where the path goes left, else 0; count those of each centre."""
  T, R = top_TR.shape
  M = owner_M.size
  # Linked list of each centre's positions below the top: its first, and the successor of each.
  begin_T, next_M = np.full(T, -1, np.int32), np.empty(M, np.int32)
  for m in range(M - 1, -1, -1):
    if sign_M[m] != 0:
      next_M[m], begin_T[owner_M[m]] = begin_T[owner_M[m]], m
  at = 0
  for t in range(T):
    before = at
    for r in range(R):
      if top_TR[t, r] != 0:
        node_L[at], left_L[at] = r, top_TR[t, r] > 0
        at += 1
    m = begin_T[t]
    while m >= 0:
      node_L[at], left_L[at] = path_M[m], sign_M[m] > 0
      at += 1
      m = next_M[m]
    count_T[t] = at - before


@njit(**FAST)
def _weigh(left_L: Any, count_T: Any, spans: Any, w: Any, is_cbow: Any, weight_P: Any, positive_P: Any) -> Any:
  """Set the scores' weights, 0 for a centre among its neighbours; return the numbers of scores and of pairs."""
  first_T, last_T = spans
  at, p, pairs = 0, 0, 0
  for t in range(count_T.size):
    K = count_T[t]
    if first_T[t] != last_T[t]:
      low, high = (t, t) if is_cbow else (first_T[t], last_T[t])
      for q in range(low, high + 1):
        is_pair = is_cbow or q != t + w
        pairs += is_pair
        for k in range(K):
          weight_P[p + k], positive_P[p + k] = is_pair, left_L[at + k] * is_pair
        p += K
    at += K
  return p, pairs


@njit(**FAST)
def _four(node_L: Any, at: Any, last: Any) -> Any:
  """Return four nodes from place `at` on; beyond the last one of a path it is itself again."""
  return node_L[at], node_L[min(at + 1, last)], node_L[min(at + 2, last)], node_L[min(at + 3, last)]


@njit(**FAST)
def _score(output_VD: Any, node_L: Any, count_T: Any, spans: Any, h_QW: Any, is_cbow: Any, score_P: Any) -> None:
  """Set the scores, four nodes at a time."""
  first_T, last_T = spans
  D = output_VD.shape[1]
  at, p = 0, 0
  for t in range(count_T.size):
    K = count_T[t]
    if t + 1 < count_T.size:
      for k in range(at + K, at + K + count_T[t + 1]):
        prefetch(output_VD, node_L[k], 0, D)
    if first_T[t] != last_T[t]:
      low, high = (t, t) if is_cbow else (first_T[t], last_T[t])
      for q in range(low, high + 1):
        for k in range(0, K, 4):
          e, f, g, h = _four(node_L, at + k, at + K - 1)
          a = b = c = d = np.float32(0)
          for j in range(D):
            x = h_QW[q, j]
            a += x * output_VD[e, j]
            b += x * output_VD[f, j]
            c += x * output_VD[g, j]
            d += x * output_VD[h, j]
          # In this order, because the next scores are set later.
          score_P[p + k], score_P[p + k + 1], score_P[p + k + 2], score_P[p + k + 3] = a, b, c, d
        p += K
    at += K


@njit(**FAST)
def _add_to_vectors(
  output_VD: Any, node_L: Any, count_T: Any, spans: Any, slope_P: Any, is_cbow: Any, dh_QW: Any
) -> None:
  """Add the gradients of the hidden vectors, four nodes at a time."""
  first_T, last_T = spans
  D, zero = output_VD.shape[1], np.float32(0)
  at, p = 0, 0
  for t in range(count_T.size):
    K = count_T[t]
    if first_T[t] != last_T[t]:
      low, high = (t, t) if is_cbow else (first_T[t], last_T[t])
      for q in range(low, high + 1):
        for k in range(0, K, 4):  # missing nodes have slope 0
          e, f, g, h = _four(node_L, at + k, at + K - 1)
          a, b = slope_P[p + k], slope_P[p + k + 1] if k + 1 < K else zero
          c, d = slope_P[p + k + 2] if k + 2 < K else zero, slope_P[p + k + 3] if k + 3 < K else zero
          for j in range(D):
            dh_QW[q, j] += a * output_VD[e, j] + b * output_VD[f, j] + c * output_VD[g, j] + d * output_VD[h, j]
        p += K
    at += K


@njit(**FAST)
def _add_to_nodes(
  output_VD: Any,
  node_L: Any,
  count_T: Any,
  spans: Any,
  h_QW: Any,
  slope_P: Any,
  is_cbow: Any,
  scale: Any,
  thread: Any,
  count: Any,
) -> None:
  """Add `scale` times the gradients of a thread's nodes to the table, four vectors at a time."""
  first_T, last_T = spans
  D, zero = output_VD.shape[1], np.float32(0)
  at, p = 0, 0
  for t in range(count_T.size):
    K = count_T[t]
    if t + 1 < count_T.size:
      for k in range(at + K, at + K + count_T[t + 1]):
        if node_L[k] % count == thread:
          prefetch(output_VD, node_L[k], 0, D)
    if first_T[t] != last_T[t]:
      low, high = (t, t) if is_cbow else (first_T[t], last_T[t])
      for k in range(K):
        node, q, slope = node_L[at + k], low, p + k
        if node % count != thread:
          continue
        while q <= high:
          if q == high:
            a = scale * slope_P[slope]
            for j in range(D):
              output_VD[node, j] += a * h_QW[q, j]
          else:  # missing vectors have slope 0
            r, i = min(q + 2, high), min(q + 3, high)
            a, b = scale * slope_P[slope], scale * slope_P[slope + K]
            c = scale * slope_P[slope + 2 * K] if q + 2 <= high else zero
            d = scale * slope_P[slope + 3 * K] if q + 3 <= high else zero
            for j in range(D):
              change = a * h_QW[q, j] + b * h_QW[q + 1, j] + c * h_QW[r, j] + d * h_QW[i, j]
              output_VD[node, j] += change
          q, slope = q + 4, slope + 4 * K
      p += K * (high - low + 1)
    at += K


@njit(**FAST)
def _node_squares(node_L: Any, count_T: Any, spans: Any, h_QW: Any, slope_P: Any, is_cbow: Any, dtop_RW: Any) -> Any:
  """Return the squares of the gradients of nodes below the top, and add those of the others to `dtop_RW`."""
  first_T, last_T = spans
  dy_W = np.empty(h_QW.shape[1], np.float32)
  at, p, total = 0, 0, 0.0
  for t in range(count_T.size):
    K = count_T[t]
    if first_T[t] != last_T[t]:
      low, high = (t, t) if is_cbow else (first_T[t], last_T[t])
      for k in range(K):
        node = node_L[at + k]
        for j in range(dy_W.size):
          dy_W[j] = 0
        for q in range(low, high + 1):
          slope = slope_P[p + (q - low) * K + k]
          for j in range(dy_W.size):
            dy_W[j] += slope * h_QW[q, j]
        for j in range(dy_W.size):
          if node < dtop_RW.shape[0]:
            dtop_RW[node, j] += dy_W[j]
          else:
            total += np.float64(dy_W[j]) * np.float64(dy_W[j])
      p += K * (high - low + 1)
    at += K
  return total


@njit(**FAST)
def _differentiate(
  output_VD: Any, nodes: Any, span: Any, h_QW: Any, slope_P: Any, dx_SW: Any, scratch: Any, flags: Any
) -> Any:
  """Set the slopes of one row and the gradients of its context words; return (loss, number of pairs or centres)."""
  node_L, left_L, count_T = nodes
  dh_TW, weight_P, positive_P = scratch
  is_cbow, is_mean = flags
  w = (dx_SW.shape[0] - count_T.size) // 2
  _score(output_VD, node_L, count_T, span, h_QW, is_cbow, slope_P)
  scores, pairs = _weigh(left_L, count_T, span, w, is_cbow, weight_P, positive_P)
  loss = slopes(slope_P[:scores], weight_P[:scores], positive_P[:scores])
  clear(dx_SW, 0, dx_SW.shape[0])
  if is_cbow:
    clear(dh_TW, 0, dh_TW.shape[0])
    _add_to_vectors(output_VD, node_L, count_T, span, slope_P, is_cbow, dh_TW)
    spread(dh_TW, span[0], span[1], is_mean, dx_SW)
  else:
    _add_to_vectors(output_VD, node_L, count_T, span, slope_P, is_cbow, dx_SW)
  return loss, pairs


@cfunc('int64(int64)', **COMPILED)
def _work(block: Any) -> Any:
  """Run one thread's share of `operation`."""
  thread, count, frame = enter(block)
  embed_VD, output_VD = matrix(frame, RESULTS, 0, F32), matrix(frame, RESULTS, 1, F32)
  tokens, documents = matrix(frame, ARGUMENTS, 2, I32), matrix(frame, ARGUMENTS, 3, I32)
  window, top = matrix(frame, ARGUMENTS, 4, I32), matrix(frame, ARGUMENTS, 5, I8)
  path, owner = matrix(frame, ARGUMENTS, 6, I32), matrix(frame, ARGUMENTS, 7, I32)
  sign, flags = matrix(frame, ARGUMENTS, 8, I8), matrix(frame, ARGUMENTS, 9, I32)
  rate, sums_B5 = matrix(frame, ARGUMENTS, 10, F32)[0, 0], matrix(frame, RESULTS, 2, F32)
  dx, h, slope = matrix(frame, RESULTS, 3, F32), matrix(frame, RESULTS, 4, F32), matrix(frame, RESULTS, 5, F32)
  node, counts, spans = matrix(frame, RESULTS, 6, I32), matrix(frame, RESULTS, 7, I32), matrix(frame, RESULTS, 8, I32)
  S, T, W, B, P = tokens.shape[1], window.shape[1], h.shape[1], sums_B5.shape[0], slope.shape[1]
  J, is_cbow, is_mean = tokens.shape[0] // B, flags[0, 0] != 0, flags[0, 1] != 0
  Q = T if is_cbow else S
  left_L, x_SW = np.empty(node.shape[1], np.float32), np.zeros((S, W), np.float32)
  scratch = np.empty((T, W), np.float32), np.empty(P, np.float32), np.empty(P, np.float32)
  is_finite = True
  if thread == 0:
    clear(h, 0, B * S)
  meet(block, count, 0)
  for j in range(J):
    b = claim(block, j)
    while b < B:
      r, span, h_QW = b * J + j, (spans[2 * b], spans[2 * b + 1]), h[b * S : b * S + Q]
      bounds(documents[r], window[r], span[0], span[1])
      _list_nodes(top[r * T : (r + 1) * T], path[r], owner[r], sign[r], node[b], left_L, counts[b])
      take(embed_VD, tokens[r], x_SW if is_cbow else h_QW)
      if is_cbow:
        means(x_SW, span[0], span[1], h_QW)
      nodes, dx_SW = (node[b], left_L, counts[b]), dx[b * S : (b + 1) * S]
      loss, pairs = _differentiate(output_VD, nodes, span, h_QW, slope[b], dx_SW, scratch, (is_cbow, is_mean))
      record(sums_B5, b, loss, pairs)
      b = claim(block, j)
    meet(block, count, 2 * j + 1)
    is_finite &= is_finite_update(sums_B5)
    if j == 0 and thread == 0 and is_finite:
      dtop_RW = np.zeros((top.shape[1], W), np.float32)
      for b in range(B):
        span, h_QW = (spans[2 * b], spans[2 * b + 1]), h[b * S : b * S + Q]
        sums_B5[b, 3] = _node_squares(node[b], counts[b], span, h_QW, slope[b], is_cbow, dtop_RW)
      sums_B5[0, 3] += squares(dtop_RW) + squares(dx)
    if is_finite:
      for b in range(B):
        span, h_QW = (spans[2 * b], spans[2 * b + 1]), h[b * S : b * S + Q]
        add_rows(embed_VD, tokens[b * J + j], -rate, dx[b * S : (b + 1) * S], thread, count)
        _add_to_nodes(output_VD, node[b], counts[b], span, h_QW, slope[b], is_cbow, -rate, thread, count)
    meet(block, count, 2 * j + 2)
  if thread == 0:
    sums_B5[0, 4] = is_finite
  return 0


threads.define(SYMBOL, _work)


@cfunc('int64(int64)', **COMPILED)
def operation(frame: Any) -> Any:
  """Apply the J updates of a batch in place.

  Arguments: both tables, tokens_BJS, documents_BJS, window_BJT, top_BJTR, path_BJM, owner_BJM, sign_BJM, (is CBOW,
  mean gradient, threads), the rate. Results: both tables; sums (B, 5) as in negative_sampling.py; and memory that the
  threads share: gradients and hidden vectors of an update, its slopes, nodes, numbers of nodes, and windows.
  """
  if not is_question(frame):
    sums_B5, tokens = matrix(frame, RESULTS, 2, F32), matrix(frame, ARGUMENTS, 2, I32)
    clear(sums_B5, 0, sums_B5.shape[0])
    loops, count = tokens.shape[0] // sums_B5.shape[0], matrix(frame, ARGUMENTS, 9, I32)[0, 2]
    share(frame, _thread(), count, loops)
  return 0
