"""Patterns of causal attention in which key j is not at position j: functions of the indices of a query and a key.

A pattern is static: kernels compute it block by block, so no (T, S) mask is stored. It works on NumPy arrays, from
which a kernel finds the blocks that it skips, and on those of JAX.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class Pattern(Protocol):
  """Pattern of causal attention; hashable, with only integer fields, so that `name` is complete."""

  def __call__(self, query: Any, key: Any) -> Any:
    """Return True where a query attends to a key; int32 indices of any shapes that broadcast."""

  def keys(self, end: int) -> int:
    """Return n such that queries before `end` attend only to the first n keys."""


class Compressed(NamedTuple):
  """Memory-compressed attention (layers/compressed_attention.py): position t attends to key j if j stride <= t."""

  stride: int

  def __call__(self, query: Any, key: Any) -> Any:
    """See `Pattern`."""
    return key * self.stride <= query

  def keys(self, end: int) -> int:
    """See `Pattern`."""
    return (end - 1) // self.stride + 1
