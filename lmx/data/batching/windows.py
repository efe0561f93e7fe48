"""Blocks of T tokens for stateless models: index arithmetic over the concatenated text."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from lmx.data import noise
from lmx.data.batching.base import Batches, sizes
from lmx.errors import InputError, check_range

CHARACTERS = 'may'


@dataclasses.dataclass(frozen=True)
class Config:
  """Windows over the text.

  Attributes:
    stride: in evaluation a window starts every `stride` tokens and predicts only the tokens not predicted yet; 0 is no
      overlap.
    ends: predict end-of-text ids in evaluation too; they separate documents and are not part of the text. If False they
      are only inputs.
    second: in training also add the token after each target, `second_BT`, for models that predict two.
    drawn: in evaluation this number of windows at random places, for an estimate as nanoGPT prints it (`estimate_loss`
      of train.py; its number is eval_iters * batch_size), other ones for runs of other seeds; 0 is the whole split. No
      metrics per word or character.
  """

  name: str = 'windows'
  stride: int = 0
  ends: bool = True
  second: bool = False
  drawn: int = 0

  def __post_init__(self) -> None:
    check_range('data.batching.stride', self.stride, 0)
    check_range('data.batching.drawn', self.drawn, 0)


def check(data: Any) -> None:
  """Raise InputError if the `data` section does not fit."""
  check_stride(data)
  if data.batching.drawn and data.batching.stride:
    raise InputError(
      f'data.batching.stride: got {data.batching.stride} with data.batching.drawn={data.batching.drawn}; expected '
      'one of them: drawn windows predict all of their tokens'
    )


def check_stride(data: Any) -> None:
  """Raise InputError if windows of the `data` section do not overlap but leave gaps."""
  evaluated = data.eval_length or data.length
  if data.batching.stride > evaluated:
    raise InputError(
      f'data.batching.stride: got {data.batching.stride}; expected at most {evaluated}: a larger one skips tokens'
    )


def build(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> Windows:
  """Return the batches of a split according to the `data` section."""
  return Windows(
    corpus.splits[split],
    *sizes(data, train),
    vocab_size=corpus.tokenizer.vocab_size,
    seed=seed,
    train=train,
    shuffle=data.shuffle,
    stride=data.batching.stride,
    unpredicted=None if data.batching.ends else corpus.tokenizer.eos_id,
    second=data.batching.second,
    drawn=0 if train else data.batching.drawn,
  )


class Windows(Batches):
  """Blocks of T tokens and their next tokens, for stateless models.

  Training: an epoch's blocks do not overlap; their offset and order are random per epoch (without
  `shuffle`: offset 0, in order). Fewer than 2T tokens at the ends and fewer than B blocks are skipped, different ones
    each epoch. Evaluation: every token but the first is predicted exactly once. With `stride` below T the blocks
    overlap, and a token has at least T - stride tokens before it in its block, except in the first block. The id
    `unpredicted`, if any, has weight 0. `second` adds `second_BT` to training, -1 where the text ends. With
    `drawn` there are that many blocks at random places, which may overlap, and each predicts all of its tokens.
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
    stride: int = 0,
    unpredicted: int | None = None,
    second: bool = False,
    drawn: int = 0,
  ):
    super().__init__(split, batch_size, length, vocab_size=vocab_size, seed=seed, train=train, shuffle=shuffle)
    self._predicted = self._tokens.size - 1
    self._stride = length if train else stride or length
    self._unpredicted = None if train else unpredicted
    self._second = second and train
    blocks = 1 + -(-max(self._predicted - length, 0) // self._stride)
    if train:
      blocks = max(self._tokens.size - length, 0) // length  # leaves room for at least T offsets
    self._offsets = self._predicted - blocks * length + 1
    self._drawn_I = np.arange(0)
    if drawn:
      last = max(self._predicted - length, 0)
      blocks, self._drawn_I = drawn, noise.generator(seed, 'drawn', 0).integers(last + 1, size=drawn)
      self.protocol = (f'{drawn:,} windows at random places',)
    self._set_size(blocks, blocks * length if train or drawn else self._predicted, str((batch_size + 1) * length))

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray) -> dict[str, np.ndarray]:
    offset = self._epoch_seed('offset', epoch) % self._offsets if self._shuffle else 0
    start_B = offset + example_B * self._stride
    column_T = np.arange(self.length)
    new_B = np.where(example_B > 0, self.length - self._stride, 0)  # first column not predicted by the block before
    if self._drawn_I.size:
      start_B, new_B = self._drawn_I[example_B], np.zeros_like(example_B)
    inside_BT = start_B[:, None] + column_T < self._predicted
    batch = self._next_tokens(start_B, inside_BT)
    batch['weights_BT'] *= live_B[:, None] & (column_T >= new_B[:, None])
    if self._unpredicted is not None:
      batch['weights_BT'] *= batch['targets_BT'] != self._unpredicted
    if self._second:
      after_BT = start_B[:, None] + column_T + 2
      inside_text_BT = after_BT <= self._predicted
      batch['second_BT'] = np.where(inside_text_BT, self._read(np.minimum(after_BT, self._predicted)), -1).astype(
        np.int32
      )
    return batch
