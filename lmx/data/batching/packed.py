"""Documents packed into rows, by an index of segments that is built once."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from lmx.data.batching.base import Batches, sizes
from lmx.errors import check_choice


@dataclasses.dataclass(frozen=True)
class Config:
  """Packed documents.

  Attributes:
    packing: 'best_fit' splits only documents longer than a row, 'split' fills every position.
  """

  name: str = 'packed'
  packing: str = 'best_fit'

  def __post_init__(self) -> None:
    check_choice('data.batching.packing', self.packing, ('best_fit', 'split'))


def build(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> Packed:
  """Return the batches of a split according to the `data` section."""
  return Packed(
    corpus.splits[split],
    *sizes(data, train),
    vocab_size=corpus.tokenizer.vocab_size,
    seed=seed,
    train=train,
    shuffle=data.shuffle,
    method=data.batching.packing,
    start_id=corpus.tokenizer.eos_id,
  )


def best_fit(lengths_L: np.ndarray, capacity: int) -> np.ndarray:
  """Return the row of each segment by best-fit decreasing bin packing. O(L): rows are grouped by their free space."""
  row_L = np.zeros(len(lengths_L), np.int64)
  room: list[list[int]] = [[] for _ in range(capacity + 1)]
  free, rows = 0, 0  # bit r of `free`: some row has r free positions
  for segment in np.argsort(-lengths_L, kind='stable').tolist():
    n = int(lengths_L[segment])
    fitting = free >> n
    if fitting:
      left = n + (fitting & -fitting).bit_length() - 1
      row = room[left].pop()
      if not room[left]:
        free ^= 1 << left
    else:
      left, row, rows = capacity, rows, rows + 1
    row_L[segment] = row
    if left > n:
      room[left - n].append(row)
      free |= 1 << (left - n)
  return row_L


class Segments(NamedTuple):
  """Packed documents: the targets of each row. Sorted by row.

  Attributes:
    target_L: position in the split of the segment's first target.
    length_L: number of targets.
    starts_document_L: True if the segment starts its document, so that its first input is the start symbol.
    column_L: column of the row at which the segment starts.
    rows_R: first segment of each row, and the number of segments (length rows + 1).
  """

  target_L: np.ndarray
  length_L: np.ndarray
  starts_document_L: np.ndarray
  column_L: np.ndarray
  rows_R: np.ndarray


def pack(offsets: np.ndarray, length: int, method: str, started: bool) -> Segments:
  """Pack documents into rows of `length` targets.

  Args:
    offsets: starts of the documents and the end of the last one.
    length: T.
    method: 'split' concatenates the documents and splits every T tokens; 'best_fit' splits only documents longer than T
      and fills rows by best-fit decreasing.
    started: True if the first token of a document is predicted, from a start symbol; otherwise it is only an input.
  """
  first_D = offsets[:-1] + (0 if started else 1)
  size_D = np.maximum(offsets[1:] - first_D, 0)
  end_D = np.cumsum(size_D)  # in the documents' concatenated targets
  if method == 'split':
    cuts_L = np.union1d(end_D, np.arange(0, end_D[-1], length))
    cuts_L = np.union1d(cuts_L, [0, end_D[-1]])
    begin_L, length_L = cuts_L[:-1], np.diff(cuts_L)
    document_L = np.searchsorted(end_D, begin_L, 'right')
    row_L = begin_L // length
  else:
    count_D = -(-size_D // length)
    document_L = np.repeat(np.arange(len(size_D)), count_D)
    nth_L = np.arange(len(document_L)) - np.repeat(np.cumsum(count_D) - count_D, count_D)
    begin_L = (end_D - size_D)[document_L] + nth_L * length
    length_L = np.minimum(length, end_D[document_L] - begin_L)
    row_L = best_fit(length_L, length)
  order_L = np.argsort(row_L, kind='stable')
  row_L, begin_L, length_L, document_L = row_L[order_L], begin_L[order_L], length_L[order_L], document_L[order_L]
  within_L = begin_L - (end_D - size_D)[document_L]
  rows_R = np.searchsorted(row_L, np.arange(row_L[-1] + 2 if len(row_L) else 1))
  before_L = np.cumsum(length_L) - length_L
  return Segments(
    first_D[document_L] + within_L,
    length_L.astype(np.int32),
    (within_L == 0) & started,
    (before_L - before_L[rows_R[:-1]][row_L]).astype(np.int32),
    rows_R,
  )


class Packed(Batches):
  """Documents packed into rows of T positions. documents_BT numbers the segments of a row from 1 (0 is padding),
  position_BT counts within the segment, and attention is restricted to equal numbers.

  If the tokenizer has an end-of-text id it is the first input of every document, and every token of the split is
  predicted exactly once in an epoch. Otherwise a document's first token is input only. The rest of a document split at
  a row's end continues with the token before the split as its first input.
  """

  def __init__(
    self,
    split: Any,
    batch_size: int,
    length: int,
    *,
    vocab_size: int,
    seed: int,
    train: bool,
    shuffle: bool = True,
    method: str = 'best_fit',
    start_id: int | None = None,
  ):
    super().__init__(split, batch_size, length, vocab_size=vocab_size, seed=seed, train=train, shuffle=shuffle)
    self._segments = pack(np.asarray(split.offsets), length, method, start_id is not None)
    self._start_id = start_id
    self._set_size(len(self._segments.rows_R) - 1, int(self._segments.length_L.sum()), f'about {batch_size * length}')

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray) -> dict[str, np.ndarray]:
    segments, shape = self._segments, (len(example_B), self.length)
    low_B, count_B = segments.rows_R[example_B], np.diff(segments.rows_R)[example_B]
    row_L = np.repeat(np.arange(len(example_B)), count_B)
    ordinal_L = np.arange(len(row_L)) - np.repeat(np.cumsum(count_B) - count_B, count_B)
    segment_L = low_B[row_L] + ordinal_L
    length_L = segments.length_L[segment_L]
    each = np.repeat(np.arange(len(segment_L)), length_L)  # one element per token from here on
    within = np.arange(len(each)) - np.repeat(np.cumsum(length_L) - length_L, length_L)
    at = row_L[each], segments.column_L[segment_L][each] + within
    target = segments.target_L[segment_L][each] + within
    inputs = self._read(np.maximum(target - 1, 0))
    if self._start_id is not None:
      inputs = np.where(segments.starts_document_L[segment_L][each] & (within == 0), self._start_id, inputs)
    values = dict(tokens_BT=inputs, targets_BT=self._read(target), documents_BT=ordinal_L[each] + 1, position_BT=within)
    batch = {name: np.zeros(shape, np.int32) for name in values}
    for name, value in values.items():
      batch[name][at] = value
    batch['weights_BT'] = np.zeros(shape, np.float32)
    batch['weights_BT'][at] = live_B[at[0]]
    return batch
