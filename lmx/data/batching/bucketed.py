"""Examples one a row, in batches of rows of like length.

Rows are padded on the right to the shortest bucket that holds the longest row of their global batch, so that every
host makes the same shape, and a program is compiled for each bucket. In training an epoch's order is drawn, cut into
pools of batches, sorted by length within each pool (in the way of the sampler in ULMFiT's released code) and the
batches are dealt out in a drawn order; in evaluation the whole split is sorted by length, and `index_B` says which
example a row is.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from lmx.data import noise
from lmx.data.batching.base import Batches
from lmx.errors import InputError, check_range

POOL = 50  # batches sorted together


def check_buckets(buckets: Sequence[int]) -> None:
  """InputError naming the first that is no length."""
  for bucket in buckets:
    check_range('data.batching.buckets: one', bucket, 1)


class Bucketed(Batches):
  """A subclass sets `_sizes`, the length of the row of each example, and then calls `_arrange`."""

  LEAST = 1
  _sizes: np.ndarray

  def _documents(self, split: Any, end_id: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Where each document of a split begins and ends, int64, without the id that ends it if there is one."""
    begin, end = np.asarray(split.offsets[:-1], np.int64), np.asarray(split.offsets[1:], np.int64)
    if end_id is not None:
      end = end - ((end > begin) & (self._tokens[np.maximum(end - 1, 0)] == end_id))
    return begin, end

  def _arrange(self, buckets: Sequence[int], what: str, pool: int = POOL) -> None:
    """Fixes how many steps there are, and in which order examples come.

    Args:
      buckets: lengths that rows are padded to, besides `length`.
      what: the examples are called, in messages and in the order that is drawn.
      pool: batches of training sorted together; 0 sorts none, so that rows of any length meet.
    """
    self._what, self._pool = what, pool
    self._buckets = np.unique([*(b for b in buckets if b < self.length), self.length])
    self._ordered = functools.lru_cache(maxsize=2)(self._order)
    count = len(self._sizes)
    if self._train and count < self.batch_size:
      raise InputError(
        f'split {self._split} is too small for one batch of {self.batch_size} rows: it has {count} {what}')
    self._set(count, int(self._sizes.sum()), '1')

  def positions(self) -> int:
    """Positions of an epoch, padding included."""
    order = self._ordered(0)
    batches = order[: self.steps * self.batch_size]
    longest = [self._sizes[batches[i : i + self.batch_size]].max() for i in range(0, len(batches), self.batch_size)]
    return int(sum(self._padded(size) for size in longest)) * self.batch_size

  def __call__(self, step: int, rows: slice = slice(None)) -> dict[str, np.ndarray]:
    """Returns the given rows of the batch of `step`."""
    epoch, local = self.epoch_of(step)
    if step < 0 or (epoch and not self._train):
      raise IndexError(f'step {step} of split {self._split}, which has {self.steps} steps')
    place_B = local * self.batch_size + np.arange(self.batch_size)
    live_B = place_B < self.examples
    example_B = self._ordered(epoch)[np.minimum(place_B, self.examples - 1)]
    batch = self._make(epoch, example_B, live_B)  # of all hosts, as the longest row decides the shape
    batch['index_B'] = np.where(live_B, example_B, -1).astype(np.int32)
    return {key: array[rows] for key, array in batch.items()}

  def _padded(self, size: int) -> int:
    return int(self._buckets[np.searchsorted(self._buckets, max(size, 1))])

  def _order(self, epoch: int) -> np.ndarray:
    """The examples of an epoch in the order they are used."""
    if not self._train:
      return np.argsort(self._sizes, kind='stable')
    if not self._shuffle:
      return np.arange(self.examples)
    draw = noise.generator(self._seed, self._what, epoch)
    drawn = draw.permutation(self.examples)[: self.steps * self.batch_size]  # fewer than a batch are left out
    if not self._pool:
      return drawn
    pool = self._pool * self.batch_size
    parts = [drawn[i : i + pool] for i in range(0, len(drawn), pool)]
    ranked = np.concatenate([part[np.argsort(self._sizes[part], kind='stable')] for part in parts])
    return ranked.reshape(-1, self.batch_size)[draw.permutation(self.steps)].ravel()
