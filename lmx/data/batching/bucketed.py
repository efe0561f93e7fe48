"""One example per row, in batches of similar row length.

Rows are padded on the right to the shortest bucket that fits the longest row of their global batch. So every host has
the same shape, and one program is compiled per bucket. In training an epoch is shuffled, split into pools of batches,
and sorted by length within each pool (like the sampler in ULMFiT's released code); the batches are shuffled too. In
evaluation the whole split is sorted by length, and `index_B` gives each row's example.

With `groups` above 1 all training batches have rows of `length` positions. The step divides each into groups of
rows of similar length and truncates those to their buckets (lmx/engine/step.py), which leaves less padding.

Packed batches (`Bucketed.pack`) also have `packed_PT`, the positions of their tokens in P sequences, by best-fit
decreasing bin packing, which leaves the least padding (lmx/layers/packing.py). Each shape is compiled, so the shape
fits the first batches; a batch that does not fit gets a larger one.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np

from lmx import ranges
from lmx.data import noise
from lmx.data.batching.base import Batches
from lmx.data.batching.packed import best_fit, pack
from lmx.errors import InputError, check_least, check_range

POOL = 50  # batches sorted together
_SAMPLED = 100  # batches by which the common shape of packed sequences is chosen


@dataclasses.dataclass(frozen=True)
class Config:
  """Row lengths and the grouping of rows into batches.

  Attributes:
    buckets: lengths to which a batch may be padded, besides `data.length`; each is a compilation.
    rows_per_bucket: use fewer buckets for fewer rows: with N training rows at most the larger of 2 and
      N / rows_per_bucket, those that add the least padding. Training rows are then at most as long as the last of them;
      evaluations use the same buckets, and longer ones only for longer rows. 0 uses all.
    pool: number of training batches whose rows are sorted by length together; 0 batches rows of any length.
    groups: number of groups of similar row length into which a training batch is divided. Groups are padded to their
      own bucket and processed in sequence, for one update of the whole batch. Fewer if the devices do not divide them
      evenly; 1 pads all rows to one length.
  """

  buckets: Annotated[tuple[Annotated[int, ranges.Limits(1)], ...], ranges.Distinct(is_sorted=True)] = ()
  rows_per_bucket: int = 0
  pool: int = POOL
  groups: int = 1

  def __post_init__(self) -> None:
    check_least('data.batching', self, rows_per_bucket=0, pool=0, groups=1)
    check_buckets(self.buckets)


def check_buckets(buckets: Sequence[int]) -> None:
  """Raise InputError with the first invalid length."""
  for bucket in buckets:
    check_range('data.batching.buckets: one', bucket, 1)


class Bucketed(Batches):
  """Base class; a subclass sets `_sizes`, the row length of each example, and then calls `_arrange`."""

  LEAST = 1
  _sizes: np.ndarray
  _common = 0, 0  # least P and T of packed sequences; 0: batches are not packed

  def _documents(self, split: Any, end_id: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the start and end of each document in a split, int64, without its `end_id` if it has one."""
    begin, end = np.asarray(split.offsets[:-1], np.int64), np.asarray(split.offsets[1:], np.int64)
    if end_id is not None:
      end = end - ((end > begin) & (self._tokens[np.maximum(end - 1, 0)] == end_id))
    return begin, end

  def _arrange(self, cfg: Config, what: str) -> None:
    """Set the number of steps and the order of examples.

    Args:
      cfg: the `batching` section.
      what: name of the examples, in messages and as the seed's purpose when drawing their order.
    """
    self._what, self._pool, self._rows_per_bucket = what, cfg.pool, cfg.rows_per_bucket
    self._buckets = np.unique([*(b for b in cfg.buckets if b < self.length), self.length])
    if self._train and cfg.groups > 1:
      self.groups, self.lengths = cfg.groups, tuple(self._buckets.tolist())
    self._ordered = functools.lru_cache(maxsize=2)(self._order)
    count = len(self._sizes)
    if self._train and count < self.batch_size:
      raise InputError(f'{self._title} is too small for one batch of {self.batch_size} rows: got {count} {what}')
    self._set_size(count, int(self._sizes.sum()), '1')

  def few_buckets(self, batch_size: int) -> tuple[int, ...]:
    """Return the buckets that `rows_per_bucket` chooses for batches of these rows."""
    ends_J = np.append(np.arange(batch_size - 1, len(self._sizes) - 1, batch_size), len(self._sizes) - 1)
    needed_J = [self._bucket(size) for size in np.sort(self._sizes)[ends_J]]
    return merge_lengths(needed_J, max(2, len(self._sizes) // self._rows_per_bucket))

  def pack(self) -> Bucketed:
    """Return these training batches with `packed_PT`, without groups; the whole batch must be on one device."""
    packed = copy.copy(self)
    packed.groups, packed.lengths = 1, ()
    counts = [_token_counts(packed(step)) for step in range(_SAMPLED)]
    T = self.length if self._rows_per_bucket else self._bucket(max(int(count_L.max()) for count_L in counts))
    packed._common = max(int(best_fit(count_L[count_L > 0], T).max()) + 1 for count_L in counts), T
    return packed

  def positions(self) -> int:
    """Return the number of positions in an epoch, padding included."""
    if self._common[0]:
      return self.steps * self._common[0] * self._common[1]
    return self._positions_in_groups(self._batch_sizes(), self._buckets)

  def shapes(self) -> tuple[tuple[int, int], ...]:
    """Return (rows, positions) of the batches of the first epoch, without repetition."""
    if self._common[0]:
      return (self._common,)
    lengths = {self._padded(int(sizes.max())) for sizes in self._batch_sizes()}
    return tuple((self.padded_rows, length) for length in sorted(lengths))

  def _batch_sizes(self) -> Iterator[np.ndarray]:
    """Yield the row lengths of each batch of the first epoch."""
    sizes = self._sizes[self._ordered(0)[: self.steps * self.batch_size]]
    return (sizes[i : i + self.batch_size] for i in range(0, len(sizes), self.batch_size))

  def __call__(self, step: int, rows: slice = slice(None)) -> dict[str, np.ndarray]:
    """Return the given rows of the batch at `step`."""
    epoch, local = self.epoch_of(step)
    if step < 0 or (epoch and not self._train):
      raise IndexError(f'step {step} of {self._title}, which has {self.steps} steps')
    position_B, live_B = self._row_examples(local)
    example_B = self._ordered(epoch)[position_B]
    length = self._padded(int(self._sizes[example_B].max()))  # length of the longest row over all hosts
    example_B, live_B = example_B[rows], live_B[rows]
    batch = self._make(epoch, example_B, live_B, length)
    batch['index_B'] = np.where(live_B, example_B, -1).astype(np.int32)
    if self._common[0]:
      least, T = self._common
      T = max(T, self._bucket(int(self._sizes[example_B].max())))
      batch['packed_PT'] = _pack(batch, -(-least * self._common[1] // T), T)
    return batch

  @abc.abstractmethod
  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray, length: int = 0) -> dict[str, np.ndarray]:
    """Build rows of `length` positions, the global batch's length; 0 is `self.length`."""

  def _bucket(self, size: int) -> int:
    return int(self._buckets[np.searchsorted(self._buckets, max(size, 1))])

  def _padded(self, size: int) -> int:
    """Return the number of positions in the rows of a batch whose longest row has `size`."""
    return self.length if self.groups > 1 or self._common[0] else self._bucket(size)

  def _order(self, epoch: int) -> np.ndarray:
    """Return the examples of an epoch in order."""
    if not self._train:
      return np.argsort(self._sizes, kind='stable')
    if not self._shuffle:
      return np.arange(self.examples)
    draw = noise.generator(self._seed, self._what, epoch)
    permutation = draw.permutation(self.examples)[: self.steps * self.batch_size]  # an incomplete batch is skipped
    if not self._pool:
      return permutation
    pool = self._pool * self.batch_size
    parts = [permutation[i : i + pool] for i in range(0, len(permutation), pool)]
    ranked = np.concatenate([part[np.argsort(self._sizes[part], kind='stable')] for part in parts])
    return ranked.reshape(-1, self.batch_size)[draw.permutation(self.steps)].ravel()


def merge_lengths(needed_J: Sequence[int], most: int) -> tuple[int, ...]:
  """Return at most `most` of the lengths that batches need, the longest among them, with little padding.

  One after another, the length is dropped whose batches gain the fewest positions by the next longer one.
  """
  lengths, counts = (x.tolist() for x in np.unique(needed_J, return_counts=True))
  while len(lengths) > most:
    i = min(range(len(lengths) - 1), key=lambda i: counts[i] * (lengths[i + 1] - lengths[i]))
    lengths.pop(i)
    moved = counts.pop(i)
    counts[i] += moved
  return tuple(lengths)


def _valid(batch: dict[str, np.ndarray]) -> np.ndarray:
  """Return valid_BT, or valid_BGT, whose rows and sequences count as rows, as (L, T)."""
  valid = next(batch[name] for name in ('valid_BT', 'valid_BGT') if name in batch)
  return valid.reshape(-1, valid.shape[-1])


def _token_counts(batch: dict[str, np.ndarray]) -> np.ndarray:
  """Return the number of tokens per row, (L,)."""
  return _valid(batch).sum(axis=1)


def _pack(batch: dict[str, np.ndarray], least: int, T: int) -> np.ndarray:
  """Return the source index of the token at each position of the packed sequences, -1 for padding: (P, T) int32.

  Token t of row b has index b x (row length) + t; a sequence within a row counts as a row.

  Args:
    batch: with valid_BT, or valid_BGT.
    least: P if it suffices; else P grows by quarters.
    T: positions per packed sequence.
  """
  place_I = np.flatnonzero(_valid(batch))
  segments = pack(np.append(0, np.cumsum(_token_counts(batch))), T, 'best_fit', started=True)
  rows, quarter = len(segments.rows_R) - 1, -(-least // 4)
  place_PT = np.full((least + -(-max(0, rows - least) // quarter) * quarter, T), -1, np.int32)
  row_L = np.repeat(np.arange(rows), np.diff(segments.rows_R))
  for first, size, row, column in zip(segments.target_L, segments.length_L, row_L, segments.column_L, strict=True):
    place_PT[row, column : column + size] = place_I[first : first + size]
  return place_PT
