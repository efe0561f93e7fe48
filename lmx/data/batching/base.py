"""Shared parts of all batchings: batches as pure functions of (seed, step, row) over a split's token array.

Every step is equally cheap to reach, and a row has the same content on every host.

Axes: B rows of the global batch, T positions, P predicted positions, L segments of packed documents, I examples.
`index_B` is the index of the row's window, packed row, pair or document in its split (for streams, step in the epoch
times batch size plus row); -1 is a padding row: in the last evaluation batch, or added by `pad_rows`.
"""

from __future__ import annotations

import abc
import copy
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from lmx.data import noise
from lmx.errors import InputError, InputWarning

_SHUFFLE_ROUNDS = 4  # of Grain's index permutation; its own default


class Batches(abc.ABC):
  """The batches of one split.

  Calling it with (step, rows) returns a dict of arrays for those rows of the global batch. In training any step >= 0
  is valid and epochs follow one another; in evaluation steps run from 0 to `steps - 1`.

  Attributes:
    steps: steps per training epoch, or in the whole evaluation.
    batch_size: rows of the global batch.
    length: T.
    stateful: True if row b of a step continues row b of the step before.
    examples: number of windows, packed rows or pairs in an epoch.
    tokens_per_epoch: number of non-padding positions in an epoch's examples.
    notes: lines printed before a run starts, such as the number of skipped examples.
    unlabelled: number of rows without a label, which are predicted but not scored.
    groups: number of groups of similar length into which the step divides a batch.
    lengths: lengths to which such a group may be truncated; () for no truncation.
    packable: True if the config asks for `pack`.
    padded_rows: rows of the largest batch, including those that `pad_rows` adds.
    protocol: text for an evaluation's protocol, in addition to batching, rows and length.
    unit: name of the positions, in the plural.
    passes: number of passes over the text of the split in an epoch.
  """

  LEAST = 2  # minimum number of tokens per split: one input and one target
  stateful = False
  unit = 'tokens'
  passes = 1
  notes: tuple[str, ...] = ()
  unlabelled = 0
  groups = 1
  lengths: tuple[int, ...] = ()
  packable = False
  protocol: tuple[str, ...] = ()
  _multiple = 1
  _row_parts = False
  examples: int
  tokens_per_epoch: int

  def __init__(
    self, split: Any, batch_size: int, length: int, *, vocab_size: int, seed: int, train: bool, shuffle: bool = True
  ):
    self.batch_size, self.length = batch_size, length
    self._tokens = split.tokens
    self._split, self._title, self._vocab_size = split.name, split.title, vocab_size
    self._seed, self._train, self._shuffle = seed, train, shuffle and train
    if self._tokens.size < self.LEAST:
      raise InputError(f'{split.title}: got {self._tokens.size} tokens; expected at least {self.LEAST}')

  def _set_size(self, examples: int, tokens: int, needed: str) -> None:
    self.examples, self.tokens_per_epoch = examples, tokens
    self.steps = examples // self.batch_size if self._train else -(-examples // self.batch_size)
    if self.steps == 0:
      raise InputError(
        f'{self._title} is too small for one batch of {self.batch_size} rows of {self.length}: '
        f'got {self._tokens.size} tokens; expected {needed}'
      )

  def __call__(self, step: int, rows: slice = slice(None)) -> dict[str, np.ndarray]:
    """Return the given rows of the batch at `step`."""
    epoch, local = self.epoch_of(step)
    if step < 0 or (epoch and not self._train):
      raise IndexError(f'step {step} of {self._title}, which has {self.steps} steps')
    example_B, live_B = (x_B[rows] for x_B in self._row_examples(local))
    if self._shuffle:
      import grain  # imports JAX, which reading a config does not need

      key, shuffle = self._epoch_seed('shuffle', epoch), grain.experimental.index_shuffle
      if self._row_parts:
        row_B, first = example_B - local * self.batch_size, key % (self.examples - self.steps * self.batch_size + 1)
        within = (shuffle(local, self.steps - 1, (key + int(row)) % 2**32, _SHUFFLE_ROUNDS) for row in row_B)
        example_B = first + row_B * self.steps + np.fromiter(within, np.int64, len(row_B))
      else:
        shuffled = (shuffle(int(i), self.examples - 1, key, _SHUFFLE_ROUNDS) for i in example_B)
        example_B = np.fromiter(shuffled, np.int64, len(example_B))
    batch = self._make(epoch, example_B, live_B)
    batch['index_B'] = np.where(live_B, example_B, -1).astype(np.int32)
    return batch

  def pad_rows(self, multiple: int) -> Batches:
    """Return these batches padded with rows of weight 0 to a multiple of `multiple` rows."""
    padded = copy.copy(self)
    padded._multiple = multiple
    return padded

  def with_row_parts(self) -> Batches:
    """Return these batches with rows that each read their own part of the split; see `data.row_parts`.

    Raises:
      InputError: the order is not a shuffle of single examples.
    """
    if not self._shuffle or type(self).__call__ is not Batches.__call__:
      raise InputError(
        f'data.row_parts: got True with {type(self).__name__} batches, which are not shuffled example by example; '
        'expected data.shuffle=True with a data.batching such as windows, packed, pairs or permutations; omit it'
      )
    divided = copy.copy(self)
    divided._row_parts = True
    return divided

  @property
  def split(self) -> str:
    """Name of the split."""
    return self._split

  @property
  def padded_rows(self) -> int:
    return self._padded_rows(self.batch_size)

  def _padded_rows(self, rows: int) -> int:
    return round_up(rows, self._multiple)

  def _row_examples(self, local: int) -> tuple[np.ndarray, np.ndarray]:
    """Return each row's position in the epoch for batch number `local`, and which rows are not padding."""
    row_B = np.arange(self.padded_rows)
    position_B = local * self.batch_size + np.minimum(row_B, self.batch_size - 1)
    return np.minimum(position_B, self.examples - 1), (row_B < self.batch_size) & (position_B < self.examples)

  def epoch_of(self, step: int) -> tuple[int, int]:
    """Return the epoch of a step, and the number of the step within it."""
    return divmod(step, self.steps)

  def steps_in(self, epochs: float) -> int:
    """Return the number of steps in `epochs` epochs, rounded."""
    return round(epochs * self.steps)

  def positions(self) -> int:
    """Return the number of positions in an epoch, padding included but not rows that `pad_rows` adds."""
    return self.steps * self.batch_size * self.length

  def shapes(self) -> tuple[tuple[int, int], ...]:
    """Return (rows, positions) of the batches of the first epoch, without repetition; () if all are equal."""
    return ()

  def _positions_in_groups(self, batches: Iterable[np.ndarray], lengths: Sequence[int] | np.ndarray) -> int:
    """Return the number of positions in batches with these row sizes; each group is padded to one length."""
    groups = (group for sizes in batches for group in np.array_split(np.sort(sizes), self.groups))
    buckets = np.searchsorted(lengths, [group.max(initial=0) for group in groups])
    return int(np.asarray(lengths)[buckets].sum()) * self.batch_size // self.groups

  def row_counts(self) -> tuple[int, ...]:
    """Return the distinct numbers of rows per batch, with padding rows; one if all are equal."""
    return (self.padded_rows,)

  @abc.abstractmethod
  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray) -> dict[str, np.ndarray]:
    """Build the rows of the given examples; rows that are not live get weight 0."""

  def _epoch_seed(self, purpose: str, epoch: int) -> int:
    return int(noise.generator(self._seed, purpose, epoch).integers(2**32))

  def _read(self, position: np.ndarray) -> np.ndarray:
    """Return the tokens at the positions as int32, after checking them against the vocabulary."""
    tokens = self._tokens[position]
    if tokens.size and not (0 <= tokens.min() and tokens.max() < self._vocab_size):
      bad = np.flatnonzero((tokens.ravel() < 0) | (tokens.ravel() >= self._vocab_size))[0]
      raise InputError(
        f'{self._title}: got token id {tokens.ravel()[bad]} at position {position.ravel()[bad]:,}; '
        f'expected ids below {self._vocab_size:,}, the size of the vocabulary; tokenize the data with '
        'the tokenizer of the run'
      )
    return tokens.astype(np.int32)

  def _next_tokens(self, start_B: np.ndarray, live_BT: np.ndarray) -> dict[str, np.ndarray]:
    """Return inputs and next-token targets from `start_B` on, with weight 0 where not live."""
    last = self._tokens.size - 1
    tokens_BS = self._read(np.minimum(start_B[:, None] + np.arange(live_BT.shape[1] + 1), last))
    return dict(
      tokens_BT=np.where(live_BT, tokens_BS[:, :-1], 0),
      targets_BT=np.where(live_BT, tokens_BS[:, 1:], 0),
      weights_BT=live_BT.astype(np.float32),
    )


