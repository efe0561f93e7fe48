"""Pairs of a source and its translation, in batches of similar length with few shapes.

A row is a pair. `source_BS` is the source with its end-of-text, `targets_BT` the target with its own. `tokens_BT` is
the target shifted right by one, starting with the tokenizer's `start_id`, by default the end-of-text. Pairs are
assigned to buckets by their longer side.
The rows of a bucket are padded on the right to its length on both sides (S = T), so one program is compiled per bucket.
With `tokens`, a bucket's batches have as many rows as fit into that many positions per side (Vaswani et al. 2017,
section 5.1: about 25,000 source and 25,000 target tokens); else all have the same number of rows.

With `groups` above 1 a training batch has pairs of any length, all padded to `data.length`. The step divides it into
groups of pairs of similar length and truncates those to their buckets (lmx/engine/step.py). So every update has pairs
of every length. Updates from single-bucket batches move the parameters back and forth, unlike the papers' batches over
many devices.

Pairs left over in a bucket move to the next longer one. So every pair is used once per epoch and only the last batch
has padding rows, which repeat a pair with weight 0 (`index_B` is -1). In training each epoch and its batches are
shuffled; in evaluation `index_B` gives each row's pair.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from lmx import ranges
from lmx.data import noise
from lmx.data.batching import bucketed
from lmx.data.batching.base import Batches, sizes
from lmx.errors import InputError, InputWarning, check_least


@dataclasses.dataclass(frozen=True)
class Config:
  """Pairs of sentences.

  Attributes:
    tokens: source positions per batch, and target positions, padding included: a batch has tokens / length rows. 0:
      every batch has `data.batch_size` rows. In evaluation `data.eval_batch_size` has priority if set. With `groups`,
      which need less padding, the mean longer side of a pair counts.
    rows_multiple: rows per batch or group are a multiple of this. A multiple of the devices (times `optim.accumulate`)
      avoids padding rows.
    buckets: lengths to which rows are padded, besides `data.length`; each is compiled. In training, pairs with a side
      longer than `data.length` are skipped. In evaluation none are: longer buckets are added, or, if `data.eval_length`
      is set, longer sides are truncated to it with a warning.
    groups: number of groups of similar length into which a training batch is divided. Groups are padded to their own
      bucket and processed in sequence, for one update of the whole batch. Fewer if the devices do not divide them
      evenly; 1 makes batches of one bucket.
  """

  name: str = 'translation'
  tokens: int = 0
  rows_multiple: int = 8
  buckets: Annotated[tuple[Annotated[int, ranges.Limits(1)], ...], ranges.Distinct(is_sorted=True)] = ()
  groups: int = 1

  def __post_init__(self) -> None:
    check_least('data.batching', self, tokens=0, rows_multiple=1, groups=1)
    bucketed.check_buckets(self.buckets)


def check(data: Any) -> None:
  """Raise InputError if the `data` section does not fit."""
  cfg = data.batching
  if data.reverse:
    raise InputError(
      'data.reverse: got True; expected False, because it reverses both sides of a pair; to reverse the source set '
      'model.reverse, which recurrent encoder-decoders have'
    )
  if data.tokenizer == 'wordpiece':
    raise InputError(
      'data.tokenizer: got "wordpiece", which has no end-of-text token; expected "bpe", "word_bpe", "unigram", '
      '"words", "characters" or "bytes"'
    )
  if 0 < cfg.tokens < cfg.rows_multiple * data.length:
    raise InputError(
      f'data.batching.tokens: got {cfg.tokens}; expected at least {cfg.rows_multiple * data.length}, for '
      f'{cfg.rows_multiple} rows (rows_multiple) of data.length {data.length}'
    )


def build(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> Translation:
  """Return the batches of a split according to the `data` section."""
  cfg = data.batching
  if not corpus.manifest.get('sides'):
    raise InputError(
      f'data.batching: got "translation" with data set {corpus.manifest["dataset"]["name"]}; expected '
      'pairs, as in multi30k and parallel_files'
    )
  rows, length = sizes(data, train)
  return Translation(
    corpus.splits[split],
    rows,
    length,
    start_id=corpus.tokenizer.start_id,
    end_id=corpus.tokenizer.eos_id,
    buckets=cfg.buckets,
    tokens=cfg.tokens if train or not data.eval_batch_size else 0,
    multiple=cfg.rows_multiple,
    groups=cfg.groups,
    vocab_size=corpus.tokenizer.id_bound,
    seed=seed,
    train=train,
    shuffle=data.shuffle,
    truncate=not train and data.eval_length > 0,
  )


def longest(data: Any, corpus: Any) -> int:
  """Return the length of the longest row, in training and in the evaluation of the held-out splits."""
  held_out = [np.diff(split.offsets).max() for name, split in corpus.splits.items() if name != 'train']
  return max(data.length, *([data.eval_length] if data.eval_length else map(int, held_out)))


class _Plan(NamedTuple):
  """The batches of an epoch.

  Attributes:
    order_I: the pairs in their order of use.
    start_J: start of each batch in it, and the end.
    bucket_J: bucket of each batch.
  """

  order_I: np.ndarray
  start_J: np.ndarray
  bucket_J: np.ndarray


class Translation(Batches):
  """Batches with source_BS, source_valid_BS, tokens_BT, targets_BT, weights_BT, valid_BT and index_B.

  Batches differ in the number of rows; `batch_size` is the largest. Tokens are counted on the target side.

  Args:
    split: a Split whose document 2i is a source and 2i + 1 its target, each ended by `end_id`.
    batch_size: rows of a batch if `tokens` is 0.
    length: maximum number of positions per row.
    start_id: the first id of targets.
    end_id: the end-of-text id.
    buckets: lengths to which rows are padded, besides `length`.
    tokens: positions per side of a batch; 0: every batch has `batch_size` rows.
    multiple: the number of rows is rounded down to a multiple of this.
    seed: seed of the order.
    train: endless shuffled epochs; else one pass.
    groups: number of groups into which the step divides a training batch; 1: batches are of one bucket.
    shuffle: shuffle; else pairs are sorted by bucket, then in corpus order.
    truncate: in evaluation, truncate rows longer than `length`; else longer buckets are added.
  """

  def __init__(
    self,
    split: Any,
    batch_size: int,
    length: int,
    *,
    start_id: int | None,
    end_id: int | None,
    buckets: Sequence[int],
    vocab_size: int,
    seed: int,
    train: bool,
    tokens: int = 0,
    multiple: int = 1,
    groups: int = 1,
    shuffle: bool = True,
    truncate: bool = False,
  ):
    super().__init__(split, batch_size, length, vocab_size=vocab_size, seed=seed, train=train, shuffle=shuffle)
    if start_id is None or end_id is None:
      raise InputError('data.tokenizer: got one without an end-of-text; expected it in data.batching "translation"')
    self._start_id, self._end_id = start_id, end_id
    offsets = np.asarray(split.offsets, np.int64)
    if len(offsets) % 2 == 0:
      raise InputError(f'{split.title}: got {len(offsets) - 1} documents; expected an even number, for pairs')
    self._begin_SI = offsets[:-1].reshape(-1, 2).T  # source and target start of each pair
    self._size_SI = np.diff(offsets).reshape(-1, 2).T
    size_I = self._size_SI.max(axis=0)
    over = int((size_I > length).sum())
    self._buckets = np.unique([*(b for b in buckets if b < length), length])
    self._pairs = np.arange(len(size_I))
    if train:
      self._pairs = np.flatnonzero(size_I <= length)
      if over:
        self.notes = (f'{over:,} of {len(size_I):,} pairs of {split.title} are longer than {length} and skipped',)
    elif over and truncate:
      warnings.warn(
        f'{over:,} pairs of {split.title} are longer than data.eval_length {length} and truncated',
        InputWarning,
        stacklevel=2,
      )
      self._size_SI = np.minimum(self._size_SI, length)
    elif over:
      self._buckets = np.concatenate([self._buckets, _double_lengths(length, int(size_I.max()))])
      self.length = int(self._buckets[-1])
    if not len(self._pairs):
      raise InputError(
        f'data.length: got {length}; expected a pair of {split.title} of at most so many positions; raise data.length'
      )
    self._size_I, counted = np.minimum(size_I, self.length), self._buckets.tolist()
    if train and groups > 1:
      self.groups, self.lengths, multiple = groups, tuple(counted), multiple * groups
      self._buckets, counted = self._buckets[-1:], [float(self._size_I[self._pairs].mean())]
      if 0 < tokens < multiple * counted[0]:
        raise InputError(
          f'data.batching.tokens: got {tokens}; expected at least {math.ceil(multiple * counted[0])}, for {multiple} '
          f'rows (rows_multiple x groups) of {counted[0]:.1f} positions, their mean'
        )
    self._bucket_I = np.searchsorted(self._buckets, self._size_I)
    self._rows = [max(int(tokens / n) // multiple, 1) * multiple if tokens else batch_size for n in counted]
    self._planned = functools.lru_cache(maxsize=2)(self._plan)
    plan = self._planned(0)
    self.batch_size = self._rows[plan.bucket_J.min()]
    self.examples, self.steps = len(self._pairs), len(plan.bucket_J)
    self.tokens_per_epoch = int(self._size_SI[1, self._pairs].sum())

  def row_counts(self) -> tuple[int, ...]:
    return tuple(sorted({self._padded_rows(self._rows[bucket]) for bucket in self._planned(0).bucket_J}))

  def shapes(self) -> tuple[tuple[int, int], ...]:
    used = sorted(set(self._planned(0).bucket_J.tolist()))
    return tuple((self._padded_rows(self._rows[bucket]), int(self._buckets[bucket])) for bucket in used)

  def positions(self) -> int:
    plan = self._planned(0)
    if self.groups == 1:
      return sum(self._rows[bucket] * int(self._buckets[bucket]) for bucket in plan.bucket_J)
    batches = np.split(self._size_I[plan.order_I], plan.start_J[1:-1])
    return self._positions_in_groups((np.resize(sizes, self.batch_size) for sizes in batches), self.lengths)

  def __call__(self, step: int, rows: slice = slice(None)) -> dict[str, np.ndarray]:
    """Return the given rows of the batch at `step`: `rows` out of `padded_rows`, mapped to the same share."""
    epoch, local = self.epoch_of(step)
    if step < 0 or (epoch and not self._train):
      raise IndexError(f'step {step} of {self._title}, which has {self.steps} steps')
    plan = self._planned(epoch)
    bucket = int(plan.bucket_J[local])
    pair_L = plan.order_I[plan.start_J[local] : plan.start_J[local + 1]]
    count = self._padded_rows(self._rows[bucket])
    position_B = np.arange(count)[self._share(rows, count)]
    live_B = position_B < len(pair_L)
    pair_B = pair_L[position_B % len(pair_L)]
    batch = self._make(epoch, pair_B, live_B, int(self._buckets[bucket]))
    batch['index_B'] = np.where(live_B, pair_B, -1).astype(np.int32)
    return batch

  def _share(self, rows: slice, count: int) -> slice:
    """Return the slice of `count` rows that corresponds to `rows` of `padded_rows`."""
    most = self.padded_rows
    start, stop, step = rows.indices(most)
    if count == most:
      return rows
    if step != 1 or start * count % most or stop * count % most:
      raise InputError(
        f'data.batching.rows_multiple: got rows {start} to {stop} of {most} for a batch of {count}; '
        'expected whole rows of a batch; set data.batching.rows_multiple to a multiple of the number '
        'of devices'
      )
    return slice(start * count // most, stop * count // most)

  def _plan(self, epoch: int) -> _Plan:
    draw = noise.generator(self._seed, 'pairs of languages', epoch)
    order = draw.permutation(self._pairs) if self._shuffle else self._pairs
    by_bucket = [order[self._bucket_I[order] == bucket] for bucket in range(len(self._buckets))]
    used = [bucket for bucket, pairs in enumerate(by_bucket) if len(pairs)]
    batches: list[np.ndarray] = []
    bucket_J: list[int] = []
    rest = order[:0]
    for bucket in used:
      pairs, rows = np.concatenate([rest, by_bucket[bucket]]), self._rows[bucket]
      whole = len(pairs) if bucket == used[-1] else len(pairs) // rows * rows
      cut = [pairs[i : min(i + rows, whole)] for i in range(0, whole, rows)]
      batches += cut
      bucket_J += [bucket] * len(cut)
      rest = pairs[whole:]
    permutation = draw.permutation(len(batches)) if self._shuffle else np.arange(len(batches))
    batches = [batches[j] for j in permutation]
    start_J = np.cumsum([0, *(len(batch) for batch in batches)])
    return _Plan(np.concatenate(batches), start_J, np.asarray(bucket_J)[permutation])

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray, length: int = 0) -> dict[str, np.ndarray]:
    column_T = np.arange(length or self.length)
    source_BS, source_valid_BS = self._side(0, example_B, column_T)
    targets_BT, valid_BT = self._side(1, example_B, column_T)
    tokens_BT = np.concatenate([np.full((len(example_B), 1), self._start_id, np.int32), targets_BT[:, :-1]], axis=1)
    return dict(
      source_BS=source_BS,
      source_valid_BS=source_valid_BS,
      tokens_BT=np.where(valid_BT, tokens_BT, 0),
      targets_BT=targets_BT,
      weights_BT=(valid_BT & live_B[:, None]).astype(np.float32),
      valid_BT=valid_BT,
    )

  def _side(self, side: int, pair_B: np.ndarray, column_T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (tokens, padding mask) of one side; a truncated source ends with the end-of-text id."""
    size_B1, begin_B1 = self._size_SI[side, pair_B][:, None], self._begin_SI[side, pair_B][:, None]
    valid_BT = column_T < size_B1
    tokens_BT = self._read(begin_B1 + np.where(valid_BT, column_T, 0))
    if side == 0:
      tokens_BT = np.where(column_T == size_B1 - 1, self._end_id, tokens_BT)
    return np.where(valid_BT, tokens_BT, 0).astype(np.int32), valid_BT


def _double_lengths(length: int, longest: int) -> list[int]:
  """Return lengths from twice `length` on, each twice the one before, ending with `longest`."""
  lengths = []
  while length < longest:
    length = min(2 * length, longest)
    lengths.append(length)
  return lengths
