"""Huffman tree of hierarchical softmax, built like word2vec.c's.

Mikolov et al. 2013 (arXiv 1301.3781, section 3.1): frequent words get short codes. The two rarest roots are joined
until one is left; the second rarest of the two becomes the right child. On ties a joined node comes before a word.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Tree(NamedTuple):
  """Every word's path from the root; nodes are numbered from the root by decreasing count.

  Attributes:
    starts_V: start of each word's nodes in the next two arrays, length V + 1; a word without occurrences has no nodes.
    nodes: int32, the inner nodes on the paths, root first.
    signs: int8, 1 if the path goes left (label 1 of the logistic function) and -1 if it goes right.
  """

  starts_V: np.ndarray
  nodes: np.ndarray
  signs: np.ndarray


def build(counts_V: np.ndarray) -> Tree:
  """Build the tree over the words with a positive count.

  Args:
    counts_V: count of each word; ties keep the order of the words.
  """
  V = len(counts_V)
  word_L = np.flatnonzero(counts_V)
  word_L = word_L[np.argsort(-counts_V[word_L], kind='stable')]
  parent_N, right_N = _join(counts_V[word_L].tolist())
  inner = len(word_L) - 1
  levels = []
  leaf_L = np.arange(len(word_L))
  here_L = leaf_L
  while len(here_L) and inner > 0:
    up_L = parent_N[here_L]
    levels.append((leaf_L, up_L, right_N[here_L]))
    more_L = up_L != len(word_L) + inner - 1
    leaf_L, here_L = leaf_L[more_L], up_L[more_L]
  if not levels:
    return Tree(np.zeros(V + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int8))
  leaf, up, right = (np.concatenate(parts[::-1]) for parts in zip(*levels, strict=True))  # root first
  order = np.argsort(word_L[leaf], kind='stable')
  lengths_V = np.bincount(word_L[leaf], minlength=V)
  nodes = (len(word_L) + inner - 1 - up[order]).astype(np.int32)
  return Tree(np.append(0, np.cumsum(lengths_V)), nodes, (1 - 2 * right[order]).astype(np.int8))


def _join(counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
  """Join leaves sorted by decreasing count; return (parent, True for right children) of leaves, then joined nodes."""
  L = len(counts)
  size = counts + [0] * (L - 1)
  parent, right = np.zeros(2 * L - 1, np.int64), np.zeros(2 * L - 1, np.int8)
  leaf, joined = L - 1, L
  for new in range(L, 2 * L - 1):
    pair = []
    for _ in range(2):
      if leaf >= 0 and (joined >= new or size[leaf] < size[joined]):
        pair.append(leaf)
        leaf -= 1
      else:
        pair.append(joined)
        joined += 1
    size[new] = size[pair[0]] + size[pair[1]]
    parent[pair] = new
    right[pair[1]] = 1
  return parent, right