def round_up(rows: int, multiple: int) -> int:
  """Return the smallest multiple of `multiple` that is at least `rows`."""
  return -(-rows // multiple) * multiple


def special_token_id(tokenizer: Any, name: str) -> int:
  """Return the id of the special token 'cls' or 'sep', under any spelling; raise InputError if there is none."""
  index = getattr(tokenizer, f'{name}_id')
  if index is None and hasattr(tokenizer, 'token_id'):
    index = tokenizer.token_id(f'<{name}>')
  if index is None:
    raise InputError(
      f'data.batching: got a tokenizer without the special token <{name}>; set data.marks=xlnet with '
      'data.tokenizer=unigram, data.special_tokens=("<cls>","<sep>") with another subword tokenizer, or '
      'data.tokenizer=wordpiece'
    )
  return int(index)


def sizes(data: Any, train: bool) -> tuple[int, int]:
  """Return (rows per batch, positions per row) from the `data` section, for training or evaluation."""
  if train:
    return data.batch_size, data.length
  return data.eval_batch_size or data.batch_size, data.eval_length or data.length


def note_of_truncation(note: str, *, train: bool) -> tuple[str, ...]:
  """Return the `notes` of a training split; for other splits, whose notes are not printed, warn."""
  if train:
    return (note,)
  warnings.warn(note, InputWarning, stacklevel=4)
  return ()


def is_labelled(labels: np.ndarray) -> np.ndarray:
  """Return which rows have a label (not -1) or a score (not NaN)."""
  return ~np.isnan(labels) if labels.dtype.kind == 'f' else labels >= 0
