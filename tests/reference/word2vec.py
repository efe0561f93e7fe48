"""word2vec (Mikolov et al. 2013) in plain NumPy: one pair after the other, gradients written out by hand."""

from __future__ import annotations

import numpy as np


def sigmoid(x):
  return 1.0 / (1.0 + np.exp(-x))


def contexts(tokens, documents, window, centre, width):
  """Slots in the window of the centre at slot `centre`."""
  low, high = max(0, centre - width), min(len(tokens), centre + width + 1)
  return [s for s in range(low, high) if s != centre and documents[s] == documents[centre]]


def loss_and_gradients(batch, embed_VD, output_VD, *, architecture, tree, cbow_gradient):
  """Loss and gradients of a batch of lmx.data.skipgrams, summed over its rows and updates.

  Returns:
    (loss, pairs or centres, gradient of embed_VD, gradient of output_VD).
  """
  d_embed, d_output = np.zeros_like(embed_VD), np.zeros_like(output_VD)
  total, count = 0.0, 0
  B, J, T = batch['window_BJT'].shape
  window = (batch['tokens_BJS'].shape[-1] - T) // 2
  for b in range(B):
    for j in range(J):
      tokens, documents = batch['tokens_BJS'][b, j], batch['documents_BJS'][b, j]
      for t in range(T):
        width = batch['window_BJT'][b, j, t]
        near = contexts(tokens, documents, window, t + window, width) if width else []
        if not near:
          continue
        hidden = [[s] for s in near] if architecture == 'skipgram' else [near]
        for slots in hidden:
          count += 1
          h = embed_VD[tokens[slots]].mean(0)
          d_h = np.zeros_like(h)
          for row, label, weight in decisions(batch, b, j, t, tokens[t + window], tree, slots, near, window):
            p = sigmoid(h @ output_VD[row])
            total -= weight * np.log(p if label else 1.0 - p)
            d_h += weight * (p - label) * output_VD[row]
            d_output[row] += weight * (p - label) * h
          for s in slots:
            d_embed[tokens[s]] += d_h if cbow_gradient == 'c' else d_h / len(slots)
  return total, count, d_embed, d_output


def decisions(batch, b, j, t, centre, tree, slots, near, window):
  """(output row, label, weight) of everything a pair of a hidden vector and a centre is asked."""
  if tree:
    signs = batch['top_BJTR'][b, j, t]
    for node, sign in enumerate(signs):
      if sign:
        yield node, int(sign > 0), 1.0
    for m, owner in enumerate(batch['owner_BJM'][b, j]):
      if owner == t and batch['sign_BJM'][b, j, m]:
        yield batch['path_BJM'][b, j, m], int(batch['sign_BJM'][b, j, m] > 0), 1.0
    return
  yield centre, 1, 1.0
  if 'negatives_BJM' in batch:
    drawn = zip(batch['negatives_BJM'][b, j], batch['weights_BJM'][b, j], strict=True)
  else:
    place = 0
    if len(slots) == 1 and batch['skipgram']:
      offset = slots[0] - t
      place = offset - (offset > window)
    drawn = ((n, 1.0) for n in batch['pair_negatives_BJTWK'][b, j, t, place])
  for n, weight in drawn:
    if n != centre:
      yield n, 0, weight


def codes(counts):
  """word -> its way from the root as a string of 0 (left) and 1 (right), by word2vec.c's CreateBinaryTree."""
  order = sorted(range(len(counts)), key=lambda i: -counts[i])
  n = len(order)
  count = [counts[i] for i in order] + [10**15] * n
  parent, binary = [0] * (2 * n), [0] * (2 * n)
  pos1, pos2 = n - 1, n
  for a in range(n - 1):
    chosen = []
    for _ in range(2):
      if pos1 >= 0 and count[pos1] < count[pos2]:
        chosen.append(pos1)
        pos1 -= 1
      else:
        chosen.append(pos2)
        pos2 += 1
    count[n + a] = count[chosen[0]] + count[chosen[1]]
    parent[chosen[0]] = parent[chosen[1]] = n + a
    binary[chosen[1]] = 1
  found = {}
  for leaf, word in enumerate(order):
    way, at = '', leaf
    while at != 2 * n - 2:
      way = str(binary[at]) + way
      at = parent[at]
    found[word] = way
  return found
