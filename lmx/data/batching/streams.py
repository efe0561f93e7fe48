"""Contiguous streams for recurrent models: row b of a step continues row b of the step before.

`Streams` splits them every T tokens. `RandomStreams` splits them at random lengths that differ each epoch (Merity et
al. 2018, arXiv 1708.02182, section 4.1), so any token can be the last of a window and get a gradient through few steps.
`OverlappingWindows` evaluates a model that was trained on streams without a memory: every prediction sees as much.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import numpy as np

from lmx.data import noise
from lmx.data.batching import windows
from lmx.data.batching.base import Batches, round_up, sizes
from lmx.errors import InputError, check_range, check_share

CHARACTERS = 'may'

# Window lengths, section 4.1 and the released code: a normal with this deviation around T, or with the given
# probability around T / 2, truncated to integers and clipped at 5 from below. The paper's deviation is 5 as well.
DEVIATION, HALVED, SHORTEST = 5.0, 0.05, 5
MARGIN = 30  # six deviations: a draw beyond T + MARGIN, one in 10^9, is clipped


@dataclasses.dataclass(frozen=True)
class Config:
  """Contiguous streams.

  Attributes:
    random_length: in training, windows of random length around `data.length` (Merity et al. 2018).
    scale_rate: scale an update's learning rate by its window length (the same, section 4.1).
    length_multiple: windows of random length are padded to the next multiple of this, with one compilation per shape; 0
      pads all to one shape.
    counted: in training, share of a window's last predictions that count in the loss (Dai et al. 2019, arXiv
      1901.02860, table 6: half); the others are only inputs.
    stride: in evaluation, overlapping windows of `data.eval_length`, one every `stride` tokens, from an empty state;
      each predicts the tokens not predicted yet. 0: contiguous windows with carried state.
  """

  name: str = 'streams'
  random_length: bool = False
  scale_rate: bool = True
  length_multiple: int = 0
  counted: float = 1.0
  stride: int = 0

  def __post_init__(self) -> None:
    check_range('data.batching.stride', self.stride, 0)
    check_share('data.batching.counted', self.counted)
    check_range('data.batching.length_multiple', self.length_multiple, 0)
    if self.random_length and self.counted < 1:
      raise InputError('data.batching.counted: got True with data.batching.random_length; expected only one of them')


check = windows.check_stride


def build(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> Streams | OverlappingWindows:
  """Return the batches of a split according to the `data` section."""
  common: dict[str, Any] = dict(vocab_size=corpus.tokenizer.vocab_size, seed=seed)
  if data.batching.random_length and train:
    return RandomStreams(
      corpus.splits[split],
      *sizes(data, train),
      multiple=data.batching.length_multiple,
      scale_rate=data.batching.scale_rate,
      **common,
    )
  if data.batching.stride and not train:
    return OverlappingWindows(
      corpus.splits[split], *sizes(data, train), train=False, stride=data.batching.stride, **common
    )
  counted = data.batching.counted if train else 1.0
  return Streams(corpus.splits[split], *sizes(data, train), train=train, counted=counted, **common)


class Streams(Batches):
  """Streams split every T tokens.

  The N - 1 tokens that have a predecessor are assigned to the rows in order. So consecutive rows overlap by one token:
  the last target of one row is the first input of the next. Every token but the first is predicted exactly once in an
  epoch, in training too. Only the last step of an epoch is padded (weight 0), so the state is never carried over
  padding. With one row the evaluation matches the papers'.
  """

  stateful = True

  def __init__(
    self, split: Any, batch_size: int, length: int, *, vocab_size: int, seed: int, train: bool, counted: float = 1.0
  ):
    super().__init__(split, batch_size, length, vocab_size=vocab_size, seed=seed, train=train, shuffle=False)
    self._read_only = length - max(1, round(counted * length))  # number of first columns without loss
    predicted = self._tokens.size - 1
    self._starts = np.arange(batch_size + 1) * predicted // batch_size
    self._longest = int(np.diff(self._starts).max())
    steps = -(-self._longest // length)
    enough = not train or predicted >= batch_size * length
    self._set_size(steps * batch_size if enough else 0, predicted, str(batch_size * length + 1))

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray) -> dict[str, np.ndarray]:
    step_B, row_B = np.divmod(example_B, self.batch_size)
    live_BT = self._inside(row_B, step_B * self.length, np.arange(self.length)) & live_B[:, None]
    batch = self._next_tokens(self._starts[row_B] + step_B * self.length, live_BT) | dict(reset_B=step_B == 0)
    batch['weights_BT'][:, : self._read_only] = 0
    return batch

  def _inside(self, row_B: np.ndarray, offset_B: np.ndarray | int, column_T: np.ndarray) -> np.ndarray:
    """Return True for columns of a window starting at `offset_B` of its rows that are within the rows."""
    start_B = self._starts[row_B] + offset_B
    return start_B[:, None] + column_T < self._starts[row_B + 1][:, None]


class OverlappingWindows(windows.Windows):
  """Windows of an evaluation, each from an empty state; see `Windows`."""

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray) -> dict[str, np.ndarray]:
    return super()._make(epoch, example_B, live_B) | dict(reset_B=np.ones(len(example_B), bool))


class RandomStreams(Streams):
  """Training streams split at random lengths, padded on the right (`valid_BT`, weight 0) to few different shapes.

  The windows of an epoch are a function of (seed, epoch); epochs have different numbers of steps. `rate_B` is a
  window's length over T, which multiplies the update's learning rate (`scale_rate`). `steps` is the first epoch's
  number of steps.

  Deviation: the last window of an epoch is truncated at the end of the text, and its rate follows the remaining length;
  the released code keeps the rate of the sampled length.
  """

  def __init__(
    self,
    split: Any,
    batch_size: int,
    length: int,
    *,
    vocab_size: int,
    seed: int,
    multiple: int = 0,
    scale_rate: bool = True,
  ):
    """Args as in `Streams`; `multiple`: windows are padded to the next multiple of this, 0: all to T + MARGIN."""
    super().__init__(split, batch_size, length, vocab_size=vocab_size, seed=seed, train=True)
    self._length_multiple, self._scale_rate = multiple, scale_rate
    self._offsets: list[np.ndarray] = []  # per generated epoch: offsets of its windows and its end
    self._first = [0]  # index of the first step of each epoch, and of the next
    self._lock = threading.Lock()
    self.steps = self.steps_in(1)
    self.examples = self.steps * batch_size

  def _epoch(self, epoch: int) -> np.ndarray:
    """Return an epoch's window offsets, with the end of the longest row last."""
    with self._lock:
      while len(self._offsets) <= epoch:
        self._offsets.append(
          window_offsets(noise.generator(self._seed, 'lengths', len(self._offsets)), self._longest, self.length)
        )
        self._first.append(self._first[-1] + len(self._offsets[-1]) - 1)
    return self._offsets[epoch]

  def epoch_of(self, step: int) -> tuple[int, int]:
    while self._first[-1] <= step:
      self._epoch(len(self._offsets))
    epoch = int(np.searchsorted(self._first, step, 'right')) - 1
    return epoch, step - self._first[epoch]

  def steps_in(self, epochs: float) -> int:
    whole = int(epochs)
    last = len(self._epoch(whole)) - 1
    return self._first[whole] + round((epochs - whole) * last)

  def positions(self) -> int:
    return self.batch_size * sum(map(self._padded, np.diff(self._epoch(0)).tolist()))

  def _padded(self, length: int) -> int:
    longest = self.length + MARGIN
    return min(round_up(length, self._length_multiple), longest) if self._length_multiple else longest

  def __call__(self, step: int, rows: slice = slice(None)) -> dict[str, np.ndarray]:
    if step < 0:
      raise IndexError(f'step {step} of {self._title}')
    epoch, local = self.epoch_of(step)
    start, stop = self._epoch(epoch)[local : local + 2].tolist()
    row_B = np.arange(self.padded_rows)[rows]
    live_B, row_B = row_B < self.batch_size, np.minimum(row_B, self.batch_size - 1)
    column_T = np.arange(self._padded(stop - start))
    live_BT = self._inside(row_B, start, column_T) & (column_T < stop - start) & live_B[:, None]
    batch = self._next_tokens(self._starts[row_B] + start, live_BT) | dict(
      valid_BT=live_BT,
      reset_B=np.full(row_B.shape, local == 0),
      index_B=np.where(live_B, local * self.batch_size + row_B, -1).astype(np.int32),
    )
    if self._scale_rate:
      batch['rate_B'] = np.full(row_B.shape, (stop - start) / self.length, np.float32)
    return batch


def window_offsets(random: np.random.Generator, total: int, length: int) -> np.ndarray:
  """Return random window offsets in a text of `total` tokens: 0, the splits in order, and `total`.

  Args:
    random: random generator of all draws.
    total: tokens of the longest row.
    length: T, the mean of most windows.
  """
  most = -(-total // SHORTEST)
  mean = np.where(random.random(most) < HALVED, length / 2, length)
  lengths = np.clip(random.normal(mean, DEVIATION).astype(np.int64), SHORTEST, length + MARGIN)
  ends = np.cumsum(lengths)
  return np.concatenate([[0], ends[ends < total], [total]])
