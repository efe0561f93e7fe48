"""Mask patterns of kernels (lmx/ops/patterns.py): visible keys, and their names in a compiled program.

Queries at and after T, and keys at and after S, are the padding of a kernel; a query before T attends to no such key.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from lmx.ops.patterns import Compressed, Pattern


class Summaries(NamedTuple):
  """Set A2 of fixed attention (lmx/ops/sparse_attention.py), whose keys are the summary columns of every block.

  Queries before the first summary attend to key 0, because a kernel has no softmax without keys.

  Attributes:
    stride: positions in a block.
    summary: summary columns of a block.
    start: the first of them.
  """

  stride: int
  summary: int
  start: int

  def position(self, key: Any) -> Any:
    """Return the position of a key."""
    block = _divide(key, self.summary)
    return block * self.stride + self.start + key - block * self.summary

  def __call__(self, query: Any, key: Any) -> Any:
    """See `Pattern`."""
    return (self.position(key) <= query) | (key == 0)

  def keys(self, end: int) -> int:
    """See `Pattern`."""
    return -(-end // self.stride) * self.summary


class BlockAndSummaries(NamedTuple):
  """Sets A1 and A2 of fixed attention merged. Keys are the summary columns of all blocks, then all positions.

  Attributes:
    stride: positions in a block.
    summary: summary columns of a block.
    blocks: number of blocks.
  """

  stride: int
  summary: int
  blocks: int

  def __call__(self, query: Any, key: Any) -> Any:
    """See `Pattern`."""
    block, position = _divide(query, self.stride), key - self.blocks * self.summary
    is_summary = _divide(key, self.summary) < block
    return is_summary | ((position >= block * self.stride) & (position <= query))

  def keys(self, end: int) -> int:
    """See `Pattern`."""
    return self.blocks * self.summary + end


def reach(mask: Any, causal: bool, end: int, length: int) -> int:
  """Return n such that queries before `end` attend only to the first n of `length` keys.

  Args:
    mask: an `AttentionMask`.
    causal: keys after the query are masked.
    end: number of queries.
    length: number of keys.
  """
  if not causal or not mask.aligned():
    return length
  return min(length, end if mask.pattern is None else mask.pattern.keys(end))


_KINDS = {'Compressed': Compressed, 'Summaries': Summaries, 'BlockAndSummaries': BlockAndSummaries}


def name(pattern: Pattern) -> str:
  """Return the name of a pattern in a compiled program, from which `parse` reads it."""
  numbers: Any = pattern
  return '_'.join((type(pattern).__name__, *map(str, numbers)))


def parse(text: str) -> Pattern | None:
  """Return the pattern named in a text, or None."""
  match = re.search(rf'\b({"|".join(_KINDS)})((?:_\d+)+)', text)
  return _KINDS[match.group(1)](*map(int, match.group(2)[1:].split('_'))) if match else None


def _divide(x: Any, n: int) -> Any:
  """Return x // n for x >= 0, by a shift if n is a power of 2, because TPU cores have no division."""
  return x >> (n.bit_length() - 1) if n & (n - 1) == 0 else x // n
