"""Checkpoints of a run; here the `checkpoint` section of a config, without JAX."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from lmx import ranges
from lmx.errors import InputError


@dataclasses.dataclass(frozen=True)
class Config:
  """Checkpoints: when they are saved, and which are kept.

  Attributes:
    every_steps: steps between two saves.
    every_seconds: save also when this many seconds have passed since the last save; 0 = never.
    keep_last: number of newest checkpoints to keep, and of newest planned ones; at least 2, so that one is left when
      one is damaged.
    keep_best: also keep the checkpoint with the lowest metric.
    asynchronous: write copies of the arrays in the background while training continues.
    verify: check the files before reading them, and every array's checksum afterwards.
    timeout_seconds: time in seconds after which one write counts as failed.
    at_words: numbers of training words after which the checkpoint is kept for good, next to `keep_last` and
      `keep_best`. Words are those of the training split as `lmx prepare` prints them, and those of every epoch count.
      An epoch's words are spread evenly over its updates; the first update with at least this many words is kept.
  """

  every_steps: int = 500
  every_seconds: float = 0.0
  keep_last: int = 2
  keep_best: bool = True
  asynchronous: bool = True
  verify: bool = True
  timeout_seconds: int = 1200
  at_words: Annotated[tuple[Annotated[int, ranges.Limits(1)], ...], ranges.Distinct()] = ()

  def __post_init__(self) -> None:
    if self.keep_last < 2:
      raise InputError(f'checkpoint.keep_last: got {self.keep_last}; expected at least 2')
    if self.every_steps < 1 or self.every_seconds < 0 or self.timeout_seconds < 1:
      raise InputError(
        'checkpoint.every_steps and timeout_seconds must be positive, every_seconds not negative; '
        f'got {self.every_steps}, {self.timeout_seconds} and {self.every_seconds}'
      )
